"""What is wrong with flows in a history.

Theory of operation. A plain account of each flow is told how members have ended, in
order, and nothing of steps: what it says is held against each grant of a member, and
against the flow as it stands at the end.
"""

from __future__ import annotations

from collections.abc import Iterator

from jobpool.core.jobs.flow import Hook
from support.store.flow_account import SEEN, Account
from support.store.history import (
    Approved,
    Dropped,
    Expired,
    FinalFlow,
    FlowCanceled,
    FlowStored,
    Granted,
    History,
    Operated,
    Record,
    Settled,
)

GOOD = "succeeded"
ENDS = frozenset((GOOD, "dead", "quarantined", "canceled"))
OVER = frozenset(("done", "skipped"))
FITTING = {
    "succeeded": (Hook.SUCCESS, Hook.FINISH),
    "failed": (Hook.FAILURE, Hook.FINISH),
    "canceled": (Hook.FAILURE, Hook.FINISH),
}
"""The hooks that begin at each end of a flow."""


def wrong_flows(history: History) -> Iterator[tuple[int, str]]:
    """Yield the job, or 0, and what is wrong with its flow."""
    books: dict[int, _Book] = {}
    of_job: dict[int, _Book] = {}
    for record in history.records:
        if type(record) is FlowStored:
            book = books[record.flow] = _Book(record)
            of_job |= dict.fromkeys(book.number_of, book)
        elif type(record) is FlowCanceled:
            books[record.flow].is_canceled = True
        elif books and (book := of_job.get(getattr(record, "job", 0))) is not None:
            if type(record) is Granted:
                yield from book.granted(record.job)
            else:
                book.told(record)
    for final in history.flows:
        yield from books[final.flow].at_the_end(final, is_quiet=history.quiet)


class _Book:
    """One flow."""

    def __init__(self, stored: FlowStored) -> None:
        self.declared = stored.declared
        self.number_of = {
            job: number for number, jobs in enumerate(stored.members) for job in jobs
        }
        self.account = Account(stored.declared, [len(jobs) for jobs in stored.members])
        self.is_canceled = False
        self._ended: set[int] = set()
        self._dropped: set[int] = set()

    def granted(self, job: int) -> Iterator[tuple[int, str]]:
        """Yield what is wrong with a member that begins."""
        number = self.number_of[job]
        if self.declared.steps[number].hook is None:
            if not self.account.may_begin(number):
                before = self.declared.steps[number].after
                seen = [(n, self.account.outcome(n), str(when)) for n, when in before]
                yield job, f"of step {number}, it begins early: {seen}"
        elif left := [job for job in self._plain() if job not in self._ended]:
            yield job, f"a hook, it begins before jobs {left} have ended"

    def told(self, record: Record) -> None:
        """Take down how a member has ended, if this says so; the first end counts."""
        is_good = _is_good(record)
        job: int = record.job  # type: ignore[attr-defined]
        if is_good is None or job in self._ended:
            return
        self._ended.add(job)
        if type(record) is Dropped:
            self._dropped.add(job)
        self.account.ends[self.number_of[job]][job] = is_good

    def at_the_end(
        self, final: FinalFlow, *, is_quiet: bool
    ) -> Iterator[tuple[int, str]]:
        """Yield what is wrong with a flow as it stands."""
        name = f"flow {final.flow}"
        open_steps = [
            n for n, (state, _) in enumerate(final.steps) if state not in OVER
        ]
        if not final.is_over or open_steps:
            if is_quiet:
                yield 0, f"{name} is {final.state}, and steps {open_steps} never end"
            return
        outcomes = self.account.plain()
        plain = final.steps[: len(outcomes)]
        if final.ending is None:
            if list(plain) != [SEEN.get(outcome or "") for outcome in outcomes]:
                yield 0, f"{name}: steps are {plain}, their members say {outcomes}"
        elif not self.is_canceled and "failed" not in outcomes:
            yield 0, f"{name} was ended, and nothing of it has failed"
        end = "failed" if any(failed for _, failed in plain) else "succeeded"
        end = "canceled" if self.is_canceled else end
        if final.state != end:
            yield 0, f"{name} is {final.state}, and was to be {end}"
        yield from self._wrong_hooks(final, end)

    def _plain(self) -> Iterator[int]:
        """Yield the members of plain steps."""
        for job, number in self.number_of.items():
            if self.declared.steps[number].hook is None:
                yield job

    def _wrong_hooks(self, final: FinalFlow, end: str) -> Iterator[tuple[int, str]]:
        """Yield hooks that did not begin, or began at another end than theirs."""
        for one in self.declared.steps:
            if one.hook is None:
                continue
            state, _ = final.steps[one.number]
            if (state == "done") != (one.hook in FITTING[end]):
                yield 0, f"the hook at {one.hook} is {state}, and the end {end}"
        dropped = (job for job in sorted(self._dropped) if self._is_due_hook(job, end))
        for job in dropped:
            yield job, f"a hook that fits the end {end}, it did not begin"

    def _is_due_hook(self, job: int, end: str) -> bool:
        return self.declared.steps[self.number_of[job]].hook in FITTING[end]


def _is_good(record: Record) -> bool | None:
    """Say whether a job ends well with this; None: it does not end with it."""
    state = ""
    if type(record) is Settled and record.receipt == "accepted":
        state = record.state
    elif type(record) is Operated:
        state = record.after
    elif type(record) is Expired or type(record) is Dropped:
        return False
    elif type(record) is Approved:
        return True
    if state not in ENDS:
        return None
    return state == GOOD
