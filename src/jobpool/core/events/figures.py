"""Events for those who count. They are in no log.

A success is nothing to tell, and a supervisor has thousands a second. So these carry
many at once, and are made only if an observer hears them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jobpool.core.events.event import Event, Level
from jobpool.core.rules.run_report import RunReport


class AttemptsSucceeded(Event, frozen=True, kw_only=True, gc=False):
    """Attempts of one kind have succeeded, all in one child."""

    name = "attempts_succeeded"
    level = Level.NOTSET

    kind: str
    pool: str
    durations_s: Sequence[float]
    """Of each attempt; the other figures are in the same order."""
    waits_s: Sequence[float]
    """From when it was due until it began."""
    peaks_bytes: Sequence[int]
    attempts: Sequence[int]
    """Which attempt of its job it was, from 1."""


class SupervisorFigures(Event, frozen=True, kw_only=True):
    """What a supervisor knows of itself, as of a moment; every few seconds."""

    name = "supervisor_figures"
    level = Level.NOTSET

    report: RunReport
    kinds: Mapping[str, Sequence[str]]
    """Those that it runs, by pool."""
    kills: Mapping[str, int]
    """Children that it has killed since its start, by cause."""
    since_lease_s: float | None
    """Time since it was last granted a job; None: it never was."""
