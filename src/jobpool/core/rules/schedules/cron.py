"""Cron expressions: the local times that one means, and the instants of those.

cronsim reads the expression and matches days. The walk over time is ours: cronsim's
steps whole hours, and so loses ticks where clocks are set by half an hour (Lord Howe),
and invents some where they are set at midnight (Cairo).

At a change of the clocks the rules are those of Debian's cron. An expression whose
minute or hour begins with `*` follows the clock: it has no tick in an hour that is left
out, and ticks in both of an hour that comes twice. Any other has one tick for each time
that it names: at the change if that time is left out, and the first of two.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache

from jobpool.errors import ConfigError

CRON_MAX_CHARS = 200
YEARS_AHEAD_MAX = 50
"""A time that does not come for so long never does: the calendar has repeated."""
YEAR_MAX = 9900
"""No tick is later: Python's dates end with 9999."""
ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EXAMPLES = (
    "write five fields (minute, hour, day of the month, month, day of the week), such "
    'as "0 2 * * *", or "@daily"'
)
_FIELDS = 5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH = _EPOCH.replace(tzinfo=None)
_MS = timedelta(milliseconds=1)
_LAST_MS = (datetime(YEAR_MAX, 1, 1, tzinfo=UTC) - _EPOCH) // _MS
_DAY = timedelta(days=1)
_ZERO = timedelta(0)


class Cron:
    """An expression that has been read.

    Attributes:
        follows_clock: its minute or its hour begins with a star.
    """

    def __init__(
        self,
        *,
        minutes_of_day: Sequence[int],
        months: frozenset[int],
        matches: Callable[[date], bool],
        follows_clock: bool,
    ) -> None:
        self._minutes_of_day = minutes_of_day
        self._months = months
        self._matches = matches
        self.follows_clock = follows_clock

    def times(self, start: datetime) -> Iterator[datetime]:
        """Yield the local times that it means, from *start* on, in order.

        Args:
            start: a local time without a zone.
        """
        minutes = self._minutes_of_day
        skipped = bisect_left(minutes, start.hour * 60 + start.minute)
        day, year_max = start.date(), min(start.year + YEARS_AHEAD_MAX, YEAR_MAX)
        while day.year <= year_max:
            if day.month not in self._months:
                day = (day.replace(day=1) + 32 * _DAY).replace(day=1)
            else:
                if self._matches(day):
                    for minute in minutes[skipped:] if skipped else minutes:
                        hour, minute = divmod(minute, 60)  # noqa: PLW2901 - of the hour
                        yield datetime(day.year, day.month, day.day, hour, minute)  # noqa: DTZ001 - local time
                day += _DAY
            skipped = 0

    def next_after(self, zone: tzinfo, at_ms: int) -> int | None:
        """Return its first instant after one; None: there is none.

        Args:
            zone: whose clocks it goes by.
            at_ms: milliseconds since 1970, UTC.
        """
        if at_ms >= _LAST_MS:
            return None
        at_ms = max(at_ms, -1)
        at = _EPOCH + at_ms * _MS
        local = at.astimezone(zone)
        start = local.replace(tzinfo=None, fold=0)
        # How far clocks are about to be set back: to local times that have been.
        comes_back = _ZERO
        if self.follows_clock:
            comes_back = max(_set_back(zone, at, _DAY), _ZERO)
            if comes_back and not _set_back(zone, at, comes_back):
                comes_back = _ZERO  # those times are still to come
            start -= comes_back
        best: int | None = None
        for time in self.times(start):
            instants = self._instants(zone, time)
            if best is not None and instants and instants[0] >= best:
                break  # and so are all that follow
            for instant in instants:
                if instant > at_ms and (best is None or instant < best):
                    best = instant
            if best is not None and not comes_back:
                break
        return best

    def _instants(self, zone: tzinfo, time: datetime) -> tuple[int, ...]:
        """Return when clocks show a local time: once, twice, or never."""
        local = time.replace(tzinfo=zone)
        offset, other = _offset(local), _offset(local.replace(fold=1))
        first = (time - _LOCAL_EPOCH - offset) // _MS
        if offset == other:
            return (first,)
        second = (time - _LOCAL_EPOCH - other) // _MS
        if offset > other:
            return (first, second) if self.follows_clock else (first,)
        return () if self.follows_clock else (_change(zone, second, first),)


def _set_back(zone: tzinfo, at: datetime, within: timedelta) -> timedelta:
    """Return by how much clocks are set back from a moment to so much later."""
    return _offset(at.astimezone(zone)) - _offset((at + within).astimezone(zone))


def _offset(local: datetime) -> timedelta:
    return local.utcoffset() or _ZERO


def _change(zone: tzinfo, low_ms: int, high_ms: int) -> int:
    """Return the first instant after which clocks are ahead, between two."""

    def offset_at(at_ms: int) -> timedelta:
        return _offset((_EPOCH + at_ms * _MS).astimezone(zone))

    after = offset_at(high_ms)
    while high_ms - low_ms > 1:
        middle_ms = (low_ms + high_ms) // 2
        if offset_at(middle_ms) == after:
            high_ms = middle_ms
        else:
            low_ms = middle_ms
    return high_ms


@lru_cache(maxsize=512)
def read_cron(text: str) -> Cron:
    """Read an expression.

    Args:
        text: five fields, or a name such as ``@daily``.

    Raises:
        ConfigError: it is none, or names a date that never comes.
    """
    import cronsim  # noqa: PLC0415 - 20 ms

    shown = repr(text[:60])
    if len(text) > CRON_MAX_CHARS:
        raise ConfigError(
            f"cron {shown}… has {len(text):,} characters; expected at most "
            f"{CRON_MAX_CHARS}"
        )
    words = text.strip().lower()
    if words == "@reboot":
        raise ConfigError(
            "cron '@reboot' names no time, and there are several hosts: enqueue the "
            "job where the host starts"
        )
    fields = ALIASES.get(words, text).split()
    if not text.isascii() or len(fields) != _FIELDS:
        seconds = len(fields) == _FIELDS + 1
        hint = "; there are no seconds, use every= for less than a minute"
        raise ConfigError(
            f"cron {shown} is not an expression{hint if seconds else ''}; {_EXAMPLES}"
        )
    try:
        read = cronsim.CronSim(" ".join(fields), _LOCAL_EPOCH)
    except cronsim.CronSimError as exc:
        raise ConfigError(
            f"cron {shown} is not an expression: {str(exc).lower()}; {_EXAMPLES}"
        ) from exc
    cron = Cron(
        minutes_of_day=tuple(
            60 * hour + minute
            for hour in sorted(read.hours)
            for minute in sorted(read.minutes)
        ),
        months=frozenset(read.months),
        matches=read.match_day,
        follows_clock=fields[0].startswith("*") or fields[1].startswith("*"),
    )
    if next(cron.times(datetime(2000, 1, 1)), None) is None:  # noqa: DTZ001 - local time
        raise ConfigError(
            f"cron {shown} names a date that never comes; check its day and its month"
        )
    return cron
