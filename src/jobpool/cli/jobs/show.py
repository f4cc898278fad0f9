"""`jobpool show`: one job, so that its problem is understood in ten seconds.

Each attempt that did not succeed has two lines: how it ended, and why. The last one is
shown with its traceback, stack and output.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import click
import msgspec

from jobpool.cli.context import now_ms, opened, own_sources
from jobpool.cli.flags import JobName, json_flag, store_flags, unredacted_flag
from jobpool.cli.jobs.audit import audit_lines, audit_object
from jobpool.cli.jobs.memory_line import memory_line
from jobpool.cli.jobs.records import decoded, has_result, job_object, running_s
from jobpool.cli.jobs.selection import id_of
from jobpool.cli.output import (
    ago,
    encodable,
    heading,
    pause_words,
    print_json,
    print_line,
    seconds,
    size,
    tick_object,
    tick_words,
)
from jobpool.cli.presence import why_not_alive
from jobpool.core.application.codec import is_encoded, is_encoded_json
from jobpool.core.event_lines import iso_time
from jobpool.core.jobs.budget import RESET, attempt_words, budget_words
from jobpool.core.jobs.job import Attempt, Job, JobState
from jobpool.core.jobs.memory_trail import trail_of
from jobpool.core.jobs.outcome import CHARGES, Outcome
from jobpool.core.rules.circuit_breaker import BreakerState
from jobpool.core.rules.policy import INTERRUPTIONS_MAX, SNOOZED_MAX_S, SNOOZES_MAX
from jobpool.core.safe_text import lines, one_line, unstated_error
from jobpool.core.units import show_duration
from jobpool.errors import JobNotFound, StoreRefused
from jobpool.operations.redaction import Redactor
from jobpool.operations.trail import Entry, entries
from jobpool.store.protocol import Store
from jobpool.store.records import AuditFilter, Filter, KeptOutput, KindRecord

_TEXT_MAX = 20_000
_DONE_MAX = 10
"""Most entries of the audit trail: `jobpool audit --job` has them all."""


@click.command()
@click.argument("job_id", metavar="[ID]", type=JobName(), required=False)
@click.option("--key", help="Instead of ID: the job's idempotency key.")
@click.option("--kind", metavar="KIND", help="With --key, if several kinds use it.")
@click.option(
    "--payload", "with_payload", is_flag=True, help="Show its arguments as well."
)
@unredacted_flag
@store_flags
@json_flag
def show(
    *,
    job_id: int | str | None,
    key: str | None,
    kind: str | None,
    with_payload: bool,
    unredacted: bool,
    store: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    """Show one job: state, reason, figures, attempts, stack, output.

    ID is its number or its ref.
    """
    with opened(own_sources(store, config)) as found:
        meant = None if job_id is None else id_of(found, job_id)
        job = _meant(found, meant, key, kind)
        job_id = job.id
        kinds = found.kinds()
        known = next((r for r in kinds if r.kind == job.kind), None)
        redactor = Redactor(found, kinds, is_off=unredacted)
        redaction = redactor.of(job)
        job, attempts = redaction.job(job), redaction.attempts(found.attempts(job_id))
        output = redaction.text(found.output(job_id))
        kept = redaction.kept(found.kept_output(job_id))
        payload = found.payload(job_id) or None if with_payload else None
        payload = redaction.payload(payload)
        waits = _why_it_waits(found, job, known)
        tick = found.tick_of(job_id)
        links = [*_links(found, job), ("schedule", tick_words(tick) if tick else "")]
        done = _done(found, job_id)
    if payload is not None and not redactor.knows(job.kind):
        note = f"no supervisor has published {job.kind}: nothing of it is redacted"
        click.echo(f"note: {one_line(note)}", err=True)
    if as_json:
        maximum = known.max_attempts if known else None
        shown = job_object(
            job, attempts, max_attempts=maximum, full=True, now_ms=now_ms()
        )
        shown["output"] = kept.output if kept else output
        shown["output_dropped_at"] = iso_time(kept.dropped_at_ms) if kept else None
        shown["schedule"] = tick_object(tick) if tick else None
        shown["audit"] = None if done is None else [audit_object(one) for one in done]
        if with_payload:
            shown["payload"] = decoded(payload)
        print_json(encodable(shown))
        return
    _print_job(job, attempts, known, waits, links)
    if payload is not None:
        _print_payload(payload, job.codec)
    if output:
        heading("OUTPUT SO FAR")
        click.echo(lines(output.rstrip("\n"), _TEXT_MAX))
    if done:
        heading("WHAT PEOPLE DID")
        for line in audit_lines(done, now_ms()):
            print_line(line)
    _print_attempts(attempts, job.codec)
    if kept:
        heading(f"OUTPUT OF {attempt_words(kept.attempt).upper()}")
        text = _dropped(kept) if kept.output is None else kept.output.rstrip("\n")
        if job.codec and is_encoded(text):
            text = f"encoded by {job.codec}"
        click.echo(lines(text, _TEXT_MAX))


def _print_payload(payload: bytes, codec: str | None) -> None:
    heading("PAYLOAD")
    text = payload.decode("utf-8", "replace")
    if codec and is_encoded_json(payload):
        text = f"encoded by {codec}"
    click.echo(lines(text, _TEXT_MAX))


def _done(store: Store, job_id: int) -> list[Entry] | None:
    """Return what people did to a job; None: this login may not read that."""
    try:
        return list(entries(store, AuditFilter(), job_id, _DONE_MAX))
    except StoreRefused as error:
        click.echo(f"note: what people did to it is left out: {error}", err=True)
        return None


def _dropped(kept: KeptOutput) -> str:
    """Say when an output was dropped, and why."""
    when = f"{iso_time(kept.dropped_at_ms)} ({ago(kept.dropped_at_ms, now_ms())})"
    return (
        f"dropped {when}: newer outputs took up its room; to keep more, raise "
        "outputs in [retention]"
    )


def _meant(store: Store, job_id: int | None, key: str | None, kind: str | None) -> Job:
    """Return the job that has an id or a key.

    Raises:
        UsageError: both or neither are given, or jobs of several kinds have the key.
        JobNotFound: no job has this id or key.
    """
    if (job_id is None) == (key is None) or (kind is not None and key is None):
        raise click.UsageError("name one job: its ID, or --key KEY [--kind KIND]")
    which = Filter(ids=None if job_id is None else (job_id,), key=key, kind=kind)
    jobs = store.find(which)
    if len(jobs) > 1:
        known = ", ".join(f"{job.kind} (job {job.id})" for job in jobs)
        raise click.UsageError(
            f"jobs of several kinds have the key {key!r}: {known}; add --kind KIND"
        )
    if not jobs:
        what = f"job {job_id}" if key is None else f"job with the key {key!r}"
        of = f" of kind {kind!r}" if kind else ""
        raise JobNotFound(
            f"there is no {what}{of} in {store.url}; it may have been pruned, or is in "
            "another store (--store)"
        )
    return jobs[0]


def _links(store: Store, job: Job) -> list[tuple[str, str]]:
    """Return which job this one has replaced, and which has replaced this one."""
    rows = []
    for name, other_id in (("replays", job.replays), ("replaced", job.replaced_by)):
        if other_id is not None:
            other = store.get(other_id)
            state = "was pruned" if other is None else f"is {other.shown_state}"
            by = "by " * (name == "replaced")
            rows.append((name, f"{by}job {other_id}, which {state}"))
    return rows


def _print_job(
    job: Job,
    attempts: Sequence[Attempt],
    known: KindRecord | None,
    waits: str,
    links: Sequence[tuple[str, str]],
) -> None:
    now = now_ms()
    error = _plain(job.error, job.codec)
    result = job.result if has_result(job) else None
    print_line(f"job {job.id}", job.kind, job.shown_state)
    rows = [
        ("why", job.reason or ""),
        ("next", f"waits: {waits}" if waits else _what_next(job, known, now)),
        *links,
        (
            "error",
            unstated_error(job.reason, job.error_class, error),
        ),
        ("pool", _place(job)),
        ("counts", counts(job, attempts, known)),
        ("snoozes", _snoozes(job, now)),
        ("limits", _limits(job, known)),
        ("observed", _observed(job)),
        ("progress", _json(job.progress, job.codec)),
        ("result", _json(result, job.codec)),
        *(
            (name, f"{iso_time(at)}  {ago(at, now)}" if at is not None else "")
            for name, at in (
                ("created", job.created_at_ms),
                ("run at", job.run_at_ms),
                ("started", job.started_at_ms),
                ("heartbeat", job.last_heartbeat_at_ms),
                ("finished", job.finished_at_ms),
            )
        ),
        ("options", _options(job)),
        ("ref", job.ref),
        ("codec", _codec(job)),
        ("read", _page(job, waits)),
    ]
    for name, text in rows:
        if text:
            print_line(f"  {name:<10}{text}")


_NEXT = {
    JobState.WAITING: "runs when what it depends on has ended",
    JobState.RUNNABLE: "runs as soon as a slot of its pool is free",
}


def _what_next(job: Job, known: KindRecord | None, now: int) -> str:
    match job.state:
        case JobState.PENDING:
            return _next_try(job, known, now)
        case JobState.LEASED:
            wish = "; cancellation requested" if job.cancel_requested else ""
            ran = seconds(running_s(job, now))
            return f"{f'has run for {ran}' if ran else 'has just begun'}{wish}"
        case _ if job.replaced_by is not None:
            return ""
        case JobState.QUARANTINED:
            return f"nothing, until: jobpool release {job.id}"
        case JobState.DEAD:
            return f"nothing, until: jobpool retry {job.id}"
        case _:
            return _NEXT.get(job.state, "")


def _next_try(job: Job, known: KindRecord | None, now: int) -> str:
    """Return when it is tried again, and what one more crash would mean."""
    when = ago(job.run_at_ms, now) or ""
    if job.run_at_ms <= now:
        when = f"as soon as a slot of its pool is free (due {when})"
    if not job.attempt:
        return f"runs {when}"
    last = known is not None and job.crashes and job.crashes + 1 >= known.max_crashes
    danger = "; one more crash quarantines it" if last else ""
    return f"{attempt_words(job.attempt + 1)} {when}{danger}"


def _why_it_waits(store: Store, job: Job, known: KindRecord | None) -> str:
    """Return what keeps a waiting job from running, if anything does."""
    if job.state not in (JobState.PENDING, JobState.RUNNABLE):
        return ""
    reasons = [
        f"{f'{one.what} {one.name}' if one.name else 'the whole store'} is paused"
        + (f" ({pause_words(one, now_ms())})" if one.who else "")
        for one in store.pauses()
        if one.name == {"pool": job.pool, "kind": job.kind, "store": ""}.get(one.what)
    ]
    if any(one.id == job.id for one in store.suspects()):
        reasons.append(
            "it is a suspect (it was running when its supervisor or host died) and "
            "runs alone when its turn comes"
        )
    reasons += [
        f"kind {one.kind} is {one.state}: {one.crashes} different jobs crashed in a "
        f"row; next try in {seconds(one.wait_s)}, or at once: jobpool resume --kind "
        f"{one.kind}"
        for one in store.breakers()
        if one.kind == job.kind and one.state is not BreakerState.CLOSED
    ]
    if job.unfit_since_ms is not None:
        reasons.append(_unfit(job))
    if known is None:
        reasons.append("no supervisor has ever known this kind")
    if not reasons and job.run_at_ms <= now_ms() and not _is_served(store, job.pool):
        reasons.append(
            f"no supervisor serves pool {job.pool}; start one: jobpool --pools "
            f"{job.pool}=N"
        )
    return ", ".join(reasons)


def _is_served(store: Store, pool: str) -> bool:
    now = now_ms()
    return any(
        pool in run.pools and not why_not_alive(store.run_root, run, now)
        for run in store.open_runs()
    )


def _unfit(job: Job) -> str:
    """Return what a job waits for whose arguments did not fit a live handler."""
    if job.state is JobState.RUNNABLE:
        return (
            "its arguments did not fit a live supervisor's handler; it waits for one "
            "that has another version of its kind"
        )
    return (
        "its arguments do not fit the handler of any live supervisor; dead "
        f"{ago(job.run_at_ms, now_ms())} unless one with another version starts"
    )


def _page(job: Job, waits: str) -> str:
    """Name the page of the manual that explains this, if one does."""
    if waits:
        return "jobpool manual questions"
    if job.state is JobState.SUCCEEDED:
        return ""
    if job.outcome is Outcome.OUT_OF_MEMORY:
        return "jobpool manual tuning"
    if job.state in (JobState.DEAD, JobState.QUARANTINED):
        return "jobpool manual retries"
    return ""


def _place(job: Job) -> str:
    slot = f"  slot {job.slot}" if job.slot else ""
    supervisor = f"  supervisor {job.supervisor}" if job.supervisor else ""
    return f"{job.pool}{slot}{supervisor}"


def _snoozes(job: Job, now: int) -> str:
    """Return how often a job has snoozed, and how often it may."""
    if not job.snoozes:
        return ""
    since = f"since {iso_time(job.snoozed_since_ms)} ({ago(job.snoozed_since_ms, now)})"
    return (
        f"{job.snoozes:,} of {SNOOZES_MAX:,} in a row, {since}, "
        f"for {show_duration(SNOOZED_MAX_S)} at most"
    )


def _limits(job: Job, known: KindRecord | None) -> str:
    timeout = job.timeout_s or (known.timeout_s if known else None)
    memory = job.memory_bytes or (known.memory_bytes if known else None)
    if timeout is None and memory is None:
        return ""
    return f"time {seconds(timeout) or '-'}  memory {size(memory) or '-'}"


def _observed(job: Job) -> str:
    if job.state is JobState.LEASED and job.rss_bytes is not None:
        return f"memory {size(job.rss_bytes)} now"
    return figures(job.duration_s, job.peak_rss_bytes, job.cpu_s)


def _options(job: Job) -> str:
    pairs: list[tuple[str, Any]] = [
        ("priority", job.priority or None),
        ("key", job.key),
        ("unique", job.unique),
        ("tenant", job.tenant),
        ("expires", iso_time(job.expires_at_ms)),
    ]
    return "  ".join(f"{name} {value}" for name, value in pairs if value is not None)


def _codec(job: Job) -> str:
    """Say where what is encoded can be read."""
    if job.codec is None:
        return ""
    return (
        f"{job.codec}; only its application reads what is encoded: "
        f"jobs.get({job.id}).info()"
    )


def _plain(text: str | None, codec: str | None) -> str | None:
    """Return a text, unless it is encoded."""
    return None if codec and is_encoded(text) else text


def _json(text: bytes | None, codec: str | None) -> str:
    if text is None or (codec and is_encoded_json(text)):
        return ""
    return msgspec.json.encode(decoded(text)).decode()


def _print_attempts(attempts: Sequence[Attempt], codec: str | None) -> None:
    if not attempts:
        return
    heading("ATTEMPTS THAT DID NOT SUCCEED")
    for line in attempt_lines(attempts, now_ms()):
        print_line(line)
    for name, text in evidence(attempts[-1]):
        if codec and is_encoded(text):
            continue
        heading(f"{name} OF {attempt_words(attempts[-1].attempt).upper()}")
        click.echo(lines(text.rstrip("\n"), _TEXT_MAX))


def attempt_lines(attempts: Sequence[Attempt], now_ms: int) -> Iterator[str]:
    """Describe each attempt: how it ended, its figures, the reason, its memory."""
    for one in attempts:
        parts = (
            f"{attempt_words(one.attempt)} {one.outcome}",
            ago(one.finished_at_ms, now_ms),
            figures(one.duration_s, one.peak_rss_bytes, one.cpu_s),
            one.slot,
            f"version {one.app_version}" if one.app_version else "",
        )
        yield "  ".join(filter(None, parts))
        if reason := one.reason or one.error_class:
            yield f"   {reason}"
        if trail := trail_of(one.memory_trail):
            yield f"   {memory_line(trail)}"


def counts(job: Job, attempts: Sequence[Attempt], known: KindRecord | None) -> str:
    """Return how often a job was tried, and what that has spent of each budget.

    Args:
        job: as stored.
        attempts: the unsuccessful ones, oldest first.
        known: its kind as published, with the budgets; None: not published.
    """
    failed = [one for one in attempts if CHARGES[one.outcome].failure]
    since_reset = failed[max(0, len(failed) - job.failures) :]
    under = Counter(one.rule for one in since_reset if one.rule)
    rules = ", ".join(f"{n} under {rule}" for rule, n in under.items())
    most = job.max_attempts or (known.max_attempts if known else None)
    parts = (
        f"attempts {job.attempt}",
        budget_words("failures", job.failures, most) + (f" ({rules})" if rules else ""),
        budget_words("crashes", job.crashes, known.max_crashes if known else None),
        budget_words("interruptions", job.interruptions, INTERRUPTIONS_MAX),
        budget_words("recoveries", job.recoveries, None),
    )
    reset = f" ({RESET})" if len(failed) > job.failures else ""
    return f"{', '.join(parts)}{reset}"


def figures(
    duration_s: float | None, peak_rss_bytes: int | None, cpu_s: float | None
) -> str:
    """Return what is known of an attempt's time and memory."""
    pairs = (
        ("ran", seconds(duration_s)),
        ("peak", size(peak_rss_bytes)),
        ("CPU", seconds(cpu_s)),
    )
    return "  ".join(f"{name} {value}" for name, value in pairs if value is not None)


def evidence(attempt: Attempt) -> Iterator[tuple[str, str]]:
    """Yield what an attempt left, each with its heading."""
    for name, text in (
        ("TRACEBACK", attempt.traceback),
        ("STACK", handlers_part(attempt.stack)),
        ("OUTPUT", attempt.output),
    ):
        if text:
            yield name, text


def handlers_part(stack: str | None) -> str | None:
    """Return a stack dump without jobpool's own frames and the extension modules.

    ``show --json`` has all of it.
    """
    if stack is None:
        return None
    kept, below = [], False
    for line in stack.splitlines():
        is_frame = line.startswith("  File ")
        below = is_frame and (below or "/jobpool/client/" in line)
        if not below and not line.startswith("Extension modules:"):
            kept.append(line)
    return "\n".join(kept).rstrip("\n")
