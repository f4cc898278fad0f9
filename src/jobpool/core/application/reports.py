"""Reports of an error tracker in a handler, which its supervisor sends.

A child need not reach the tracker's server for that, nor wait for it; only the
supervisor knows whether a retry is left; and a thread of the tracker's own would
outlive the attempt. Nobody here or in the supervisor reads what is in a report.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

REPORTS_MAX = 100
"""Most reports of one attempt."""
REPORTS_MAX_BYTES = 2**20
"""Most that they may have together."""
_HEADER_BYTES = 64
"""For what is around each text."""
Value = str | int | float | bool | None
"""Of a header."""


class Item(msgspec.Struct, frozen=True, array_like=True):
    """A part of a report."""

    headers: dict[str, Value]
    data: bytes


class Report(msgspec.Struct, frozen=True, array_like=True):
    """What an error tracker wants sent, in the parts that its protocol has."""

    id: str
    of_error: bool
    """It tells of the exception that has ended the attempt: for when no retry is left.
    Without items, the application does not want that told."""
    items: Sequence[Item] = ()
    trace: dict[str, str] = {}

    @property
    def size_bytes(self) -> int:
        """How much room it takes, at most a little more."""
        texts = [self.id, *self.trace, *self.trace.values()]
        for item in self.items:
            texts += [*item.headers, *map(str, item.headers.values())]
        held = sum(len(item.data) for item in self.items)
        return held + sum(len(text.encode()) + _HEADER_BYTES for text in texts)


class _State:
    """The process's state; a class, so that it is changed without ``global``."""

    is_wanted = False
    reports: list[Report] = []  # noqa: RUF012 - there is one
    size_bytes = 0


def want(*, wanted: bool) -> None:
    """Say whether a supervisor sends what is handed over; for the child only."""
    _State.is_wanted = wanted


def are_wanted() -> bool:
    """Say whether a supervisor sends what is handed over in this process."""
    return _State.is_wanted


def hand_over(report: Report) -> bool:
    """Leave a report for the end of the attempt; False: there is no room for it."""
    size_bytes = _State.size_bytes + report.size_bytes
    if len(_State.reports) >= REPORTS_MAX or size_bytes > REPORTS_MAX_BYTES:
        return False
    _State.reports.append(report)
    _State.size_bytes = size_bytes
    return True


def take() -> list[Report]:
    """Return what was handed over, and forget it."""
    taken, _State.reports, _State.size_bytes = _State.reports, [], 0
    return taken
