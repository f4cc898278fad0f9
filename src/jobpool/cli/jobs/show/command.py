"""`jobpool show`: one job, so that its problem is understood in ten seconds.

Each attempt that did not succeed has two lines: how it ended, and why. The last one is
shown with its traceback, stack and output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from jobpool.cli.context import now_ms, opened, own_sources
from jobpool.cli.flags import JobName, Name, json_flag, store_flags, unredacted_flag
from jobpool.cli.jobs.audit import audit_lines, audit_object
from jobpool.cli.jobs.records import job_object, wait_object
from jobpool.cli.jobs.show.facts import facts, place_object
from jobpool.cli.jobs.show.meant import meant
from jobpool.cli.output import encodable, heading, print_json, print_line, tick_object
from jobpool.core.application.codec import is_encoded, is_encoded_json
from jobpool.core.config.load import traces_of
from jobpool.core.event_lines import iso_time
from jobpool.core.jobs.budget import attempt_words
from jobpool.core.jobs.job import Attempt
from jobpool.core.jobs.trace import TraceContext, trace_url
from jobpool.core.safe_text import lines, one_line
from jobpool.monitoring.looking.reading import Seen, read
from jobpool.monitoring.looking.traces import trace_of
from jobpool.store.records.jobs import KeptOutput
from jobpool.words.figures import ago
from jobpool.words.jobs.attempts import attempt_lines, evidence
from jobpool.words.jobs.values import decoded

_TEXT_MAX = 20_000


@click.command()
@click.argument("job_id", metavar="[ID]", type=JobName(), required=False)
@click.option("--key", help="Instead of ID: the job's idempotency key.")
@click.option(
    "--kind",
    type=Name("kind"),
    metavar="KIND",
    help="With --key, if several kinds use it.",
)
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
    sources = own_sources(store, config)
    traces = traces_of(sources)
    with opened(sources) as found:
        job = meant(found, job_id, key, kind)
        seen = read(
            found, job, now_ms(), unredacted=unredacted, with_payload=with_payload
        )
        trace = trace_of(found, job, traces)
    if seen.untold:
        click.echo(f"note: {seen.untold}", err=True)
    if seen.payload is not None and not seen.is_redactable:
        note = f"no supervisor has published {job.kind}: nothing of it is redacted"
        click.echo(f"note: {one_line(note)}", err=True)
    if as_json:
        shown = _object(seen, with_payload=with_payload)
        shown["trace_id"] = None if trace is None else trace.trace_id
        print_json(encodable(shown))
    else:
        print_seen(seen, "" if trace is None else trace_words(trace, traces.link))


def _object(seen: Seen, *, with_payload: bool) -> dict[str, Any]:
    """Return a job for ``--json``."""
    kept, done = seen.kept, seen.done
    shown = job_object(
        seen.job,
        seen.attempts,
        max_attempts=seen.known.max_attempts if seen.known else None,
        full=True,
        now_ms=now_ms(),
    )
    shown["output"] = kept.output if kept else seen.output
    shown["output_dropped_at"] = iso_time(kept.dropped_at_ms) if kept else None
    shown["waits_for"] = [wait_object(one) for one in seen.quotas]
    shown["schedule"] = tick_object(seen.tick) if seen.tick else None
    shown["flow"] = place_object(seen.place) if seen.place else None
    shown["audit"] = None if done is None else [audit_object(one) for one in done]
    if with_payload:
        shown["payload"] = decoded(seen.payload)
    return shown


def print_seen(seen: Seen, trace: str = "") -> None:
    """Print all that is known of a job, for people.

    Args:
        seen: what was read.
        trace: what is said of its trace; "": nothing.
    """
    job, kept = seen.job, seen.kept
    print_line(f"job {job.id}", job.kind, job.shown_state)
    for name, text in facts(seen, now_ms()):
        print_line(f"  {name:<10}{text}")
    if trace:
        print_line(f"  {'trace':<10}{trace}")
    if seen.payload is not None:
        _print_payload(seen.payload, job.codec)
    if seen.output:
        heading("OUTPUT SO FAR")
        click.echo(lines(seen.output.rstrip("\n"), _TEXT_MAX))
    if seen.done:
        heading("WHAT PEOPLE DID")
        for line in audit_lines(seen.done, now_ms()):
            print_line(line)
    _print_attempts(seen.attempts, job.codec)
    if kept:
        heading(f"OUTPUT OF {attempt_words(kept.attempt).upper()}")
        text = _dropped(kept) if kept.output is None else kept.output.rstrip("\n")
        if job.codec and is_encoded(text):
            text = f"encoded by {job.codec}"
        click.echo(lines(text, _TEXT_MAX))


def trace_words(trace: TraceContext, link: str | None) -> str:
    """Return what is said of the trace that a job is in."""
    rest = trace_url(link, trace) if trace.sampled else "not recorded"
    return "  ".join(filter(None, (trace.trace_id, rest)))


def _print_payload(payload: bytes, codec: str | None) -> None:
    heading("PAYLOAD")
    text = payload.decode("utf-8", "replace")
    if codec and is_encoded_json(payload):
        text = f"encoded by {codec}"
    click.echo(lines(text, _TEXT_MAX))


def _dropped(kept: KeptOutput) -> str:
    """Say when an output was dropped, and why."""
    when = f"{iso_time(kept.dropped_at_ms)} ({ago(kept.dropped_at_ms, now_ms())})"
    return (
        f"dropped {when}: newer outputs took up its room; to keep more, raise "
        "outputs in [retention]"
    )


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
