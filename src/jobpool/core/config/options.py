"""The tables of options: each one's place in a file, its reader and its formatter.

Everything that reads or lists configuration uses these tables, so that flags,
environment, files, `check` and ``conf/jobpool.toml`` cannot disagree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from jobpool.core.config.settings import (
    MAX_ATTEMPTS_MAX,
    RETENTION_COUNT_MAX,
    SENDABLE_MAX_BYTES,
    SLOTS_MAX,
    KeepOutput,
    SandboxLevel,
    Scope,
)
from jobpool.core.rules.admission import OnFull
from jobpool.core.rules.limits import GROWTH_MAX
from jobpool.core.rules.quotas.definition import COUNT_MAX, parse_weight
from jobpool.core.rules.quotas.rate import parse_rate
from jobpool.core.units import duration_s, show_duration, show_size, size_bytes
from jobpool.errors import ConfigError

Reader = Callable[[Any, str], Any]
"""Reads a raw value; the text names the option in error messages."""


class Size(NamedTuple):
    """The range of a pool's size; fixed if the numbers are equal."""

    minimum: int
    maximum: int

    def __str__(self) -> str:
        """Format it as ``--pools`` takes it."""
        if self.minimum == self.maximum:
            return str(self.minimum)
        return f"{self.minimum}..{self.maximum}"


class Option(NamedTuple):
    """One option that can be set."""

    read: Reader
    show: Callable[[Any], str] = str


_RANGE = re.compile(r"(\d{1,9})(?:\.\.(\d{1,9}))?", re.ASCII)
_INTEGER = re.compile(r"\d{1,18}", re.ASCII)
_BITS_MAX = 128
_CORES = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?", re.ASCII)
_CORE_MAX = 8191
"""The kernel's own limit."""
_NICE_MAX = 19
_PROCESSES_MAX = 4_194_304
"""The kernel's own limit."""
_SHARE = re.compile(r"0?\.\d{1,6}", re.ASCII)
_VERSION = re.compile(r"[!-~]{1,64}", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def pool_size(value: Any, what: str) -> Size:
    """Read a pool's size: ``4`` or ``"2..8"``.

    Raises:
        ConfigError: not a number or range of numbers from 1 to 1024.
    """
    match = None
    if not isinstance(value, bool) and isinstance(value, (int, str)):
        text = value if isinstance(value, str) else _seen(value)
        match = _RANGE.fullmatch(text.strip())
    if not match:
        raise ConfigError(
            f"{what}: {_seen(value)} is not a size; expected a number of children "
            'such as 4, or a range such as "2..8"'
        )
    size = Size(int(match[1]), int(match[2] or match[1]))
    if not 1 <= size.minimum <= size.maximum <= SLOTS_MAX:
        raise ConfigError(
            f"{what}: {size} is out of range; expected 1 to {SLOTS_MAX} children, the "
            "smaller number first (leave a pool out to have none)"
        )
    return size


def _seen(value: Any) -> str:
    if isinstance(value, int) and value.bit_length() > _BITS_MAX:
        return "a number that long"
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"  # noqa: PLR2004 - one glance


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ConfigError(f"{what}: expected text, got {_seen(value)}")
    return value.strip()


def _whole(minimum: int, maximum: int) -> Reader:
    def read(value: Any, what: str) -> int:
        if isinstance(value, str) and _INTEGER.fullmatch(value.strip()):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ConfigError(f"{what}: expected a whole number, got {_seen(value)}")
        if not minimum <= value <= maximum:
            raise ConfigError(
                f"{what}: {_seen(value)} is out of range; expected {minimum} to "
                f"{maximum}"
            )
        return value

    return read


def _sendable(value: Any, what: str) -> int:
    size = size_bytes(value, what)
    if size > SENDABLE_MAX_BYTES:
        raise ConfigError(
            f"{what}: {show_size(size)} is out of range; expected at most "
            f"{show_size(SENDABLE_MAX_BYTES)}: keep larger data elsewhere, and pass a "
            "reference to it"
        )
    return size


def _flag(value: Any, what: str) -> bool:
    if value in ("true", "false"):
        return bool(value == "true")
    if not isinstance(value, bool):
        raise ConfigError(f"{what}: expected true or false, got {_seen(value)}")
    return value


def _version(value: Any, what: str) -> str:
    if not isinstance(value, str) or not _VERSION.fullmatch(value):
        raise ConfigError(
            f"{what}: expected 1 to 64 letters, digits or signs without spaces, such "
            f'as "2.3.1" or a commit, got {_seen(value)}'
        )
    return value


def _duration(value: Any, what: str) -> float:
    seconds = duration_s(value, what)
    if seconds == 0:
        raise ConfigError(f'{what}: must be longer than 0, for example "30s"')
    return seconds


def _or_none(read: Reader, word: str = "none") -> Reader:
    """Accept *word* too, as None."""

    def read_or_none(value: Any, what: str) -> Any:
        return None if value == word else read(value, what)

    return read_or_none


def _names(value: Any, what: str) -> tuple[str, ...] | None:
    if value == "all":
        return None
    good = isinstance(value, list) and all(
        isinstance(name, str) and _VARIABLE.fullmatch(name) for name in value
    )
    if not good:
        raise ConfigError(
            f'{what}: expected "all" or a list of names of environment variables, such '
            f'as ["PATH", "HOME"], got {_seen(value)}'
        )
    return tuple(value)


def growth_factor(value: Any, what: str) -> float:
    """Read a growth factor.

    Raises:
        ConfigError: not a number from 1 to 16.
    """
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 1 <= value <= GROWTH_MAX:
        raise ConfigError(
            f"{what}: expected a factor from 1 to {GROWTH_MAX:g}, such as 2, got "
            f"{_seen(value)}"
        )
    return float(value)


def soft_size(value: Any, what: str) -> float:
    """Read a soft memory limit: a size, or a share of the hard one such as 0.8.

    Returns:
        Bytes; below 1: the share.

    Raises:
        ConfigError: it is neither.
    """
    text = value.strip() if isinstance(value, str) else ""
    if (isinstance(value, float) and 0 < value < 1) or _SHARE.fullmatch(text):
        share = float(value)
        if share > 0:
            return share
    if isinstance(value, float):
        raise ConfigError(
            f'{what}: expected a size such as "400MiB", or a share of the memory limit '
            f"such as 0.8, got {_seen(value)}"
        )
    return float(size_bytes(value, what))


def _show_soft(value: float) -> str:
    return f"{value:g}" if value < 1 else show_size(int(value))


def _paths(value: Any, what: str) -> tuple[str, ...] | None:
    if value == "all":
        return None
    good = isinstance(value, list) and all(
        isinstance(path, str) and path.strip() and "\0" not in path for path in value
    )
    if not good:
        raise ConfigError(
            f'{what}: expected "all" or a list of paths, such as ["/srv/pictures"] or '
            f"[], got {_seen(value)}"
        )
    return tuple(value)


def _cores(value: Any, what: str) -> tuple[int, ...] | None:
    """Read ``"all"``, ``[0, 1]`` and ``"0-3,6"``."""
    if value == "all":
        return None
    found: set[int] = set()
    parts = value.split(",") if isinstance(value, str) else value
    good = isinstance(parts, list) and parts
    for part in parts if good else ():
        match = None if isinstance(part, bool) else _CORES.fullmatch(_seen_core(part))
        last = int(match[2] or match[1]) if match else -1
        if not match or not int(match[1]) <= last <= _CORE_MAX:
            good = False
            break
        found |= set(range(int(match[1]), last + 1))
    if not good:
        raise ConfigError(
            f'{what}: expected "all" or the numbers of cores, such as "0-3,6" or '
            f"[0, 1], got {_seen(value)}"
        )
    return tuple(sorted(found))


def _seen_core(part: Any) -> str:
    return part.strip() if isinstance(part, str) else _seen(part)


def _one_of(choices: type[StrEnum]) -> Reader:
    def read(value: Any, what: str) -> StrEnum:
        if value not in list(choices):
            raise ConfigError(
                f"{what}: expected one of {', '.join(choices)}, got {_seen(value)}"
            )
        return choices(value)

    return read


def _show_flag(value: bool) -> str:  # noqa: FBT001 - as every `show`
    return "true" if value else "false"


def _show_or(show: Callable[[Any], str], word: str) -> Callable[[Any], str]:
    return lambda value: word if value is None else show(value)


_DURATION = Option(_duration, show_duration)
_DURATION_OR_ZERO = Option(duration_s, show_duration)
_SIZE = Option(size_bytes, show_size)
_DURATION_OR_NONE = Option(_or_none(_duration), _show_or(show_duration, "none"))
_SIZE_OR_NONE = Option(_or_none(size_bytes), _show_or(show_size, "none"))
_KEPT = Option(_or_none(duration_s, "forever"), _show_or(show_duration, "forever"))
_TEXT = Option(_text)
_FLAG = Option(_flag, _show_flag)
_KEEP_OUTPUT = Option(_one_of(KeepOutput))
_BREAKER = Option(_whole(0, 10**6))
_PERMITS = Option(_whole(1, COUNT_MAX))
_RATE = Option(parse_rate)
_PATHS = Option(_paths, _show_or(lambda paths: ", ".join(paths) or "nowhere", "all"))

_DEPTH_MAX = 10**12
_DEPTH = Option(_whole(0, _DEPTH_MAX))

TOP: Mapping[str, Option] = {
    "store": _TEXT,
    "app": _TEXT,
    "app_version": Option(_or_none(_version, "auto"), _show_or(str, "auto")),
    "payload_max": Option(_sendable, show_size),
    "result_max": Option(_sendable, show_size),
    "queue_depth_max": Option(_whole(1, _DEPTH_MAX)),
    "memory_budget": _SIZE_OR_NONE,
    "app_timeout": _DURATION,
    "lease_ttl": _DURATION,
    "probation": _DURATION,
    "unknown_for": _DURATION,
}
"""Options at the top of a file."""

ALIAS = "queue_depth_max"
"""The former name of ``[admission] depth_max``."""
CLIENT = ("store", "payload_max", "result_max")
"""Those that clients use as well; see `settings.ClientSettings`."""

ADMISSION: Mapping[str, Option] = {
    "depth_max": TOP[ALIAS],
    "age_max": _DURATION_OR_NONE,
    "on_full": Option(_one_of(OnFull)),
}
"""Options of ``[admission]``, which clients use as well."""

BOUND: Mapping[str, Option] = {"depth_max": _DEPTH, "age_max": _DURATION}
"""How many jobs of a kind, a pool or a tenant may wait, and for how long."""

POOL: Mapping[str, Option] = {
    "size": Option(pool_size),
    "memory": _SIZE,
    "memory_max": _SIZE_OR_NONE,
    "memory_soft": Option(_or_none(soft_size), _show_or(_show_soft, "none")),
    "timeout": _DURATION,
    "timeout_max": _DURATION_OR_NONE,
    "soft_timeout": _DURATION_OR_NONE,
    "heartbeat_timeout": _DURATION_OR_NONE,
    "recycle": Option(_whole(1, 10**9)),
    "recycle_age": _DURATION,
    "recycle_growth": _SIZE,
    "drain": _DURATION_OR_ZERO,
    "preload": _FLAG,
    "sandbox": Option(_one_of(SandboxLevel)),
    "write": _PATHS,
    "read": _PATHS,
    "network": _FLAG,
    "new_privileges": _FLAG,
    "env": Option(_names, _show_or(", ".join, "all")),
    "nice": Option(_whole(0, _NICE_MAX)),
    "cpus": Option(_cores, _show_or(lambda cores: ",".join(map(str, cores)), "all")),
    "max_processes": Option(
        _or_none(_whole(16, _PROCESSES_MAX), "auto"), _show_or(str, "auto")
    ),
    "idle_shrink": _DURATION,
    "output_max": _SIZE,
    "keep_output": _KEEP_OUTPUT,
    "breaker_after": _BREAKER,
    "depth_max": Option(_or_none(_DEPTH.read), _show_or(str, "none")),
    "age_max": _DURATION_OR_NONE,
}
"""Options of ``[pools.NAME]``."""

KIND: Mapping[str, Option] = {
    "timeout": _DURATION,
    "soft_timeout": _DURATION,
    "memory": _SIZE,
    "memory_soft": Option(soft_size, _show_soft),
    "memory_growth": Option(growth_factor, "{:g}".format),
    "heartbeat_timeout": _DURATION,
    "max_attempts": Option(_whole(1, MAX_ATTEMPTS_MAX)),
    "max_crashes": Option(_whole(1, MAX_ATTEMPTS_MAX)),
    "breaker_after": _BREAKER,
    "keep_output": _KEEP_OUTPUT,
    "concurrency": _PERMITS,
    **BOUND,
}
"""Options of ``[kinds."NAME"]``; they override the decorator's."""

QUOTA: Mapping[str, Option] = {
    "rate": _RATE,
    "burst": _PERMITS,
    "concurrency": _PERMITS,
    "scope": Option(_one_of(Scope)),
    "wait": _DURATION_OR_ZERO,
    "throttle_max": _DURATION,
}
"""Options of ``[quotas.NAME]``; they override what the application declares."""

TENANT: Mapping[str, Option] = {
    "concurrency": _PERMITS,
    "rate": _RATE,
    "burst": _PERMITS,
    "weight": Option(parse_weight, "{:g}".format),
    **BOUND,
}
"""Options of ``[tenants.NAME]``."""

KEPT: Mapping[str, Option] = {
    "age": _KEPT,
    "count": Option(
        _or_none(_whole(1, RETENTION_COUNT_MAX)), _show_or("{:,}".format, "none")
    ),
}
"""Options of each state in ``[retention]``."""

RETENTION: Mapping[str, Mapping[str, Option]] = {
    **dict.fromkeys(("succeeded", "canceled", "dead", "quarantined"), KEPT),
    "audit": {"age": _KEPT},
    "outputs": {"size": _SIZE},
}
"""Options of ``[retention]``; a value by itself is the first of them."""

_IN_FILES_ONLY = {"size", "env", "write", "read", "cpus", *BOUND}
"""Not settable by variables: their values have commas, as the pools' grammar does; or
they would be taken for those of the whole queue."""

ENVIRONMENT: Mapping[str, str] = {
    **{f"JOBPOOL_{key.upper()}": key for key in TOP},
    **{f"JOBPOOL_{key.upper()}": key for key in POOL if key not in _IN_FILES_ONLY},
    "JOBPOOL_POOLS": "size",
}
"""Variables, and the option that each sets; options of `POOL` for every pool."""
