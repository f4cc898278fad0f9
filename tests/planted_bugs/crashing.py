"""Bugs that crash points and power cuts must see."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from jobpool.store.sqlite.connection import commit
from planted_bugs.bug import Promise
from support.crash_points import filter as crash_filter
from support.crash_points import point as crash_point
from support.crash_points import power_cut
from support.crash_points.operations import OPERATIONS
from support.crash_points.preparations import open_at

OPERATION = "enqueue"
CUTS = 60
KILLS = 20


class CrashBug(NamedTuple):
    """A bug, and the number of trials it takes to see it.

    None: crash points do not see it.
    """

    name: str
    promise: Promise
    trials: Callable[[], int | None]


@contextlib.contextmanager
def _changed(place: Any, name: str, wrong: Any) -> Iterator[None]:
    right = getattr(place, name)
    setattr(place, name, wrong)
    try:
        yield
    finally:
        setattr(place, name, right)


def _first(problems: Iterator[str | None]) -> int | None:
    for number, problem in enumerate(problems, 1):
        if problem:
            return number
    return None


def _without_syncs() -> int | None:
    """What it acknowledged is lost when the power fails."""

    def open_carelessly(directory: Any) -> Any:
        store = open_at(directory)
        connection = store._database._session.connection
        connection.execute("PRAGMA synchronous = OFF").fetchall()
        return store

    power_cut.record.cache_clear()
    try:
        with _changed(crash_point, "open_at", open_carelessly):
            cuts = power_cut.cuts_of([OPERATION], CUTS, random.Random(1))
            return _first(power_cut.cut_the_power(cut) for cut in cuts)
    finally:
        power_cut.record.cache_clear()


def _too_soon() -> int | None:
    """A child killed between its promise and the commit has promised too much."""
    plain, operation = crash_filter.report, OPERATIONS[OPERATION]

    def boast(store: Any, given: Any) -> Any:
        plain(crash_point.DONE, 0)
        return operation.steps[0](store, given)

    points = crash_point.points_of(OPERATION)
    kills = [p for p in points if p.error == crash_point.KILLED][:KILLS]
    OPERATIONS[OPERATION] = operation._replace(steps=(boast, *operation.steps[1:]))
    try:
        return _first(crash_point.run_point(point).problem for point in kills)
    finally:
        OPERATIONS[OPERATION] = operation


def _left_in_the_log() -> int | None:
    """What a disk refused to commit becomes visible when the file is opened next."""
    points = crash_point.points_of(OPERATION)
    syncs = [p for p in points if p.error and p.call in {"fsync", "fdatasync"}]
    with _changed(commit, "_overwrite", lambda *_args: None):
        return _first(crash_point.run_point(point).problem for point in syncs)


CRASH_BUGS = (
    CrashBug("the store does not sync", Promise.DURABLE, _without_syncs),
    CrashBug("acknowledged before the commit", Promise.DURABLE, _too_soon),
    CrashBug("a failed commit stays in the log", Promise.FENCED, _left_in_the_log),
)
