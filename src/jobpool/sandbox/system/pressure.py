"""What the kernel tells of a host: who waits for what, and whether it swaps."""

from __future__ import annotations

from pathlib import Path

from jobpool.sandbox.system.reserve_fds import with_reserve

_PRESSURE = "/proc/pressure"
_VMSTAT = "/proc/vmstat"
_SWAPPED = {"pswpin", "pswpout"}


def some_avg10(resource: str) -> float | None:
    """Return the share of the last 10 s in which some program waited, in percent.

    Args:
        resource: "cpu", "memory" or "io".

    Returns:
        None: this kernel does not tell (it is older than 4.20, or told not to).
    """
    try:
        text = with_reserve(_text, f"{_PRESSURE}/{resource}")
    except OSError:
        return None
    return _avg10(text)


def _avg10(text: str) -> float | None:
    """Read ``some avg10=1.23 avg60=…``; None: it is not that."""
    name, _, value = text.partition("avg10=")
    if name.strip() != "some":
        return None
    try:
        return float(value.split(maxsplit=1)[0])
    except (IndexError, ValueError):
        return None


def swapped_pages() -> int:
    """Return how many pages have gone to swap or come from there since the boot.

    Raises:
        OSError: no descriptor is left to read with, not even a reserved one.
    """
    try:
        lines = with_reserve(_text, _VMSTAT).splitlines()
    except (FileNotFoundError, PermissionError):
        return 0
    pairs = (line.split() for line in lines)
    return sum(int(pair[1]) for pair in pairs if pair[0] in _SWAPPED)


def _text(path: str) -> str:
    return Path(path).read_text()
