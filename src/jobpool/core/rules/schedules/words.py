"""Rules in words, for people to read."""

from __future__ import annotations

from datetime import UTC, datetime

from jobpool.core.rules.schedules.cron import ALIASES, read_cron
from jobpool.core.rules.schedules.rule import Rule

_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000}
_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)


def rule_words(rule: Rule) -> str:
    """Return when a schedule has ticks: ``at 02:00 every day, Europe/Berlin``.

    Jitter and bounds are not in it.

    Raises:
        ConfigError: it was changed by hand, and has no times.
    """
    if rule.cron is not None:
        words = _cron_words(rule.cron)
        return words if rule.tz == "UTC" else f"{words}, {rule.tz}"
    period = _period(rule.every_ms or 0)
    return f"{period} after each end" if rule.from_end else f"every {period}"


def _period(period_ms: int) -> str:
    """Return a period exactly, as it may be written: ``1h30m``."""
    parts: list[str] = []
    for unit, unit_ms in _UNITS_MS.items():
        count, period_ms = divmod(period_ms, unit_ms)
        parts += [f"{count}{unit}"] if count else []
    parts += [f"{period_ms / 1000:g}s"] if period_ms or not parts else []
    return "".join(parts)


def _cron_words(text: str) -> str:
    read_cron(text)
    import cronsim  # noqa: PLC0415 - 20 ms

    fields = " ".join(ALIASES.get(text.strip().lower(), text).split())
    words = cronsim.CronSim(fields, _ANY_TIME).explain()
    return words[:1].lower() + words[1:]
