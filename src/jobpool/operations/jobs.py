"""Cancel, retry and release jobs: some by their ids, or all that a filter finds.

Jobs are changed in batches, the oldest first, each batch in a transaction of its own:
a bulk of a million must not hold the database for minutes. It is still one row in the
audit trail, whose count and ids grow with each batch.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar

from jobpool.core.jobs.job import FINISHED, Job, JobState
from jobpool.core.rules.limits import why_not_raised
from jobpool.core.rules.run_report import memory_max_bytes
from jobpool.errors import JobNotFound, UsageError
from jobpool.operations.action import Action, Change, Done, Step
from jobpool.operations.principal import Principal
from jobpool.operations.redaction import Redactor
from jobpool.operations.selection import Selected, Selection, by_id, oldest_first
from jobpool.store.protocol import Store
from jobpool.store.records.operating import Filter

_BATCH = 500
_BATCHES_PER_S = 10
"""With a rate: small batches this often, rather than a large one each second."""
_REMARKS_MAX = 10
"""Most remarks about jobs that a filter has found."""
_CHECK_S_MIN, _CHECK_S_MAX = 0.05, 1.0
"""How long to wait between two checks of the canaries; or of whether it is wanted."""


class JobsAction(Action, frozen=True, kw_only=True):
    """What is done to jobs that exist."""

    jobs: Selection
    per_s: float | None = None
    """No faster than this."""

    past: ClassVar[str]
    """The verb's past participle."""
    states: ClassVar[tuple[str, ...]]
    """The states, as shown, that it applies to."""
    usual: ClassVar[tuple[str, ...]]
    """The states that a filter without any selects."""
    stays: ClassVar[str] = "they had changed by then"
    """Why some of those that a filter has found stay as they are."""
    elsewhere: ClassVar[Mapping[str, str]] = {}
    """A hint for jobs in other states."""
    spares_replaced: ClassVar[bool] = True
    """It leaves jobs alone that others have replaced."""

    def target(self) -> dict[str, Any]:
        """See `Action.target`."""
        return self.jobs.target()

    def select(self, store: Store) -> Selected:
        """Find the jobs that are meant; changes nothing.

        Raises:
            UsageError: neither ids nor a filter are given, or both.
        """
        which = self.jobs.which
        if bool(self.jobs.ids) == (which is not None):
            raise UsageError(
                f"{self.name}: expected either ids or a filter; nothing was changed"
            )
        if which is None:
            return by_id(
                store,
                self.jobs.ids,
                self._meant,
                self.past,
                self.elsewhere,
                spares_replaced=self.spares_replaced,
                why_not=self.judge(store),
            )
        done = Done()
        ids = [job_id for page in self._pages(store, which, done) for job_id in page]
        return Selected(ids, [*done.refused])

    def judge(self, store: Store) -> Callable[[Job], str]:
        """Return what says why it is not done to a job; "": it is."""
        del store
        return lambda _: ""

    def _pages(
        self, store: Store, which: Filter, done: Done
    ) -> Iterator[Sequence[int]]:
        """Yield the ids of all that are meant, oldest first, and note how many.

        It need not have read all of them before the first are changed.
        """
        why_not = self.judge(store)
        redactor = Redactor(store, () if which.text is None else store.kinds())
        remarks: Counter[str] = Counter()
        done.is_counting = True
        for page, done.is_counting in oldest_first(store, which, self._meant):
            ids = []
            for job in page:
                if self._is_spared(job) or not redactor.shows(job, which.text):
                    continue
                if remark := why_not(job):
                    remarks[remark] += 1
                else:
                    ids.append(job.id)
            done.matched += len(ids)
            done.refused = [
                f"{count:,} of these jobs: {remark}"
                for remark, count in remarks.most_common(_REMARKS_MAX)
            ]
            yield ids
        done.is_counting = False

    def _is_spared(self, job: Job) -> bool:
        return job.is_erased or (self.spares_replaced and job.replaced_by is not None)

    @property
    def _meant(self) -> tuple[str, ...]:
        """The states, as shown, of the jobs that are meant."""
        usual = self.states if self.jobs.which is None else self.usual
        return self.jobs.shown or usual

    def steps(self, store: Store, by: Principal, done: Done) -> Iterator[Step]:
        """See `Action.steps`."""
        del by
        yield from self.batches(store, self._found(store, done), done)

    def _found(self, store: Store, done: Done) -> Iterator[Sequence[int]]:
        """Yield the ids of all that are meant, page by page, and note how many.

        Raises:
            UsageError: as of `select`.
        """
        which = self.jobs.which
        if which is not None and not self.jobs.ids:
            yield from self._pages(store, which, done)
            return
        ids, done.refused = self.select(store)
        done.matched = len(ids)
        yield ids

    def batches(
        self, store: Store, pages: Iterable[Sequence[int]], done: Done
    ) -> Iterator[Step]:
        """Yield a step for each batch, no faster than was said."""
        for batch in self.paced(pages, _BATCH, done):
            yield self._step(store, batch)

    def paced(
        self, pages: Iterable[Sequence[int]], size: int, done: Done
    ) -> Iterator[Sequence[int]]:
        """Yield batches of at most *size*, no faster than was said, until unwanted."""
        if self.per_s is not None:
            size = max(1, min(size, int(self.per_s / _BATCHES_PER_S)))
        begun_s, before = time.monotonic(), 0
        for page in pages:
            for start in range(0, len(page), size):
                if self.per_s is not None:
                    due_s = begun_s + before / self.per_s
                    while (left_s := due_s - time.monotonic()) > 0:
                        if done.is_unwanted:
                            return
                        time.sleep(min(left_s, _CHECK_S_MAX))
                batch = page[start : start + size]
                before += len(batch)
                yield batch

    def _step(self, store: Store, ids: Sequence[int]) -> Step:
        def step() -> Change:
            # With a rate or canaries hours have passed: one that was canceled meanwhile
            # must not be revived, nor one killed that was to be canceled if it waits.
            found = store.find(Filter(ids=tuple(ids)), len(ids))
            still = [job.id for job in found if job.shown_state in self._meant][::-1]
            return self.act(store, still) if still else Change(is_made=False)

        return step

    def act(self, store: Store, ids: Sequence[int]) -> Change:
        """Change some jobs; return which were changed."""
        raise NotImplementedError


class Cancel(JobsAction, frozen=True, kw_only=True):
    """End jobs that have not ended; running ones are killed."""

    name = "cancel"
    past = "canceled"
    states = ("waiting", "pending", "retryable", "runnable", "leased", "quarantined")
    usual = ("waiting", "pending", "retryable", "runnable", "leased")
    stays = "they had ended by then"
    elsewhere = {"dead": "it has ended already"}  # noqa: RUF012 - a constant
    spares_replaced = False

    def act(self, store: Store, ids: Sequence[int]) -> Change:
        """See `JobsAction.act`."""
        jobs = store.cancel(ids)
        return Change(is_made=jobs > 0, jobs=jobs, ids=ids)


class Revive(JobsAction, frozen=True, kw_only=True):
    """Make jobs due now, with fresh counters; their history is kept.

    With canaries the first jobs are revived alone, and the rest only once they have
    ended well. Nothing waits in the store for that: a caller who goes away meanwhile
    leaves the rest as it was.
    """

    canary: int | None = None
    """So many jobs are revived first; None: all are."""
    stop_after: int = 1
    """Once so many of them have ended badly, the rest is left as it is."""
    on_check: Callable[[Done], None] | None = None
    """Called now and then while canaries are waited for."""

    stays = (
        "of a step of a flow that has ended (jobpool flows retry), or another job has "
        "their unique text, or they had changed by then"
    )
    stored: ClassVar[tuple[JobState, ...]]
    """The states, as stored, that it applies to."""

    @property
    def memory_limit(self) -> int | None:
        """The jobs' own memory limit from now on, in bytes; None: as it was."""
        return None

    def target(self) -> dict[str, Any]:
        """See `Action.target`."""
        if self.canary is None:
            return super().target()
        canary = {"canary": self.canary, "stop_after_failures": self.stop_after}
        return {**super().target(), **canary}

    def steps(self, store: Store, by: Principal, done: Done) -> Iterator[Step]:
        """See `Action.steps`."""
        if self.canary is None:
            yield from super().steps(store, by, done)
            return
        if not 1 <= self.stop_after <= self.canary:
            raise UsageError(
                f"{self.name}: expected to stop after 1 to {self.canary} of "
                f"{self.canary} canaries, got {self.stop_after}; nothing was changed"
            )
        pages = self._found(store, done)
        rest: Sequence[int] | None = ()
        while rest is not None and len(done.canaries) < self.canary:
            if not rest:
                rest = next(pages, None)
                continue
            room = self.canary - len(done.canaries)
            first, rest = rest[:room], rest[room:]
            for step in self.batches(store, [first], done):
                yield _noting(step, done.canaries)
        self._wait(store, done)
        if not (done.is_stopped or done.is_unwanted):
            yield from self.batches(store, chain([rest or ()], pages), done)

    def _wait(self, store: Store, done: Done) -> None:
        """Wait until the canaries have ended, or too many have failed."""
        pause_s = _CHECK_S_MIN
        while True:
            living = check_canaries(store, done)
            if self.on_check is not None:
                self.on_check(done)
            done.is_stopped = len(done.failed) >= self.stop_after
            if done.is_stopped or done.is_unwanted or not living:
                return
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _CHECK_S_MAX)

    def act(self, store: Store, ids: Sequence[int]) -> Change:
        """See `JobsAction.act`."""
        jobs = store.revive(ids, self.stored, self.memory_limit)
        if 0 < jobs < len(ids):  # the others' unique text is held by another job
            which = Filter(ids=tuple(ids), states=(JobState.RUNNABLE,))
            ids = [job.id for job in store.find(which, len(ids))]
        return Change(is_made=jobs > 0, jobs=jobs, ids=ids)


def _noting(step: Step, canaries: dict[int, str]) -> Step:
    """Note which jobs a step has revived: others are no canaries."""

    def noted() -> Change:
        change = step()
        if change.is_made:
            canaries.update(dict.fromkeys(change.ids, JobState.RUNNABLE.value))
        return change

    return noted


def check_canaries(store: Store, done: Done) -> int:
    """Check what has become of the canaries; return how many have not ended.

    Only a success is one: a canary that is gone was pruned, and nobody can say how it
    ended; one that was canceled may have done harm.
    """
    living = tuple(job_id for job_id in done.canaries if job_id not in done.ended)
    if not living:
        return 0
    found = {job.id: job for job in store.find(Filter(ids=living), len(living))}
    for job_id in living:
        job = found.get(job_id)
        done.canaries[job_id] = "gone" if job is None else job.shown_state
        if job is None or job.state in FINISHED:
            done.ended.add(job_id)
            if job is None or job.state is not JobState.SUCCEEDED:
                done.failed.append(job_id)
    return len(done.canaries) - len(done.ended)


class Retry(Revive, frozen=True, kw_only=True):
    """Run dead, canceled or waiting jobs now."""

    name = "retry"
    past = "retried"
    states = ("pending", "retryable", "dead", "canceled")
    usual = ("dead",)
    stored = (JobState.PENDING, JobState.DEAD, JobState.CANCELED)
    elsewhere = {"quarantined": "use jobpool release"}  # noqa: RUF012 - a constant


class Release(Revive, frozen=True, kw_only=True):
    """Put quarantined jobs back in line."""

    memory_bytes: int | None = None
    """Their own memory limit from now on; None: as it was."""

    name = "release"
    past = "released"
    states = ("quarantined", "dead")
    usual = ("quarantined",)
    stored = (JobState.QUARANTINED, JobState.DEAD)

    @property
    def memory_limit(self) -> int | None:
        """See `Revive.memory_limit`."""
        return self.memory_bytes

    def target(self) -> dict[str, Any]:
        """See `Action.target`."""
        if self.memory_bytes is None:
            return super().target()
        return {**super().target(), "memory_bytes": self.memory_bytes}

    def judge(self, store: Store) -> Callable[[Job], str]:
        """See `JobsAction.judge`: a limit is to be more, and no more than allowed."""
        wanted_bytes = self.memory_bytes
        if wanted_bytes is None:
            return super().judge(store)
        reports = [row.report for row in store.run_reports()]
        known = {one.kind: one.memory_bytes for one in store.kinds()}

        def why_not(job: Job) -> str:
            return why_not_raised(
                wanted_bytes,
                kind=job.kind,
                now_bytes=job.memory_bytes or known.get(job.kind),
                pool=job.pool,
                most_bytes=memory_max_bytes(reports, job.pool),
                is_fixed=any(job.kind in one.fixed_memory for one in reports),
            )

        return why_not


class Reveal(Action, frozen=True, kw_only=True):
    """Look at what a job was given and has returned: nothing changes but the trail."""

    name = "reveal"
    job: int
    what: str
    """What somebody looks at, in a word or two."""

    def target(self) -> dict[str, Any]:
        """See `Action.target`."""
        return {"ids": str(self.job), "what": self.what}

    def steps(self, store: Store, by: Principal, done: Done) -> Iterator[Step]:
        """See `Action.steps`. The entry is committed before anything is shown."""
        del by, done
        if store.get(self.job) is None:
            raise JobNotFound(f"there is no job {self.job}; it may have been pruned")
        yield lambda: Change(is_made=True, ids=[self.job])


class StopBulk(Action, frozen=True, kw_only=True):
    """Let what is done to many jobs end before its next step."""

    name = "stop"
    bulk: Action
    """What is under way."""
    begun_by: str
    end: Callable[[], None]
    """Called once that is written down."""

    def target(self) -> dict[str, Any]:
        """See `Action.target`."""
        return {
            "stopped": self.bulk.name,
            "begun_by": self.begun_by,
            **self.bulk.target(),
        }

    def steps(self, store: Store, by: Principal, done: Done) -> Iterator[Step]:
        """See `Action.steps`."""
        del store, by, done
        yield lambda: Change(is_made=True)
        self.end()
