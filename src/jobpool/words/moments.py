"""Moments and rates as operators write them: 2h ago, an ISO 8601 time, 100/s."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime

from jobpool.core.jobs.job import TIME_MAX_MS
from jobpool.core.units import duration_s
from jobpool.errors import ConfigError

_RATE = re.compile(r"(\d{1,9}(?:\.\d+)?)/(s|m|h)", re.ASCII)
_PER_S = {"s": 1.0, "m": 60.0, "h": 3600.0}
_SECONDS = re.compile(r"\d+(?:\.\d+)?", re.ASCII)


def moment_ms(text: str, what: str) -> int:
    """Read a moment: ISO 8601 with a time zone, or seconds since 1970.

    Returns:
        Milliseconds since 1970, UTC.

    Raises:
        ConfigError: not a moment, without a zone, or not within 1970 to 9999.
    """
    if _SECONDS.fullmatch(text):
        seconds = float(text)
    else:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError as exc:
            raise ConfigError(
                f"{what}: {text[:40]!r} is not a moment; write ISO 8601 with a zone, "
                'such as "2030-01-31T18:00:00Z", or seconds since 1970'
            ) from exc
        if moment.tzinfo is None:
            raise ConfigError(
                f"{what}: {text[:40]!r} has no time zone; add Z for UTC, or +02:00"
            )
        seconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()
    at_ms = round(seconds * 1000) if math.isfinite(seconds) else -1
    if not 0 <= at_ms <= TIME_MAX_MS:
        raise ConfigError(
            f"{what}: {text[:40]!r} is out of range; expected the years 1970 to 9999"
        )
    return at_ms


def since_ms(text: str, now_ms: int, what: str = "--since") -> int:
    """Read the start of a span: so long ago (``2h``), or a moment.

    Raises:
        ConfigError: neither of the two.
    """
    if "-" in text:
        return moment_ms(text, what)
    try:
        age_s = duration_s(text, what)
    except ConfigError as exc:
        raise ConfigError(
            f"{exc}; or a moment as ISO 8601 with a zone, such as "
            '"2030-01-31T18:00:00Z"'
        ) from exc
    return max(0, now_ms - round(age_s * 1000))


def rate_per_s(text: str) -> float:
    """Read a rate: ``100/s``, ``30/m``, ``500/h``.

    Raises:
        ConfigError: not a rate above zero.
    """
    match = _RATE.fullmatch(text.strip())
    rate = float(match[1]) / _PER_S[match[2]] if match else 0.0
    if rate <= 0:
        raise ConfigError(
            f"--rate: {text[:40]!r} is not a rate; write jobs per second, minute or "
            "hour, such as 100/s"
        )
    return rate
