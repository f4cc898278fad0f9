"""Gates: may this job begin now, and if not, why?

Theory of operation. A leased job passes every gate before it begins. The dispatcher
asks them in one pass over a pool's backlog: first those that sort out, then the others,
each group in the order of the tuple. The first refusal decides, and later gates are not
asked. So a gate sees only jobs that the gates before it have admitted.

A gate knows this host alone, and of a job what its lease says, never its arguments. A
limit over several hosts is decided in the statement that leases: a gate that refused
such jobs would get the same ones back with the next lease.

There are two ways to refuse. A gate that sorts out (`sorts_out`) refuses jobs of a
kind anywhere in the backlog: they go back to the store at the end of the pass, others
overtake them, and `held` keeps the store from sending more. Any other gate makes the
first job wait, and its pool with it; the job goes back once it has waited too long
(`keeps`).

`admit` may be asked again about the same job, and answers the same unless something has
changed. A gate with a limited number of places keeps one for each job that it admits,
by the job's token, until the job is settled (`Step.on_settle`), which includes being
handed back. Plain successes are not reported to it (`fast_path`), unless it asks for
them (`needs_ends`).

Nothing polls: a gate whose answer may change sets a wake-up for that moment
(`keep_time`), and names the pools to try (`pools_to_try`), or has all pools tried and
the store asked (`Step.recheck`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Protocol

from jobpool.supervisor.machine.state.pool import Pool
from jobpool.supervisor.machine.state.slot import Assigned, Slot


class Gate(Protocol):
    """One reason why a job may have to wait; each gate is a subclass.

    It says what it admits, and overrides of the rest what it needs.
    """

    cause: str
    """One word for what its jobs wait for: `status` has it."""
    sorts_out: bool = False
    """It refuses jobs anywhere in the backlog; they go back. Else the first waits."""

    @property
    def is_open(self) -> bool:
        """Whether it admits every job now, and need not be asked."""
        return False

    @property
    def needs_ends(self) -> bool:
        """Whether `Step.on_settle` must report plain successes too, for now."""
        return False

    @abstractmethod
    def admit(self, job: Assigned) -> str | None:
        """Return why a job may not begin now, in the words of `show`; None: it may."""

    def admits_behind(self, job: Assigned, slot: Slot) -> bool:
        """Say whether a waiting job may be sent ahead, behind what a slot runs."""
        del job, slot
        return True

    def begun(self) -> None:
        """A job that every gate has admitted was assigned to a slot."""
        return

    def keeps(self, job: Assigned) -> bool:
        """Say whether the first job waits for this gate and may go on waiting."""
        del job
        return False

    def emptied(self, pool: Pool) -> None:
        """A pool's backlog has become empty."""
        del pool

    def held(self) -> frozenset[str]:
        """Return the kinds that are not to be leased now."""
        return frozenset()

    def shuts(self, pool: Pool) -> bool:
        """Say whether nothing at all is to be leased for a pool now."""
        del pool
        return False

    def pools_to_try(self) -> list[str]:
        """Return the pools whose first job it may admit by now."""
        return []

    def keep_time(self) -> None:
        """Do what is due, and set the wake-up for what is due next."""
        return


def what_shuts(gates: Iterable[Gate], pool: Pool) -> str:
    """Return what keeps everything of a pool from beginning; "": nothing does."""
    return next((gate.cause for gate in gates if gate.shuts(pool)), "")
