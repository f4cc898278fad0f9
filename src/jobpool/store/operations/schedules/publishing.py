"""What publishing or putting schedules changes. Pure.

A schedule belongs to the application that declares it. Another one's, and one that was
put at run time, is not touched: names are the store's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from jobpool.core.rules.schedules.schedule import Declared
from jobpool.errors import UsageError
from jobpool.store.records.schedules import Published
from jobpool.store.statements.schedules import StoredSchedule

LIVING_MS = 60_000
"""A run whose lease ran out so long ago has no say in what its application declares."""
_replace = msgspec.structs.replace


class Changes(NamedTuple):
    """What is to be stored."""

    added: Sequence[Declared] = ()
    changed: Sequence[tuple[StoredSchedule, Declared]] = ()
    """As each is, and as it is to be."""
    retired: Sequence[StoredSchedule] = ()
    refused: Sequence[str] = ()
    """Names that others have."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to store."""
        return not (self.added or self.changed or self.retired)

    def told(self) -> Published:
        """Return what came of it."""
        return Published(
            added=tuple(one.name for one in self.added),
            changed=tuple(
                one.name
                for stored, one in self.changed
                if stored.retired_at_ms is not None
                or not stored.is_like(one, encoded_anew=True)
            ),
            retired=tuple(one.name for one in self.retired),
            refused=tuple(self.refused),
        )


def newest_version(seen_ms: Mapping[str, int]) -> str | None:
    """Return which version of an application's code decides what it declares.

    Args:
        seen_ms: by version that a living run has, when it was first seen.
    """
    return max(seen_ms, key=lambda version: (seen_ms[version], version), default=None)


def changes(
    declared: Iterable[Declared],
    stored: Iterable[StoredSchedule],
    application: str | None,
    *,
    again: bool = False,
) -> Changes:
    """Return what is to be changed so that the store has what is declared.

    Args:
        declared: all of the application's schedules; or one that is put.
        stored: its own, and others of these names.
        application: None: it is put.
        again: arguments that only a codec has made others are left alone.
    """
    wanted = {one.name: one for one in declared}
    known = {one.name: one for one in stored}
    changed: list[tuple[StoredSchedule, Declared]] = []
    refused: list[str] = []
    for name in sorted(wanted.keys() & known.keys()):
        one = known[name]
        is_ours = one.application == application
        is_retired = one.retired_at_ms is not None
        if not is_ours and not is_retired:
            refused.append(name)
        elif (
            not is_ours
            or is_retired
            or not one.is_like(wanted[name], encoded_anew=again)
        ):
            changed.append((one, wanted[name]))
    return Changes(
        added=[wanted[name] for name in sorted(wanted.keys() - known.keys())],
        changed=changed,
        retired=[
            known[name]
            for name in sorted(known.keys() - wanted.keys())
            if known[name].retired_at_ms is None
        ],
        refused=refused,
    )


def redefined(
    stored: StoredSchedule, declared: Declared, now_ms: int
) -> StoredSchedule:
    """Return how far a schedule is once it is declared otherwise, or again.

    A new rule begins now, and so does one that was retired: neither has missed a tick.
    A pause stays.
    """
    if stored.retired_at_ms is not None or not stored.has_rule(declared.rule):
        stored = _replace(stored, since_ms=now_ms, last_at_ms=None, retired_at_ms=None)
    is_paused = stored.paused_at_ms is not None
    return stored if is_paused else _replace(stored, next_at_ms=now_ms)


def retired(stored: StoredSchedule, now_ms: int) -> StoredSchedule:
    """Return a schedule as it is once nobody declares it any more."""
    return _replace(stored, retired_at_ms=now_ms, next_at_ms=None, waits=0)


def taken(name: str, application: str | None) -> UsageError:
    """Return the error for a schedule that an application declares."""
    return UsageError(
        f"schedule {name!r} is declared by the application {application!r}: change it "
        "there, pause it, use another name, or remove it a minute after the last "
        "supervisor of that application has gone. Nothing was changed"
    )
