"""Numbers, durations and moments in words. Pure."""

from __future__ import annotations

from jobpool.core.rules.schedules.zone import local_time
from jobpool.core.units import show_duration, show_size


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is 1."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def counted_many(number: int, noun: str) -> str:
    """Return a number that may be large with its noun."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def seconds(value: float | None) -> str | None:
    """Show a duration, or None."""
    return None if value is None else show_duration(value)


def size(value: int | None) -> str | None:
    """Show a number of bytes, or None."""
    return None if value is None else show_size(value)


def ago(at_ms: int | None, now_ms: int) -> str | None:
    """Return how long ago, or in how long, a moment is."""
    if at_ms is None:
        return None
    age_s = (now_ms - at_ms) / 1000
    if age_s >= 0:
        return f"{show_duration(age_s)} ago"
    return f"in {show_duration(-age_s)}"


def clock_time(at_ms: int | None, tz: str = "UTC") -> str | None:
    """Return a tick's time as the clocks of a zone show it: ``2026-11-26 02:00``.

    Raises:
        ConfigError: this host does not know the zone.
    """
    if at_ms is None:
        return None
    moment = local_time(at_ms, tz)
    to = "seconds" if moment.second or moment.microsecond else "minutes"
    text = moment.replace(tzinfo=None, microsecond=0).isoformat(" ", to)
    return f"{text}Z" if tz == "UTC" else text
