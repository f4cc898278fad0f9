"""What the kernel tells of a host: who waits for what, and whether it swaps."""

from __future__ import annotations

from pathlib import Path

_PRESSURE = Path("/proc/pressure")
_VMSTAT = Path("/proc/vmstat")
_SWAPPED = {"pswpin", "pswpout"}


def some_avg10(resource: str) -> float | None:
    """Return the share of the last 10 s in which some program waited, in percent.

    Args:
        resource: "cpu", "memory" or "io".

    Returns:
        None: this kernel does not tell (it is older than 4.20, or told not to).
    """
    try:
        text = (_PRESSURE / resource).read_text()
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
    """Return how many pages have gone to swap or come from there since the boot."""
    try:
        lines = _VMSTAT.read_text().splitlines()
    except OSError:
        return 0
    pairs = (line.split() for line in lines)
    return sum(int(pair[1]) for pair in pairs if pair[0] in _SWAPPED)
