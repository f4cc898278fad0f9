"""Handlers that complete their jobs themselves, in transactions of their own.

Theory of operation. A handler writes `complete` on its own connection: the store checks
its token, and from then on the transaction holds the job. Later it commits, or does
not. Both are modelled here as instantaneous events; the supervisors' reactions are
real. A commit is remembered, as a database does by `completed_token`: a supervisor that
settles such an attempt is told that its completion stands.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from jobpool.core.jobs.job import JobState, Settlement
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.admission import Admission
from jobpool.sandbox.protocol.messages import RunJob
from jobpool.store.memory.store import MemoryStore
from jobpool.store.memory.tables.rows import Held
from support.store.history import Settled

if TYPE_CHECKING:
    from simulation.host import Host, Tree
    from simulation.world import World

ENDED_AFTER_S = 0.1
"""The server ends a transaction whose host sleeps, and with it the hold on its job."""


class _HandlersStore(MemoryStore):
    """What a handler writes: permits stay until its supervisor has settled."""

    def _end_permits(self, token: int, *, unbegun: bool = False) -> None:
        del token, unbegun


class Completions:
    """The handlers' own transactions on the store."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._database = world.database
        self._standing: set[tuple[int, int]] = set()
        """Jobs, and the tokens under which they were completed."""
        self._open: dict[int, float] = {}
        """Until when a transaction holds a job."""
        self.on_next: Callable[[Host], None] | None = None
        """What happens, once, to a host whose handler is about to complete its job."""

    def come(self, host: Host) -> None:
        """A handler of a host is about to complete its job."""
        act, self.on_next = self.on_next, None
        if act is not None:
            act(host)

    def stands(self, job: int, token: int) -> bool:
        """Say whether an attempt has completed its job."""
        return (job, token) in self._standing

    def holds(self, job: int) -> bool:
        """Say whether a handler's open transaction holds a job."""
        return self._open.get(job, 0.0) > self._world.kernel.now_s

    def write(self, tree: Tree, frame: RunJob, open_s: float) -> bool:
        """Complete an attempt's job, in a transaction that stays open for so long.

        Returns:
            Whether its token is the job's; else it is superseded.
        """
        held = self._held(frame)
        if held is None:
            self._world.sometimes["a completion was superseded"] += 1
            self._note(tree, frame, None, receipt="superseded")
            return False
        self._open[frame.id] = self._world.kernel.now_s + open_s
        return True

    def commit(self, tree: Tree, frame: RunJob) -> bool:
        """Commit what `write` has written; say whether the handler learns of it."""
        world = self._world
        is_cut = any(
            s.name == tree.run.name and s.link.cut_until_s > world.kernel.now_s
            for s in world.supervisors
        )
        until_s = self._open.pop(frame.id)
        if is_cut and world.random.random() < 0.5:
            return False
        if world.kernel.now_s > until_s + ENDED_AFTER_S:
            world.sometimes["a completion came too late for its transaction"] += 1
            return False
        row = self._database.jobs.get(frame.id)
        held = None if row is None else row.held
        store = _HandlersStore(
            self._database,
            clock=world.store_clock(tree.run.host),
            admission=Admission(depth_max=0),
            run_root=Path(),
        )
        store.settle([_success(frame.id, 0 if held is None else held.token)])
        self._standing.add((frame.id, frame.token))
        self._note(tree, frame, held, receipt="accepted")
        return not is_cut

    def _held(self, frame: RunJob) -> Held | None:
        """Return the job's lease if it is the attempt's."""
        row = self._database.jobs.get(frame.id)
        held = None if row is None else row.held
        return held if held is not None and held.token == frame.token else None

    def _note(
        self, tree: Tree, frame: RunJob, held: Held | None, *, receipt: str
    ) -> None:
        world = self._world
        row = self._database.jobs.get(frame.id)
        world.note(
            Settled(
                at_s=world.kernel.now_s,
                by=tree.run.name,
                job=frame.id,
                token=frame.token,
                receipt=receipt,
                outcome="succeeded",
                state="" if row is None else row.state.value,
                changed=receipt == "accepted",
                holder="" if held is None else held.run_id,
                store_ms=world.store_clock(tree.run.host).utc_ms(),
                by_itself=True,
            )
        )


def _success(job: int, token: int) -> Settlement:
    return Settlement(
        id=job, token=token, state=JobState.SUCCEEDED, outcome=Outcome.SUCCEEDED
    )
