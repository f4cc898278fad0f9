"""Plants bugs in what the simulation runs, to see whether a check notices.

Each is a change of the real code, made while it runs and taken back afterwards, of the
kind that people make: a check forgotten, a counter off by one, an error dropped.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from planted_bugs.bug import Promise

Change = tuple[Any, str, Any]
"""Where, what, and what it is to be."""
Changes = Callable[[], list[Change]]


class SimBug(NamedTuple):
    """A bug to plant."""

    promise: Promise
    changes: Changes


BUGS: dict[str, SimBug] = {}
"""By name; `sim.planted` has them all."""


def breaks(promise: Promise) -> Callable[[Changes], Changes]:
    """Declare that a function's changes are a bug that breaks a promise."""

    def enter(changes: Changes) -> Changes:
        BUGS[changes.__name__.replace("_", " ")] = SimBug(promise, changes)
        return changes

    return enter


def nothing(*_args: Any, **_named: Any) -> None:
    """Do nothing."""


@contextlib.contextmanager
def planted(name: str) -> Iterator[None]:
    """Run with a bug."""
    changes = BUGS[name].changes()
    before = [(place, what, place.__dict__[what]) for place, what, _ in changes]
    try:
        for place, what, wrong in changes:
            setattr(place, what, wrong)
        yield
    finally:
        for place, what, right in before:
            setattr(place, what, right)
