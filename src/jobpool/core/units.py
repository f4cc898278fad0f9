"""Durations and sizes, read and formatted: "30s", "512MiB", a timedelta.

Bare numbers are seconds (durations) or bytes (sizes).
"""

from __future__ import annotations

import math
import re
from datetime import timedelta

from jobpool.errors import ConfigError

DurationLike = str | float | timedelta
"""A duration as a caller may give it."""
SizeLike = str | int
"""A size as a caller may give it."""

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_UNITS_BYTES = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
    "k": 2**10,
    "m": 2**20,
    "g": 2**30,
    "t": 2**40,
}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[smhdw]))+")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")

DURATION_MAX_S = 100 * 365.25 * 86400
"""A hundred years: a longer duration is a mistake."""
SIZE_MAX_BYTES = 2**60


def duration_s(value: DurationLike, what: str = "duration") -> float:
    """Read a duration.

    Args:
        value: ``"1h30m"``, ``"250ms"``, a number of seconds, or a timedelta.
        what: the setting's name, for the error message.

    Returns:
        Seconds, finite and not negative.

    Raises:
        ConfigError: not a duration, negative, not finite, or over a century.
    """
    seconds: float
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ConfigError(
            f'{what}: expected a duration such as "30s", a number of seconds or a '
            f"timedelta, got {type(value).__name__}"
        )
    elif isinstance(value, str):
        text = value.strip().lower().replace(" ", "")
        if _NUMBER.fullmatch(text):
            seconds = float(text)
        elif _DURATION.fullmatch(text):
            seconds = sum(
                float(number) * _UNITS_S[unit]
                for number, unit in _DURATION_PART.findall(text)
            )
        else:
            raise ConfigError(
                f"{what}: {value[:40]!r} is not a duration; write a number and a unit, "
                'such as "500ms", "30s", "10m", "1h30m" or "7d"'
            )
    else:
        # min: an integer may be too large for a float, and is out of range anyway
        seconds = float(min(value, 2 * DURATION_MAX_S))
    if not math.isfinite(seconds) or not 0 <= seconds <= DURATION_MAX_S:
        raise ConfigError(
            f"{what}: {_shown(value)} is out of range; expected 0 to 100 years"
        )
    return seconds


def size_bytes(value: SizeLike, what: str = "size") -> int:
    """Read a size.

    Args:
        value: ``"512MiB"``, ``"1GB"``, ``"2G"`` (binary), or a number of bytes.
        what: the setting's name, for the error message.

    Returns:
        Bytes, at least 1.

    Raises:
        ConfigError: not a size, or not within 1 byte to 1 EiB.
    """
    count: float
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise ConfigError(
            f'{what}: expected a size such as "512MiB" or a number of bytes, '
            f"got {type(value).__name__}"
        )
    if isinstance(value, int):
        count = value
    else:
        match = _SIZE.fullmatch(value.strip().lower())
        unit = match[2] if match else "?"
        if not match or (unit and unit not in _UNITS_BYTES):
            raise ConfigError(
                f"{what}: {value[:40]!r} is not a size; write a number and a unit, "
                'such as "512MiB", "1GiB" or "800MB"'
            )
        count = float(match[1]) * _UNITS_BYTES[unit or "b"]
    if not 1 <= count <= SIZE_MAX_BYTES:
        raise ConfigError(
            f"{what}: {_shown(value)} is out of range; expected 1 byte to 1 EiB"
        )
    return int(count)


def _shown(value: object) -> str:
    """Return a wrong value as text; Python refuses to format very long integers."""
    if isinstance(value, int) and value.bit_length() > 128:  # noqa: PLR2004 - 38 digits
        return "a number that long"
    return str(value)[:40]


def show_duration(seconds: float) -> str:
    """Format a duration with at most three digits: 12ms, 3.2s, 1h05m."""
    if not math.isfinite(seconds):  # the row may have been written by hand
        return f"{seconds:g}s"
    if seconds < 0.9995:  # noqa: PLR2004 - rounds to 1s from here on
        return f"{seconds * 1000:.3g}ms"
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{seconds:.3g}s"
    whole = round(seconds)
    if whole < 3600:  # noqa: PLR2004 - an hour
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 172800:  # noqa: PLR2004 - two days
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"


def show_size(count: float) -> str:
    """Format a number of bytes in binary units: 512MiB, 1.5GiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:  # noqa: PLR2004 - next unit
            return f"{count:.4g}{unit}"
        count /= 1024
    return f"{count:.4g}TiB"
