"""What a host has of memory and processors, as the kernel tells.

Source: proc_meminfo(5), proc_stat(5).
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from jobpool.sandbox.system.reserve_fds import with_reserve

_MEMINFO, _STAT = "/proc/meminfo", "/proc/stat"
_KIB = 1024
_COUNTED = 8
"""Times in the first line of `_STAT`: those after are contained in others."""
_IDLE, _IO_WAIT = 3, 4


class Memory(NamedTuple):
    """A host's memory, in bytes."""

    total: int
    available: int
    """Can be taken without anything going to swap."""
    swap_used: int


def memory() -> Memory:
    """Return the host's memory now.

    Raises:
        OSError: no descriptor is left to read with, not even a reserved one.
    """
    lines = (line.split() for line in with_reserve(_text, _MEMINFO).splitlines())
    kib = {words[0]: int(words[1]) for words in lines}
    return Memory(
        total=_KIB * kib["MemTotal:"],
        available=_KIB * kib.get("MemAvailable:", kib["MemFree:"]),
        swap_used=_KIB * (kib.get("SwapTotal:", 0) - kib.get("SwapFree:", 0)),
    )


class Processors:
    """How busy the host's processors have been since the last call.

    Raises:
        OSError: no descriptor is left to read with, not even a reserved one.
    """

    def __init__(self) -> None:
        self._before = _times()

    def busy(self) -> float:
        """Return the share of the time in which they worked, of all together.

        Raises:
            OSError: no descriptor is left to read with, not even a reserved one.
        """
        before, now = self._before, _times()
        self._before = now
        passed = [max(0, b - a) for a, b in zip(before, now, strict=True)]
        whole = sum(passed)
        return 1 - (passed[_IDLE] + passed[_IO_WAIT]) / whole if whole else 0.0


def _times() -> list[int]:
    """Return the ticks that all processors have spent, by what they did."""
    words = with_reserve(_text, _STAT).partition("\n")[0].split()
    return [int(word) for word in words[1 : 1 + _COUNTED]]


def _text(path: str) -> str:
    return Path(path).read_text()
