"""One job: its story, each attempt with its memory, what it left, and what is near."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import msgspec
from starlette.responses import Response

from jobpool.core.clock import SystemClock
from jobpool.core.config.settings import TraceLinks
from jobpool.core.jobs.flow import ENDED_STEPS
from jobpool.core.jobs.job import Attempt, Job, JobState
from jobpool.core.jobs.memory_trail import trail_of
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.jobs.trace import trace_url
from jobpool.core.rules.policy import INTERRUPTIONS_MAX
from jobpool.core.rules.usage.sketch import Counts, Measure
from jobpool.dashboard.asked import Asked
from jobpool.dashboard.rendering import counted, duration, number, size
from jobpool.dashboard.screens.jobs.curve import (
    Curve,
    curve_of,
    line_of_time,
    tone_of,
)
from jobpool.dashboard.screens.jobs.curve import Line as LineOfTime
from jobpool.dashboard.screens.jobs.died import choice_like, seed_of
from jobpool.dashboard.screens.jobs.listing import TONES, Line, line_of, query_of
from jobpool.dashboard.screens.jobs.raising import Raising, raising_of
from jobpool.dashboard.screens.jobs.stack import Stack, stacks_of
from jobpool.dashboard.screens.jobs.story import Story, limit_bytes, story_of
from jobpool.errors import JobNotFound
from jobpool.monitoring.looking.reading import Seen, read
from jobpool.monitoring.looking.traces import trace_of
from jobpool.operations.arguments.replay import Replay
from jobpool.operations.jobs import Cancel, Release, Retry, Reveal
from jobpool.operations.principal import Role
from jobpool.operations.redaction import Redactor
from jobpool.operations.trail.entries import Entry
from jobpool.store.protocol import Store
from jobpool.store.records.operating import Filter
from jobpool.store.records.reading import merged
from jobpool.words.jobs.attempts import handlers_part, throttled_words
from jobpool.words.jobs.line import memory_bytes, ran_s
from jobpool.words.quotas import wait_words
from jobpool.words.schedules import tick_words
from jobpool.words.trail import changes_words

_OTHERS_MAX = 6
_OTHERS_WINDOW = 500
_PROGRESS_MAX = 400
_LATEST = 20
"""So many attempts are shown; who has more has a problem that these show."""
_SIGNALS = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL"} | {
    11: "SIGSEGV",
    15: "SIGTERM",
}


_MANY = {"crash": "crashes", "recovery": "recoveries"}


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that did not succeed."""

    one: Attempt
    tone: str
    curve: Curve | None
    limit_bytes: int | None
    how: str
    """By which signal or exit code it has ended; "": by neither."""

    @property
    def filled(self) -> float | None:
        """Its highest memory as a share of its limit."""
        if self.one.peak_rss_bytes is None or not self.limit_bytes:
            return None
        return self.one.peak_rss_bytes / self.limit_bytes


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """What the last attempt has left to read."""

    of: str
    stacks: tuple[Stack, ...] = ()
    dump: str = ""
    """A stack that is not told by frames."""
    traceback: str = ""
    output: str = ""


class Near(msgspec.Struct, frozen=True, kw_only=True):
    """A job that has to do with this one."""

    said: str
    ref: str
    id: int


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """What the page shows."""

    job: Job
    tone: str
    story: Story
    facts: tuple[tuple[str, Any], ...]
    trace_id: str
    """Of the trace that it is in; "": it is in none."""
    trace_url: str
    """Where people look at that; "": nobody has said."""
    waits: tuple[str, ...]
    """Of each bucket that has no permit for it."""
    tried: tuple[Tried, ...]
    """Latest first."""
    tried_before: int
    """Attempts that are not shown."""
    time: LineOfTime | None
    now: Now | None
    left: Left | None
    near: tuple[Near, ...]
    flow: tuple[str, str, str] | None
    """Name, state and ref of the flow that it is of."""
    flow_decides: bool
    """Only its flow can let it run again."""
    raising: Raising | None
    """With which limit it would be released; None: memory has not ended it."""
    done: tuple[Entry, ...]
    untold: str
    is_redactable: bool
    """Whether its kind has said what of it is hidden."""
    has_result: bool
    arguments: bytes | None = None
    """None: not asked for."""
    result: bytes | None = None


class Now(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that runs."""

    ran_s: float | None
    limit_s: float | None
    memory_bytes: int | None
    limit_bytes: int | None
    progress: str
    share: float | None
    """Of its work, as its handler reports it."""
    output: str


async def show(asked: Asked) -> Response:
    """Answer with the page."""
    return await show_job(asked, reveals=False)


async def show_job(asked: Asked, *, reveals: bool) -> Response:
    """Answer with a job's page.

    Args:
        asked: names the job.
        reveals: with its arguments and its result; that is in the audit trail already.
    """
    ref, now_ms = asked.part("ref"), SystemClock().utc_ms()

    traces = asked.served.traces

    def view(store: Store) -> JobView:
        return view_of(store, ref, now_ms, traces, reveals=reveals)

    def others(store: Store) -> list[Line]:
        return others_like(store, ref, now_ms)

    seen, alike = await asked.reading.read(view, others)
    return asked.page(
        "job.html",
        seen=seen,
        alike=alike,
        ref=ref,
        changes_words=changes_words,
        may_see=asked.has_role(Role.OPERATOR),
        actions={
            "retry": Retry,
            "release": Release,
            "cancel": Cancel,
            "replay": Replay,
            "reveal": Reveal,
        },
        all_alike=lambda job: (
            f"{asked.url('jobs')}{query_of(choice_like(seed_of(job), job.state))}"
        ),
    )


def found(store: Store, ref: str) -> Job:
    """Return a job by its ref.

    Raises:
        JobNotFound: there is none.
    """
    job_id = store.id_of(ref)
    job = None if job_id is None else store.get(job_id)
    if job is None:
        raise JobNotFound(
            "there is no such job in this store; it may have been pruned, or the link "
            "is another store's"
        )
    return job


def view_of(
    store: Store, ref: str, now_ms: int, traces: TraceLinks, *, reveals: bool = False
) -> JobView:
    """Read a job.

    Args:
        store: where it is.
        ref: its ref.
        now_ms: the time.
        traces: where people look at traces.
        reveals: with its arguments and its result.

    Raises:
        JobNotFound: there is none.
    """
    stored = found(store, ref)
    seen = read(store, stored, now_ms, unredacted=False, with_payload=reveals)
    job = seen.job
    sketches = _sketches(store, job)
    attempts = seen.attempts[-_LATEST:]
    member = seen.place.member if seen.place else None
    decides = member is not None and _flow_decides(store, member.flow, member.number)
    row = seen.place.row if seen.place else None
    trace = trace_of(store, stored, traces)
    return JobView(
        job=job,
        tone=TONES.get(job.shown_state, ""),
        story=story_of(seen, sketches, now_ms),
        facts=tuple(_facts(seen)),
        trace_id="" if trace is None else trace.trace_id,
        trace_url="" if trace is None else trace_url(traces.link, trace),
        waits=tuple(wait_words(one, now_ms) for one in seen.quotas),
        tried=tuple(_tried(one, seen) for one in reversed(attempts)),
        tried_before=len(seen.attempts) - len(attempts),
        time=line_of_time(job, seen.attempts, now_ms),
        now=_now(seen, now_ms) if job.state is JobState.LEASED else None,
        left=_left(seen),
        near=tuple(_near(store, job)),
        flow=None if row is None else (row.name, row.state.value, row.ref),
        flow_decides=decides,
        raising=raising_of(store, seen, sketches),
        done=tuple(seen.done or ()),
        untold=seen.untold,
        is_redactable=seen.is_redactable,
        has_result=job.state is JobState.SUCCEEDED and not job.is_erased,
        arguments=seen.payload,
        result=job.result if reveals else None,
    )


def others_like(store: Store, ref: str, now_ms: int) -> list[Line]:
    """Return other jobs of its kind that are dead or set aside for the same cause."""
    job = found(store, ref)
    if job.state not in {JobState.DEAD, JobState.QUARANTINED}:
        return []
    which = Filter(states=(JobState.DEAD, JobState.QUARANTINED), kind=job.kind)
    looked = store.look(which, _OTHERS_WINDOW // 5, window=_OTHERS_WINDOW)
    kinds = store.kinds()
    limit = next((one.memory_bytes for one in kinds if one.kind == job.kind), None)
    redactor = Redactor(store, kinds)
    # By what is shown: else whoever looks would learn which hidden texts are alike.
    seed = seed_of(redactor.of(job).job(job))
    shown = (redactor.of(one).job(one) for one in looked.jobs if one.id != job.id)
    alike = islice((one for one in shown if seed_of(one) == seed), _OTHERS_MAX)
    return [line_of(one, limit, now_ms) for one in alike]


def _sketches(store: Store, job: Job) -> dict[Measure, dict[int, Counts]]:
    rows = merged(store.sketches(job.kind))
    return {
        measure: counts
        for (kind, pool, measure), counts in rows.items()
        if (kind, pool) == (job.kind, job.pool)
    }


def _flow_decides(store: Store, flow_id: int, number_of_step: int) -> bool:
    """Say whether a step has ended, so that only its flow begins it anew."""
    detail = store.flow(flow_id)
    steps = () if detail is None else detail.steps
    step = next((one for one in steps if one.number == number_of_step), None)
    return step is not None and step.hook is None and step.state in ENDED_STEPS


def _facts(seen: Seen) -> list[tuple[str, Any]]:
    job = seen.job
    is_over = job.state is JobState.SUCCEEDED and job.peak_rss_bytes is not None
    rows: list[tuple[str, Any]] = [
        ("pool", job.pool),
        ("tenant", job.tenant),
        ("key", job.key),
        ("schedule", tick_words(seen.tick) if seen.tick else None),
        ("budgets", _budgets(seen) or None),
        ("peak memory", size(job.peak_rss_bytes) if is_over else None),
        ("CPU", duration(job.cpu_s) if is_over else None),
        ("slot", job.slot if job.state is JobState.LEASED else None),
        ("unique", job.unique),
        ("priority", job.priority or None),
        ("snoozes", number(job.snoozes) if job.snoozes else None),
        ("throttled", throttled_words(job) or None),
        ("codec", job.codec),
    ]
    return [(name, value) for name, value in rows if value is not None]


def _budgets(seen: Seen) -> str:
    """Return what of each budget is spent: ``3 of 5 failures, 3 of 3 crashes``."""
    job, known = seen.job, seen.known
    spent = (
        (
            "failure",
            job.failures,
            job.max_attempts or (known.max_attempts if known else None),
        ),
        ("crash", job.crashes, known.max_crashes if known else None),
        ("interruption", job.interruptions, INTERRUPTIONS_MAX),
        ("recovery", job.recoveries, None),
    )
    return ", ".join(
        f"{count:,} of {counted(most, what, _MANY.get(what))}"
        if most is not None and count <= most
        else counted(count, what, _MANY.get(what))
        for what, count, most in spent
        if count
    )


def _tried(one: Attempt, seen: Seen) -> Tried:
    trail = trail_of(one.memory_trail)
    how = ""
    if one.signal is not None:
        by = " by jobpool" if one.outcome in _ENDED_BY_US else ""
        how = f"{_SIGNALS.get(one.signal, f'signal {one.signal}')}{by}"
    elif one.exit_code is not None:
        how = f"exit code {one.exit_code}"
    return Tried(
        one=one,
        tone=tone_of(one.outcome),
        curve=curve_of(trail) if trail and len(trail.points) > 1 else None,
        limit_bytes=limit_bytes(one, seen),
        how=how,
    )


_ENDED_BY_US = frozenset(
    {Outcome.OUT_OF_MEMORY, Outcome.TIMED_OUT, Outcome.STALLED, Outcome.CANCELED}
)


def _now(seen: Seen, now_ms: int) -> Now:
    job, known = seen.job, seen.known
    share: Any = None
    try:
        share = msgspec.json.decode(job.progress or b"null")
    except (msgspec.DecodeError, RecursionError):
        share = None
    is_share = isinstance(share, int | float) and not isinstance(share, bool)
    return Now(
        ran_s=ran_s(job, now_ms),
        limit_s=job.timeout_s or (known.timeout_s if known else None),
        memory_bytes=memory_bytes(job),
        limit_bytes=job.memory_bytes or (known.memory_bytes if known else None),
        progress=(job.progress or b"").decode("utf-8", "replace")[:_PROGRESS_MAX],
        share=share if is_share and 0 <= share <= 1 else None,
        output=seen.output or "",
    )


def _left(seen: Seen) -> Left | None:
    """Return what the last attempt has left, if anything."""
    kept = seen.kept
    if kept is not None and kept.output:
        return Left(of=f"attempt {kept.attempt}", output=kept.output)
    if not seen.attempts:
        return None
    last = seen.attempts[-1]
    dump = handlers_part(last.stack) or ""
    stacks: Sequence[Stack] = stacks_of(dump)
    left = Left(
        of=f"attempt {last.attempt}",
        stacks=tuple(stacks),
        dump="" if stacks else dump,
        traceback=last.traceback or "",
        output=last.output or "",
    )
    has_any = left.stacks or left.dump or left.traceback or left.output
    return left if has_any else None


def _near(store: Store, job: Job) -> list[Near]:
    """Return the jobs that this one has replaced, or waits for, and the like."""
    pairs = (
        ("replays", job.replays),
        ("is replaced by", job.replaced_by),
        ("waits for", job.follows),
        ("is waited for by", job.followed_by),
    )
    return [
        Near(said=said, ref=store.ref_of(other), id=other)
        for said, other in pairs
        if other is not None
    ]
