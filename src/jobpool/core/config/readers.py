"""Readers of options: each checks a raw value, and says what was expected.

A reader gets the value as written and the option's name, for the error message.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple

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
