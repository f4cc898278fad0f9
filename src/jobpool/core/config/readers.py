"""Readers of options: each checks a raw value, and says what was expected.

A reader gets the value as written and the option's name, for the error message.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from jobpool.core.config.settings import SENDABLE_MAX_BYTES, SLOTS_MAX, Address
from jobpool.core.rules.limits import GROWTH_MAX
from jobpool.core.units import duration_s, show_size, size_bytes
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


_TRACE_ID = "{trace_id}"
_RANGE = re.compile(r"(\d{1,9})(?:\.\.(\d{1,9}))?", re.ASCII)
_INTEGER = re.compile(r"\d{1,18}", re.ASCII)
_BITS_MAX = 128
_CORES = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?", re.ASCII)
_CORE_MAX = 8191
"""The kernel's own limit."""
NICE_MAX = 19
PROCESSES_MAX = 4_194_304
"""The kernel's own limit."""
PORT_MAX = 65535
_ADDRESS = re.compile(
    r"(?:\[([0-9a-fA-F:.]+)\]|([0-9.]+|localhost)):(\d{1,5})", re.ASCII
)
_URL = re.compile(
    r"https?://(?:[A-Za-z0-9._-]+|\[[0-9a-fA-F:.]+\])(:(\d{1,5}))?(?:[/?][!-\"$-~]*)?",
    re.ASCII,
)
_URL_MAX = 2000
_DSN = re.compile(
    r"https?://\w{1,128}(?::\w{1,128})?@[A-Za-z0-9.:\[\]-]{1,255}(?:/[\w.-]+)*/\d{1,20}",
    re.ASCII,
)
DSN_OF_ENVIRONMENT = "environment"
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)", re.ASCII)
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


def address(value: Any, what: str) -> Address:
    """Read where a server listens: ``127.0.0.1:9464``, ``[::]:9464``.

    Raises:
        ConfigError: not an address of this machine with a port.
    """
    match = _ADDRESS.fullmatch(value.strip()) if isinstance(value, str) else None
    host = (match[1] or match[2]) if match else ""
    port = int(match[3]) if match else -1
    try:
        ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        port = -1
    if not 0 <= port <= PORT_MAX:
        raise ConfigError(
            f"{what}: {_seen(value)} is not an address to listen on; expected an IP "
            'address and a port, such as "127.0.0.1:9464", or "0.0.0.0:9464" for all '
            "networks of this machine"
        )
    return Address(host, port)


def http_url(value: Any, what: str) -> str:
    """Read where spans are sent: ``http://127.0.0.1:4318``.

    Raises:
        ConfigError: not an http URL with a host, or it holds a password.
    """
    try:
        url = urlsplit(value.strip() if isinstance(value, str) else "")
        good = url.scheme in {"http", "https"} and bool(url.hostname)
        good = good and url.port != 0 and not (url.query or url.fragment)
    except ValueError:
        good = False
    if not good:
        raise ConfigError(
            f"{what}: {_seen(value)} is not where spans can be sent; expected an http "
            'or https URL, such as "http://127.0.0.1:4318"'
        )
    if "@" in url.netloc:
        raise ConfigError(
            f"{what}: the URL has a name or password in it, which would be shown; "
            "leave it out, and set OTEL_EXPORTER_OTLP_HEADERS in the environment"
        )
    return url.geturl().rstrip("/")


def trace_link(value: Any, what: str) -> str:
    """Read where people look at a trace: ``https://tempo.example.com/{trace_id}``.

    Raises:
        ConfigError: not a URL of a web server, or without a place for the trace's id.
    """
    found = value.strip() if isinstance(value, str) else ""
    try:
        parts = urlsplit(found)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        good = False
    good = good and found.isprintable() and len(found) <= _URL_MAX
    good = good and _TRACE_ID in found
    if not good or _TRACE_ID in parts.netloc:
        raise ConfigError(
            f"{what}: {_seen(value)} is not where a trace can be looked at; expected "
            f'an http or https URL, such as "https://tempo.example.com/{_TRACE_ID}"'
        )
    if "@" in parts.netloc:
        raise ConfigError(
            f"{what}: the URL has a name or password in it, which would be shown; "
            "leave it out"
        )
    return found


def url(value: Any, what: str) -> str:
    """Read where something is sent: ``https://hooks.example.com/jobpool``.

    Raises:
        ConfigError: not a URL of a web server, or it has a password.
    """
    match = _URL.fullmatch(value.strip()) if isinstance(value, str) else None
    port = int(match[2] or 1) if match else 0
    if match is None or not 1 <= port <= PORT_MAX or len(match[0]) > _URL_MAX:
        raise ConfigError(
            f"{what}: expected the URL of a web server, such as "
            '"https://hooks.example.com/jobpool", without a name and password, spaces '
            "or a #fragment"
        )
    return match[0]


def show_url(value: str) -> str:
    """Format what `url` reads, without its path: that is often a secret."""
    scheme, _, rest = value.partition("://")
    host, slash, _ = rest.partition("/")
    host, mark, _ = host.partition("?")
    return f"{scheme}://{host}{'/…' if slash or mark else ''}"


def dsn(value: Any, what: str) -> str:
    """Read where errors are reported: ``https://KEY@o1.ingest.sentry.io/42``.

    Raises:
        ConfigError: it is no DSN of Sentry, nor the word for the environment's.
    """
    text = value.strip() if isinstance(value, str) else ""
    if text != DSN_OF_ENVIRONMENT and _DSN.fullmatch(text) is None:
        raise ConfigError(
            f"{what}: expected a project's DSN, such as "
            f'"https://KEY@o1.ingest.sentry.io/42", or "{DSN_OF_ENVIRONMENT}": what '
            "the variable SENTRY_DSN has"
        )
    return text


def show_dsn(value: str) -> str:
    """Format what `dsn` reads, without its key."""
    scheme, _, rest = value.partition("://")
    return f"{scheme}://…@{rest.rpartition('@')[2]}" if rest else value


def argv(value: Any, what: str) -> tuple[str, ...]:
    """Read a program with its arguments: no shell reads them."""
    good = (
        isinstance(value, list)
        and value
        and all(isinstance(word, str) and "\0" not in word for word in value)
    )
    if not good or not value[0].strip():
        raise ConfigError(
            f"{what}: expected a list of a program and its arguments, such as "
            f'["/usr/local/bin/page", "--team", "shop"], got {_seen(value)}'
        )
    return tuple(value)


def show_argv(words: tuple[str, ...]) -> str:
    """Format what `argv` reads, without arguments: these are often secrets."""
    return f"{words[0]} …" if words[1:] else words[0]


def by_name(kinds: tuple[type, ...], expected: str) -> Reader:
    """Return a reader of a table whose values have one of some types.

    Args:
        kinds: the types.
        expected: what is expected, in words.
    """

    def read(value: Any, what: str) -> dict[str, Any]:
        good = isinstance(value, dict) and all(
            isinstance(one, kinds) and not isinstance(one, bool)
            for one in value.values()
        )
        if not good:
            raise ConfigError(f"{what}: expected {expected}, got {_seen(value)}")
        return dict(value)

    return read


def show_by_name(value: dict[str, Any]) -> str:
    """Format what `by_name` reads."""
    return ", ".join(f"{name}={one}" for name, one in value.items()) or "none"


def time_of_day(value: Any, what: str) -> int:
    """Read a time of day in UTC, ``08:30``, as minutes."""
    match = _TIME.fullmatch(value.strip()) if isinstance(value, str) else None
    if not match:
        raise ConfigError(
            f'{what}: expected a time of day in UTC, such as "08:00", got '
            f"{_seen(value)}"
        )
    return int(match[1]) * 60 + int(match[2])


def show_time_of_day(value: int) -> str:
    """Format what `time_of_day` reads."""
    return f"{value // 60:02}:{value % 60:02}"


def share(value: Any, what: str) -> float:
    """Read a share of a whole.

    Raises:
        ConfigError: not a number from 0 to 1.
    """
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= 1:
        raise ConfigError(
            f"{what}: expected a share from 0 to 1, such as 0.01, got {_seen(value)}"
        )
    return float(value)


def text(value: Any, what: str) -> str:
    """Read text that is not empty."""
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ConfigError(f"{what}: expected text, got {_seen(value)}")
    return value.strip()


def whole(minimum: int, maximum: int) -> Reader:
    """Return a reader of whole numbers of a range."""

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


def sendable(value: Any, what: str) -> int:
    """Read the most bytes that are sent in one frame."""
    size = size_bytes(value, what)
    if size > SENDABLE_MAX_BYTES:
        raise ConfigError(
            f"{what}: {show_size(size)} is out of range; expected at most "
            f"{show_size(SENDABLE_MAX_BYTES)}: keep larger data elsewhere, and pass a "
            "reference to it"
        )
    return size


def flag(value: Any, what: str) -> bool:
    """Read true or false."""
    if value in ("true", "false"):
        return bool(value == "true")
    if not isinstance(value, bool):
        raise ConfigError(f"{what}: expected true or false, got {_seen(value)}")
    return value


def version(value: Any, what: str) -> str:
    """Read an application's version."""
    if not isinstance(value, str) or not _VERSION.fullmatch(value):
        raise ConfigError(
            f"{what}: expected 1 to 64 letters, digits or signs without spaces, such "
            f'as "2.3.1" or a commit, got {_seen(value)}'
        )
    return value


def duration(value: Any, what: str) -> float:
    """Read a time that is not zero."""
    seconds = duration_s(value, what)
    if seconds == 0:
        raise ConfigError(f'{what}: must be longer than 0, for example "30s"')
    return seconds


def or_none(read: Reader, word: str = "none") -> Reader:
    """Return a reader that also takes a word for "there is none"."""
    """Accept *word* too, as None."""

    def read_or_none(value: Any, what: str) -> Any:
        return None if value == word else read(value, what)

    return read_or_none


def names(value: Any, what: str) -> tuple[str, ...] | None:
    """Read names of variables; None: all."""
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


def show_soft(value: float) -> str:
    """Format what `soft_size` reads."""
    return f"{value:g}" if value < 1 else show_size(int(value))


def paths(value: Any, what: str) -> tuple[str, ...] | None:
    """Read paths; None: all."""
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


def cores(value: Any, what: str) -> tuple[int, ...] | None:
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


def one_of(choices: type[StrEnum]) -> Reader:
    """Return a reader of one of some words."""

    def read(value: Any, what: str) -> StrEnum:
        if value not in list(choices):
            raise ConfigError(
                f"{what}: expected one of {', '.join(choices)}, got {_seen(value)}"
            )
        return choices(value)

    return read


def show_flag(value: bool) -> str:  # noqa: FBT001 - as every `show`
    """Format what `flag` reads."""
    return "true" if value else "false"


def show_or(show: Callable[[Any], str], word: str) -> Callable[[Any], str]:
    """Return a formatter that has a word for "there is none"."""
    return lambda value: word if value is None else show(value)
