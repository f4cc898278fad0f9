"""What a planted bug is: which promise it breaks, and which layer must see it."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Promise(StrEnum):
    """What the manual promises (guarantees.md), in its own words."""

    DURABLE = "Accepted means durable"
    FENCED = "At least once, fenced"
    INNOCENCE = "One death, one job"
    BOUNDED_PATHS = "Every path is bounded"
    HARD_LIMITS = "Hard limits are hard"
    SCHEDULED = "One job for each tick of a [schedule](schedules.md)"
    QUOTAS = "[Quotas](flow-control.md) hold on all hosts"
    SHARES = "[Fair pools](fairness.md) are fair"
    FLOWS = "Nothing of a [flow](flows.md) begins early, twice or never"
    TOLD = "An [incident](alerts.md) is found once and told at least once"
    AT_MOST_ONCE = "At most once on request"
    NO_OVERLAP = "No overlap on one host"
    LATE_OVERLAP = "Overlap on several hosts only after expiry"
    BOUNDED_DATA = "Everything is bounded"
    NOTHING_OF_YOURS = "The supervisor runs nothing of yours"
    NAMED_ENDS = "Every end is named"
    ON_RECORD = "What people do is on record"
    ERASED = "Erased is gone"


class Layer(StrEnum):
    """A layer of the tests."""

    SIMULATION = "simulation"
    CHAOS = "chaos"
    CRASH_POINTS = "crash points"
    SUITE = "tests"


class Edit(NamedTuple):
    """One text in one source file, and its replacement."""

    file: str
    old: str
    new: str


class SuiteBug(NamedTuple):
    """A bug, and the tests that it must not pass."""

    name: str
    promise: Promise
    tests: str
    edits: tuple[Edit, ...]


class Bug(NamedTuple):
    """A planted bug, however it is planted."""

    name: str
    promise: Promise
    layer: Layer
    where: str = ""
    """The test files that must see it, for those that tests see."""
