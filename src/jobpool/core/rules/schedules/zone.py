"""Time zones by name, as the host knows them.

They come from the system's database (Debian's package `tzdata`), which its updates keep
up to date for every program, or, where there is none, from PyPI's package `tzdata`.
jobpool depends on neither: UTC needs no database.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache

from jobpool.errors import ConfigError

ZONE_MAX_CHARS = 64
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+/-]*")
_OF_THE_HOST = ("localtime", "posixrules", "Factory", "right/", "posix/")
"""In the database, but another zone on each host, or with leap seconds."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS = 250_000_000_000_000
"""In the year 9892: Python's dates end with 9999, in whatever zone."""


@lru_cache(maxsize=512)
def zone_of(name: str) -> tzinfo:
    """Return a time zone.

    Raises:
        ConfigError: this host knows none of that name.
    """
    if name == "UTC":
        return UTC
    shown = f"tz {name[:ZONE_MAX_CHARS]!r}"
    if (
        len(name) > ZONE_MAX_CHARS
        or not _NAME.fullmatch(name)
        or name.startswith(_OF_THE_HOST)
    ):
        raise ConfigError(
            f'{shown} is not the name of a time zone; expected one such as "UTC" or '
            '"Europe/Berlin"'
        )
    import zoneinfo  # noqa: PLC0415 - 10 ms, and most schedules are in UTC

    try:
        return zoneinfo.ZoneInfo(name)
    # KeyError: not found; OSError: a folder; ValueError: another file.
    except (KeyError, OSError, ValueError) as exc:
        raise ConfigError(f"{shown} is unknown here{_hint(name)}") from exc


def local_time(at_ms: int, tz: str) -> datetime:
    """Return a moment as the clocks of a zone show it.

    Args:
        at_ms: milliseconds since 1970, UTC. If it can be no tick's, because another
            program has written it, the nearest that can.
        tz: the name of the zone.

    Raises:
        ConfigError: this host knows none of that name.
    """
    at_ms = min(max(at_ms, 0), _LAST_MS)
    return (_EPOCH + timedelta(milliseconds=at_ms)).astimezone(zone_of(tz))


@lru_cache(maxsize=512)  # it reads each file of the database
def _hint(name: str) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - for errors only
    from zoneinfo import available_timezones  # noqa: PLC0415 - for errors only

    if not (known := available_timezones()):
        return (
            ": this host has no database of time zones; install it (Debian: apt-get "
            "install tzdata; Alpine: apk add tzdata; or pip install tzdata)"
        )
    by_lower = {zone.lower(): zone for zone in known}
    close = get_close_matches(name.lower(), by_lower, n=1)
    guess = f" (did you mean {by_lower[close[0]]!r}?)" if close else ""
    return f'{guess}; expected a name such as "Europe/Berlin", or an update of tzdata'
