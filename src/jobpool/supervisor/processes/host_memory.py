"""Looks at the host's memory while attempts run, more often the less is left.

The machine hears of each look while there is little, and of the first one when there is
enough again: `machine.admission.host_memory` decides. Else it hears of one a second, so
that `machine.admission.memory` knows what there is to spare. While nothing runs, nobody
looks.
"""

from __future__ import annotations

from collections.abc import Callable

from jobpool.sandbox.cgroups.memory_left import Left
from jobpool.sandbox.metering.sampling import next_sample_s
from jobpool.sandbox.system.procfs import EXHAUSTED
from jobpool.supervisor.machine.admission.host_memory import (
    LEAST_SHARE,
    PRESSURE_FROM,
    is_short,
    reserve_bytes,
)
from jobpool.supervisor.machine.inputs import HostMemorySeen
from jobpool.supervisor.machine.state.slot import NEVER_S

TELL_EVERY_S = 1.0


def scarcity(left: Left) -> tuple[float, int]:
    """Order what the host and cgroups have left, the scarcest first.

    By the share of its own reserve, where that is near: a host may be short of memory
    while a small container in it has even less left, and is not.
    """
    reserve = max(1, reserve_bytes(left.total_bytes))
    return min(left.available_bytes / reserve, PRESSURE_FROM), left.available_bytes


class HostMemory:
    """The host's memory, as far as attempts need it.

    Args:
        look: returns what is left.
        pressure: returns for how much of the time programs wait for memory.
        is_busy: says whether an attempt runs.
        report: gets what the machine is to hear.
    """

    def __init__(
        self,
        look: Callable[[], Left],
        pressure: Callable[[], float | None],
        *,
        is_busy: Callable[[], bool],
        report: Callable[[HostMemorySeen], None],
    ) -> None:
        self._look = look
        self._pressure = pressure
        self._is_busy = is_busy
        self._report = report
        self._is_short = False
        self._tell_s = 0.0
        """When the machine is to hear of it, however much is left."""
        self.next_s = NEVER_S
        """When it looks next; infinity: once an attempt begins."""

    def begin(self, now_s: float) -> None:
        """An attempt begins."""
        if self.next_s == NEVER_S:
            self.next_s = now_s

    def check(self, now_s: float) -> None:
        """Look, if that is due."""
        if now_s < self.next_s:
            return
        if not self._is_busy():
            self.next_s = NEVER_S
            return
        try:
            left = self._look()
        except OSError as exc:
            if exc.errno not in EXHAUSTED:
                raise
            self.next_s = now_s + next_sample_s(0, 0)
            return
        reserve = reserve_bytes(left.total_bytes)
        is_near = left.available_bytes < PRESSURE_FROM * reserve
        pressure = self._pressure() if is_near else None
        seen = HostMemorySeen(left.available_bytes, left.total_bytes, pressure)
        was_short = self._is_short
        self._is_short = is_short(seen, was_short=was_short)
        if self._is_short or was_short or now_s >= self._tell_s:
            self._tell_s = now_s + TELL_EVERY_S
            self._report(seen)
        headroom = left.available_bytes - int(LEAST_SHARE * reserve)
        self.next_s = now_s + next_sample_s(0, headroom)
