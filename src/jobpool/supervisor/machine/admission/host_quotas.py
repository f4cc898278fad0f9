"""The gate of quotas that each supervisor counts alone: ``scope="host"``.

What only this host knows, such as a scratch disk or a graphics card, needs no query: a
kind is held while one of its quotas has no room. All of a job's host quotas are taken
at once or none, when its turn comes, and given back with its settlement. A job that is
refused goes back with whatever else it holds; nothing is held while it waits.
"""

from __future__ import annotations

from collections.abc import Sequence

from jobpool.core.jobs.job import Lease, Settlement
from jobpool.core.rules.quotas.definition import Need
from jobpool.supervisor.machine.admission.gate import Gate
from jobpool.supervisor.machine.state.places import Places
from jobpool.supervisor.machine.state.slot import Assigned, Slot
from jobpool.supervisor.machine.state.step import Step


class HostQuotas(Gate):
    """The gate that keeps the caps of this host.

    Args:
        step: shared by all parts of the machine.
        places: who holds what; requests of running handlers count as well.
    """

    cause = "quota"
    sorts_out = True

    def __init__(self, step: Step, places: Places) -> None:
        self._step = step
        self._places = places
        self._passed_over: set[str] = set()
        """Kinds of which jobs may wait because they were held at the last check."""
        step.on_settle.append(self._settled)

    @property
    def is_open(self) -> bool:
        """Whether no kind needs any such quota."""
        registry = self._step.registry
        return registry is None or not registry.host_needs

    @property
    def needs_ends(self) -> bool:
        """Whether the end of an attempt gives anything back."""
        return bool(self._places)

    def admit(self, job: Assigned) -> str | None:
        """Take what a job needs, if there is room for all of it."""
        places, token = self._places, job.lease.token
        needs = self._needs(job.lease.kind)
        wanted = [need for need in needs if not places.holds(token, need.quota)]
        for need in wanted:
            if not places.has_room(need.quota, need.cost):
                self._passed_over.add(job.lease.kind)
                return f"quota {need.quota} is used up on this host"
        for need in wanted:
            places.take(token, need.quota, need.cost)
        return None

    def admits_behind(self, job: Assigned, slot: Slot) -> bool:
        """Send none ahead: it would hold what it does not use yet."""
        del slot
        return not self._needs(job.lease.kind)

    def held(self) -> frozenset[str]:
        """Return the kinds for which there is no room now."""
        registry = self._step.registry
        if registry is None:
            return frozenset()
        held = {
            kind for kind, needs in registry.host_needs.items() if self._is_full(needs)
        }
        self._passed_over |= held
        return frozenset(held)

    def keep_time(self) -> None:
        """Try again what was passed over, once there is room."""
        free = {k for k in self._passed_over if not self._is_full(self._needs(k))}
        if free:
            self._passed_over -= free
            self._step.recheck = True

    def _is_full(self, needs: Sequence[Need]) -> bool:
        return not all(self._places.has_room(one.quota, one.cost) for one in needs)

    def _needs(self, kind: str) -> Sequence[Need]:
        registry = self._step.registry
        return () if registry is None else registry.host_needs.get(kind, ())

    def _settled(self, lease: Lease, settlement: Settlement) -> None:
        del settlement
        if self._places.end(lease.token):
            self._step.wake_at(self._step.now_s)
