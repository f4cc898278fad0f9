"""What is wrong with flows in a history.

Theory of operation. A plain account of each flow is told how members have ended, in
order, and nothing of steps: what it says is held against each grant of a member, and
against the flow as it stands at the end. A retry says which rows the members of each
step are from then on: the account goes on with those, and forgets the ends of others.
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
    FlowRetried,
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
        elif type(record) is FlowRetried:
            book = books[record.flow]
            yield from book.retried(record)
            of_job |= dict.fromkeys(book.number_of, book)
        elif books and (book := of_job.get(getattr(record, "job", 0))) is not None:
            if type(record) is Granted:
                yield from book.granted(record.job)
            else:
                yield from book.told(record)
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
        self._newest = [*stored.members]
        self._ended: set[int] = set()
        self._dropped: set[int] = set()

    def granted(self, job: int) -> Iterator[tuple[int, str]]:
        """Yield what is wrong with a member that begins."""
        number = self.number_of[job]
        if job not in self._newest[number]:
            yield job, f"of step {number}, it was replaced, and begins"
        elif self.declared.steps[number].hook is None:
            if not self.account.may_begin(number):
                before = self.declared.steps[number].after
                seen = [(n, self.account.outcome(n), str(when)) for n, when in before]
                yield job, f"of step {number}, it begins early: {seen}"
        elif left := [job for job in self._plain() if job not in self._ended]:
            yield job, f"a hook, it begins before jobs {left} have ended"

    def told(self, record: Record) -> Iterator[tuple[int, str]]:
        """Take down how a member has ended, if this says so; the first end counts.

        Yields:
            What is wrong, if it is to run again.
        """
        job: int = record.job  # type: ignore[attr-defined]
        if type(record) is Operated and record.what == "revive":
            if record.before == GOOD:
                yield job, "it has succeeded, and is to run again"
            self.account.ends[self.number_of[job]].pop(job, None)
            self._ended.discard(job)
            self._dropped.discard(job)
        is_good = _is_good(record)
        if is_good is None or job in self._ended:
            return
        self._ended.add(job)
        if type(record) is Dropped:
            self._dropped.add(job)
        self.account.ends[self.number_of[job]][job] = is_good

    def retried(self, record: FlowRetried) -> Iterator[tuple[int, str]]:
        """Begin the next generation; yield what is wrong with it.

        Some members alone may be retried. Then a step that was skipped as the flow was
        ending stays so, if one before it still does not let it begin: whether that is
        a failure is as it was.
        """
        self.account.left = {}
        failed = self.account.anew() if record.is_whole else []
        anew: set[int] = set()
        for one, jobs in zip(self.declared.steps, record.members, strict=True):
            number, ends = one.number, self.account.ends[one.number]
            if len(jobs) != len(self._newest[number]):
                yield 0, f"step {number} had members {self._newest[number]}, now {jobs}"
            is_after = any(before in anew for before, _ in one.after)
            left = {job: is_good for job, is_good in ends.items() if job in jobs}
            if not (is_after or one.hook):
                for job in sorted(job for job in ends.keys() - left if ends[job]):
                    yield job, f"of step {number}, it has succeeded, and is replaced"
            if number in failed and not all(left.values()):
                yield 0, f"step {number} has failed, and not all that did runs again"
            if is_after or len(left) < len(jobs):
                anew.add(number)
            self.account.ends[number] = left
            self.number_of |= dict.fromkeys(jobs, number)
        if not record.is_whole:
            for number, is_failure in record.skipped:
                if any(self.account.ends[number].values()):
                    yield 0, f"step {number} is skipped, and members have succeeded"
                outcome = "skipped: failed" if is_failure else "skipped"
                self.account.left[number] = outcome
        self._newest = [*record.members]
        self._dropped.clear()
        self.is_canceled = False

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
            for job in sorted(self._dropped):
                one = self.declared.steps[self.number_of[job]]
                is_plain = one.hook is None and not one.external
                if is_plain and final.steps[one.number][0] == "done":
                    yield job, f"of step {one.number}, it was to run, and is canceled"
        elif not self.is_canceled and "failed" not in outcomes:
            yield 0, f"{name} was ended, and nothing of it has failed"
        end = "failed" if any(failed for _, failed in plain) else "succeeded"
        end = "canceled" if self.is_canceled else end
        if final.state != end:
            yield 0, f"{name} is {final.state}, and was to be {end}"
        yield from self._wrong_hooks(final, end)

    def _plain(self) -> Iterator[int]:
        """Yield the members of plain steps."""
        for one, jobs in zip(self.declared.steps, self._newest, strict=True):
            if one.hook is None:
                yield from jobs

    def _wrong_hooks(self, final: FinalFlow, end: str) -> Iterator[tuple[int, str]]:
        """Yield hooks that did not begin, or began at another end than theirs."""
        for one in self.declared.steps:
            if one.hook is None:
                continue
            state, _ = final.steps[one.number]
            if (state == "done") != (one.hook in FITTING[end]):
                yield 0, f"the hook at {one.hook} is {state}, and the end {end}"
            elif state == "done":
                for job in self._newest[one.number]:
                    if job not in self._ended:
                        yield job, f"a hook that fits the end {end}, it has not ended"
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
