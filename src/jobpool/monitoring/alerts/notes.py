"""What whoever looks at the queue notes for the next one who does.

Counts of the past fade: after a half-life a job counts half. So a rate of the last day
is two numbers, however many jobs there were.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

RECENT_S = 300.0
"""The half-life of what counts as recent."""
HOUR_S = 1800.0
"""Of what counts as the last hour."""
DAY_S = 43_200.0
"""Of what counts as the last day."""
KINDS_MAX = 500
"""So many kinds are noted: those of which most jobs have ended lately."""
DEPTH_EVERY_MS = 300_000
DEPTH_OVER_MS = 1_800_000
"""How a pool's backlog has grown is counted over so long."""


class SignalState(StrEnum):
    """How a rule stands, of one subject."""

    QUIET = "quiet"
    RISING = "rising"
    """Wrong, but not for long enough."""
    OPEN = "open"
    """An incident is open."""
    FALLING = "falling"
    """It is, and all has been well for a while."""


class Signal(msgspec.Struct, frozen=True, array_like=True):
    """A rule and a subject that is not quiet."""

    rule: str
    subject: str
    state: SignalState
    since_ms: int
    """When it came to this state."""


class Fading(msgspec.Struct, frozen=True, array_like=True):
    """Counts that fade."""

    ends: float = 0.0
    bad: float = 0.0
    """Of them: those that were no success."""

    def after(self, passed_s: float, half_life_s: float) -> Fading:
        """Return what is left after some time."""
        left = 0.5 ** (passed_s / half_life_s)
        return Fading(self.ends * left, self.bad * left)

    def plus(self, ends: int, bad: int) -> Fading:
        """Return them with more."""
        return Fading(self.ends + ends, self.bad + bad)

    @property
    def share(self) -> float:
        """The share of what was no success; 0: nothing has ended."""
        return self.bad / self.ends if self.ends > 0 else 0.0


class KindNotes(msgspec.Struct, frozen=True, array_like=True):
    """How a kind has done."""

    recent: Fading = Fading()
    """Attempts."""
    day: Fading = Fading()
    """Attempts."""
    hour: Fading = Fading()
    """Jobs; bad: dead or quarantined."""


class Notes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All of them."""

    at_ms: int = 0
    """When they were made; 0: there are none."""
    signals: tuple[Signal, ...] = ()
    kinds: dict[str, KindNotes] = {}
    depths: dict[str, tuple[tuple[int, int], ...]] = {}
    """Times and due jobs of pools, oldest first."""
    missed: dict[str, tuple[int, int]] = {}
    """Of schedules: how many ticks were missed, and when that last rose."""
    last_attempt: int | None = None
    """See `Endings`."""
    digest_ms: int = 0
    """Up to when the last digest has counted; 0: there was none."""
    heartbeat_ms: int = 0
    """When somebody last said that all is well."""


def read_notes(text: str) -> Notes:
    """Return notes; those that cannot be read are none: the next ones can."""
    try:
        return msgspec.json.decode(text, type=Notes)
    except (msgspec.MsgspecError, RecursionError):
        return Notes()


def write_notes(notes: Notes) -> str:
    """Return notes as text."""
    return msgspec.json.encode(notes).decode()


def busiest(kinds: Iterable[tuple[str, KindNotes]]) -> dict[str, KindNotes]:
    """Return the notes of the kinds that are worth it, bounded in number."""
    worth = [(kind, one) for kind, one in kinds if one.day.ends + one.hour.ends > 0.01]  # noqa: PLR2004 - nothing any more
    worth.sort(key=lambda item: -item[1].day.ends)
    return dict(worth[:KINDS_MAX])
