"""Supervisors of two releases on one store: the older does not know a feature.

An operator deploys the newer release: supervisors that start from then on run it. A
client asks for the feature. From the moment that it is in use the older supervisors
must neither be given jobs, nor ask for more once they know.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from msgspec.structs import replace

from jobpool.core.formats import FORMAT
from jobpool.errors import FeatureHeldBack, JobpoolError
from jobpool.store.records.runs import Run
from jobpool.supervisor.machine.shutdown import OUTDATED
from simulation.plan import Fault, Plan

if TYPE_CHECKING:
    from simulation.store import SimStore
    from simulation.world import World

NEWER = FORMAT + 1
SHARE = 0.06
"""Of the scenarios."""
GONE_S = 5.0
"""After so long without a lease a run does not count; really, a minute."""
ASK_EVERY_S = 2.0
REASONS = frozenset((OUTDATED, "the store refuses"))
"""For which one that is too old ends: while it runs; when it is started."""
AWAY_S = (15.0, 45.0)
"""How long a supervisor is cut off or stopped, after the end of its lease."""


class Versions:
    """Which release is deployed, and what the older one may still do."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._told: set[str] = set()
        """Runs that know that they are outdated."""
        self.deployed = FORMAT

    @property
    def are_mixed(self) -> bool:
        """Whether the newer release is ever deployed."""
        return any(fault.what == "upgrade" for fault in self._world.plan.faults)

    def upgrade(self) -> None:
        """Deploy the newer release."""
        self.deployed = NEWER

    def asks(self, store: SimStore, goes_on: Callable[[], bool]) -> Callable[[], None]:
        """Return what asks for the feature, until it is in use or the time is over."""
        sometimes = self._world.sometimes

        def ask() -> None:
            while goes_on():
                try:
                    store.require(NEWER)
                except FeatureHeldBack:
                    sometimes["a feature was held back"] += 1
                except JobpoolError:
                    sometimes["a wish was lost"] += 1
                else:
                    sometimes["a feature came into use"] += 1
                    return
                self._world.kernel.sleep(ASK_EVERY_S)

        return ask

    # -- what must hold ----------------------------------------------------------------

    def leased(self, run: Run, jobs: int) -> None:
        """A run has asked for jobs and got some, or none."""
        broken = self._world.history.broken
        if jobs and run.format < self._world.database.least_format:
            broken.append(f"{run.id} is too old and was given {jobs} jobs")
        if run.id in self._told:
            broken.append(f"{run.id} knows that it is outdated, and asks for jobs")

    def told(self, run_id: str) -> None:
        """The store's answer, that the run is outdated, has arrived."""
        self._told.add(run_id)

    def is_too_old(self, run: Run) -> bool:
        """Say whether a supervisor must not go on."""
        return run.format < self._world.database.least_format

    def may_end(self, reason: str) -> bool:
        """Say whether some supervisor may end for this reason."""
        is_in_use = self._world.database.least_format > FORMAT
        return is_in_use and reason in REASONS


def with_versions(plan: Plan) -> Plan:
    """Let a few scenarios have an upgrade, and a supervisor that misses it."""
    r = Random(f"{plan.seed} versions")
    if r.random() >= SHARE:
        return plan
    end_s, where = plan.quiet_at_s, r.randrange(60)
    if plan.shared:
        # One is cut off for long enough, and the other one upgraded meanwhile.
        plan = replace(plan, supervisors=2, hosts=2, ttl_s=5.0)
    away_s = plan.ttl_s * plan.shared + r.uniform(*AWAY_S)
    faults = (
        Fault(at_s=r.random() * end_s / 4, what="upgrade"),
        Fault(at_s=r.uniform(end_s / 4, end_s), what="require"),
        Fault(
            at_s=r.random() * end_s / 4,
            what=r.choice(("cut", "cut", "stop_supervisor")),
            where=where,
            seconds=away_s,
        ),
        Fault(at_s=r.uniform(end_s / 4, end_s / 2), what="drain", where=where + 1),
        *(
            Fault(at_s=r.random() * end_s, what="drain", where=r.randrange(60))
            for _ in range(r.choice((0, 0, 1, 3)))
        ),
    )
    return replace(plan, faults=(*plan.faults, *faults))
