"""Rates: so many in so much time."""

from __future__ import annotations

import math
import re

import msgspec

from jobpool.core.units import duration_s, show_duration
from jobpool.errors import ConfigError

FASTEST_PER_S = 100_000.0
_RATE = re.compile(
    r"(\d{1,7}(?:\.\d{1,6})?)\s*/\s*((?:\d{1,6}(?:\.\d{1,3})?)?(?:ms|[smhd]))", re.ASCII
)


class Rate(msgspec.Struct, frozen=True):
    """So many permits in so much time."""

    permits: float
    per_s: float

    @property
    def per_second(self) -> float:
        """Permits a second."""
        return self.permits / self.per_s

    @property
    def default_burst(self) -> int:
        """The burst of a rate that is declared without one: a second's permits."""
        return max(1, math.ceil(self.per_second))

    def __str__(self) -> str:
        """Format it as `parse_rate` reads it."""
        units = {1.0: "s", 60.0: "m", 3600.0: "h", 86400.0: "d"}
        unit = units.get(self.per_s) or show_duration(self.per_s)
        if self.per_s not in units and not _RATE.fullmatch(f"1/{unit}"):
            unit = f"{self.per_s:.3f}".rstrip("0").rstrip(".") + "s"
        return f"{self.permits:.12g}/{unit}"


def parse_rate(text: object, what: str = "rate") -> Rate:
    """Read ``10/s``, ``100/m``, ``5/h``, ``1000/d``, ``3/10s``.

    Args:
        text: the rate as written.
        what: the option's name, for the error message.

    Raises:
        ConfigError: it is not a rate, or is out of range.
    """
    match = _RATE.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise ConfigError(
            f"{what}: {str(text)[:40]!r} is not a rate; write a number and a time, "
            'such as "10/s", "100/m", "5/h", "1000/d" or "3/10s"'
        )
    unit = match[2] if match[2][0].isdigit() else f"1{match[2]}"
    rate = Rate(float(match[1]), duration_s(unit, what))
    if not rate.permits or not rate.per_s or rate.per_second > FASTEST_PER_S:
        raise ConfigError(
            f"{what}: {text} is out of range; expected more than nothing and at most "
            f"{FASTEST_PER_S:,.0f}/s (to let nothing begin, pause the quota)"
        )
    return rate
