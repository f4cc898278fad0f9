"""Reports: what the supervisor tells the store of itself, when that has changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from jobpool.core.events.figures import SupervisorFigures
from jobpool.core.rules.run_report import KindReport, PoolReport, RunReport
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.admission.gate import Gate, what_shuts
from jobpool.supervisor.machine.admission.memory import MemoryGate
from jobpool.supervisor.machine.state.pool import Pool
from jobpool.supervisor.machine.state.recent_ends import SLOT_S, RecentEnds
from jobpool.supervisor.machine.state.step import Step

EARLY_S = 0.5
"""Looks at the host come at their own pace."""


class Reports:
    """Makes the reports.

    Args:
        step: shared by all parts of the machine.
        pools: by name.
        gates: may keep jobs from beginning.
        ends: how attempts have ended lately.
        memory: knows how many slots can be used at once.
    """

    def __init__(
        self,
        step: Step,
        pools: Mapping[str, Pool],
        gates: Sequence[Gate],
        ends: RecentEnds,
        memory: MemoryGate,
    ) -> None:
        self._step = step
        self._pools = pools
        self._gates = gates
        self._ends = ends
        self._memory = memory
        self._next_s = 0.0
        self._last: RunReport | None = None

    def host_seen(self, event: inp.HostSeen) -> None:
        """Report, if it is time and there is anything new."""
        now_s = self._step.now_s
        if now_s < self._next_s:
            return
        self._next_s = now_s + SLOT_S - EARLY_S
        report = self._report_of(event)
        if self._step.counts:
            self._step.report(self._figures(report))
        if report.differs(self._last):
            self._last = report
            self._step.out.append(cmd.Report(report))

    def _report_of(self, event: inp.HostSeen) -> RunReport:
        registry = self._step.registry
        return RunReport(
            pools={name: self._pool(pool) for name, pool in self._pools.items()},
            kinds=self._kinds(),
            host=event.host,
            store=event.store,
            memory=self._memory.report(),
            fixed_memory=() if registry is None else registry.fixed_memory(),
        )

    def _figures(self, report: RunReport) -> SupervisorFigures:
        step = self._step
        granted_s, registry = step.granted_s, step.registry
        return SupervisorFigures(
            at_ms=step.now_ms,
            report=report,
            kinds=dict(registry.kinds) if registry is not None else {},
            kills=dict(step.kills),
            since_lease_s=None if granted_s is None else step.now_s - granted_s,
        )

    def _pool(self, pool: Pool) -> PoolReport:
        limits = pool.settings.limits
        return PoolReport(
            size=pool.size,
            busy=pool.busy,
            wanted=max(pool.wanted, pool.size),
            why=pool.why,
            holds=what_shuts(self._gates, pool),
            own_import=pool.own_import,
            memory_max_bytes=limits.memory_max_bytes or limits.memory_growth_max_bytes,
        )

    def _kinds(self) -> dict[str, KindReport]:
        kinds = self._ends.turn()
        for kind, cause in _held(self._gates):
            kinds[kind] = msgspec.structs.replace(
                kinds.get(kind, KindReport()), holds=cause
            )
        return kinds


def _held(gates: Iterable[Gate]) -> Iterable[tuple[str, str]]:
    """Yield the kinds that may not begin here, each with the cause."""
    return ((kind, gate.cause) for gate in gates for kind in sorted(gate.held()))
