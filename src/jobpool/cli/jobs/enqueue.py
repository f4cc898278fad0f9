"""`jobpool enqueue`: jobs from the shell, checked against the published schemas.

If no supervisor has published the kind yet, the application is loaded in a separate
process to look it up. A store that does not exist yet is created, as it is when an
application enqueues.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import Any, NamedTuple

import click
import msgspec

from jobpool.cli.context import configured, has_app, opened, own_sources
from jobpool.cli.flags import Name, json_flag, note_flag, store_flags
from jobpool.cli.jobs.acting import operating
from jobpool.cli.output import print_json, print_line
from jobpool.client.declare.options import read_debounce
from jobpool.client.payload.published.checker import Checker, encoded
from jobpool.client.payload.published.stamp import Stamp
from jobpool.core.application.handler_spec import (
    INTERNAL_PREFIX,
    check_kind,
    check_pool,
)
from jobpool.core.config.layers import nearest
from jobpool.core.config.load import Sources, client_settings
from jobpool.core.jobs.job import PRIORITY_MAX, PRIORITY_MIN, Enqueued, NewJob
from jobpool.core.jobs.trace import trace_in
from jobpool.core.rules.quotas.definition import Need, Quota
from jobpool.core.units import duration_s
from jobpool.errors import (
    ArgumentsRejected,
    JobpoolError,
    StoreRefused,
    UnknownKind,
)
from jobpool.operations.action import Done
from jobpool.operations.queue import Enqueue
from jobpool.store.protocol import Store
from jobpool.words.moments import moment_ms

_BATCH = 1000
_STDIN = "-"


@click.command()
@click.argument("kind", type=Name("kind"))
@click.argument("arguments", nargs=-1, metavar="[ARGS-JSON]...")
@click.option(
    "--run-in", metavar="TIME", help="Start no earlier than this long from now: 5m."
)
@click.option(
    "--run-at", metavar="TIME", help="Start no earlier than this ISO 8601 time."
)
@click.option(
    "--expires-in",
    metavar="TIME",
    help="Cancel it if it has not started within this time.",
)
@click.option(
    "--priority",
    type=click.IntRange(PRIORITY_MIN, PRIORITY_MAX),
    default=0,
    help="Higher runs first; default 0.",
)
@click.option("--key", help="Idempotency key: the same job is not created twice.")
@click.option("--unique", help="At most one unfinished job of the kind has this value.")
@click.option(
    "--unique-until",
    type=click.Choice(["start", "finish"]),
    help="When the unique value is free again; default finish.",
)
@click.option(
    "--on-conflict",
    type=click.Choice(["keep", "replace", "postpone"]),
    help="What becomes of a job with the unique value that has not begun.",
)
@click.option(
    "--postpone-max",
    metavar="TIME",
    help="Postpone it no longer than this after it was created; default 1m.",
)
@click.option(
    "--tenant",
    type=Name("tenant"),
    metavar="NAME",
    help="Tenant that the job belongs to.",
)
@click.option(
    "--pool",
    type=Name("pool"),
    metavar="NAME",
    help="Pool to run in; default the kind's own.",
)
@click.option(
    "--force", is_flag=True, help="Accept a kind that no supervisor knows yet."
)
@click.option(
    "--plain",
    is_flag=True,
    help="Store the arguments in plain, although the application has a codec.",
)
@note_flag
@store_flags
@json_flag
def enqueue(
    *,
    kind: str,
    arguments: tuple[str, ...],
    pool: str | None,
    force: bool,
    plain: bool,
    note: str | None,
    store: str | None,
    config: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Enqueue jobs of KIND, one for each ARGS-JSON.

    An object holds arguments by name, an array by position. Without ARGS-JSON, one
    job without arguments is enqueued. "-" reads one ARGS-JSON per line from stdin.
    """
    sources = own_sources(store, config)
    settings = client_settings(sources)
    most = settings.payload_max_bytes
    times = _times(options)
    with ExitStack() as stack:
        try:
            found = stack.enter_context(opened(sources, create=force))
            known = _known(found, check_kind(kind), pool, force=force)
        except (StoreRefused, UnknownKind) as exc:
            known = _declared(sources, check_kind(kind), exc)
            found = stack.enter_context(opened(sources, create=True))
        target = check_pool(pool or known.pool)
        if not force and target not in (known.pool, *settings.pool_names):
            served = {name for run in found.open_runs() for name in run.pools}
            if target not in served:
                raise click.UsageError(
                    f"no configuration names pool {target}, and no supervisor runs it: "
                    f"a job would wait forever in it. Leave --pool out (kind {kind} "
                    f"runs in pool {known.pool}), or add --force; nothing was enqueued"
                )
        checker = Checker(known.schema)
        if checker.codec is not None and not plain:
            raise click.UsageError(
                f"kind {kind}: its application encodes arguments with the codec "
                f"{checker.codec!r}, which only the application has. Enqueue it from "
                "there (in Python: handler.enqueue(...)), or add --plain to store "
                "these arguments in plain; nothing was enqueued"
            )
        stamp = Stamp(known.needs, known.quotas, checker.defaults)
        news = (
            stamp.on(
                NewJob(
                    kind=kind,
                    pool=target,
                    payload=encoded(given, most, what),
                    trace=trace_in(os.environ),
                    **times,
                ),
                given,
                what,
            )
            for what, given in _given(arguments, checker)
        )
        done = Done()
        action = Enqueue(
            kind=check_kind(kind),
            pool=target,
            batches=_batches(news, done),
            on_stored=lambda stored: _print(stored, as_json=as_json),
            note=note,
        )
        operating(found, action, done)
    if not done.matched:
        click.echo("stdin was empty: nothing was enqueued", err=True)


def _times(options: dict[str, Any]) -> dict[str, Any]:
    """Turn the options of the command line into fields of `NewJob`.

    Raises:
        ConfigError: a time is wrong.
        UsageError: two that exclude each other.
    """
    run_in, run_at, expires_in = (
        options.pop(name) for name in ("run_in", "run_at", "expires_in")
    )
    if run_in and run_at:
        raise click.UsageError("--run-in and --run-at exclude each other; give one")
    fields: dict[str, Any] = options
    for name in ("key", "unique", "tenant"):
        if fields[name] is not None:
            fields[name] = _label(fields[name], f"--{name}")
    if run_in:
        fields["delay_ms"] = round(duration_s(run_in, "--run-in") * 1000)
    if run_at:
        fields["run_at_ms"] = moment_ms(run_at, "--run-at")
    if expires_in:
        milliseconds = round(duration_s(expires_in, "--expires-in") * 1000)
        if milliseconds <= fields.get("delay_ms", 0):
            raise click.UsageError(
                "--expires-in must be longer than 0 and than --run-in: the job "
                "would be canceled before it may start"
            )
        fields["expires_in_ms"] = milliseconds
    fields["debounce"] = read_debounce(
        options.pop("unique_until"),
        options.pop("on_conflict"),
        options.pop("postpone_max"),
        unique=fields["unique"],
        key=fields["key"],
        run_in_ms=fields.get("delay_ms"),
    )
    return fields


def _label(text: str, what: str) -> str:
    most = 255
    if not 1 <= len(text) <= most or not text.isprintable():
        raise click.UsageError(
            f"{what} must be 1 to {most} printable characters, got {len(text)}"
        )
    return text


class _Known(NamedTuple):
    pool: str
    schema: bytes
    needs: Sequence[Need] = ()
    quotas: Mapping[str, Quota] = {}
    """Those that are published, by name."""


def _known(store: Store, kind: str, pool: str | None, *, force: bool) -> _Known:
    """Return what is published of a kind; with --force and nothing, all arguments fit.

    Raises:
        UnknownKind: nothing is published, and --force was not given.
    """
    kinds = {record.kind: record for record in store.kinds()}
    if kind in kinds:
        found = kinds[kind]
        rows = store.quotas() if found.needs else ()
        quotas = {row.name: row.quota for row in rows if row.quota is not None}
        return _Known(found.pool, found.schema, found.needs, quotas)
    if force and pool:
        return _Known(pool, b"{}")
    hint = (
        _hint(kind, kinds)
        if kinds
        else "no supervisor has started on this store yet, so no kind is known."
    )
    raise UnknownKind(
        f"kind {kind!r} is not known to any supervisor of {store.url}; {hint} To "
        "enqueue it all the same, unchecked, add --pool NAME --force"
    )


def _hint(kind: str, known: Iterable[str]) -> str:
    """Return a sentence that suggests what was meant."""
    hint = nearest(kind, known)
    return hint if hint.endswith("?") else f"{hint}."


def _declared(sources: Sources, kind: str, why: JobpoolError) -> _Known:
    """Return what the application declares of a kind.

    Args:
        sources: which application.
        kind: the kind or an alias.
        why: the error to raise if no application is named.

    Raises:
        AppError: it does not load.
        ConfigError: it names another store.
        UnknownKind: it has no such handler.
    """
    if not has_app(sources):
        raise why
    from jobpool.supervisor.processes.inspect_app import load_app  # noqa: PLC0415 - starts a process

    settings = configured(sources).settings
    report = load_app(settings)
    specs = {
        name: spec
        for spec in report.handlers
        if not spec.kind.startswith(INTERNAL_PREFIX)
        for name in (spec.kind, *spec.aliases)
    }
    if kind not in specs:
        raise UnknownKind(
            f"kind {kind!r} is known to no supervisor of the store, nor to the "
            f"application {settings.app}; {_hint(kind, specs)} To enqueue it all the "
            "same, unchecked, add --pool NAME --force"
        )
    spec, quotas = specs[kind], {quota.name: quota for quota in report.quotas}
    return _Known(spec.pool, spec.schema, spec.needs, quotas)


def _texts(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each ARGS-JSON with its name for error messages."""
    if not arguments:
        yield "ARGS-JSON", "{}"
    elif arguments == (_STDIN,):
        for number, line in enumerate(sys.stdin, 1):
            if line.strip():
                yield f"line {number} of stdin", line
    else:
        for number, text in enumerate(arguments, 1):
            yield f"ARGS-JSON {number}", text


def _given(
    arguments: Sequence[str], checker: Checker
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the checked arguments of each job, with their name for error messages."""
    for what, text in _texts(arguments):
        yield what, checker.by_name(text, what)


def _batches(news: Iterator[NewJob], done: Done) -> Iterator[list[NewJob]]:
    """Check and yield the next jobs; one bad job rejects its whole batch.

    Raises:
        ArgumentsRejected: with the number of jobs that earlier batches stored.
    """
    try:
        while batch := list(islice(news, _BATCH)):
            yield batch
    except ArgumentsRejected as exc:
        raise ArgumentsRejected(f"{exc} ({done.matched} jobs were enqueued)") from exc


def _print(stored: Sequence[Enqueued], *, as_json: bool) -> None:
    if as_json:
        for job in stored:
            print_json(msgspec.structs.asdict(job))
        return
    made = [str(job.id) for job in stored if job.created]
    if made:
        print_line(f"enqueued {' '.join(made)}")
    for job in stored:
        if job.replaced:
            later = " and is postponed" if job.postponed else ""
            print_line(f"job {job.id} has the new arguments{later}", job.state.value)
        elif not job.created:
            print_line(f"job {job.id} exists already", job.state.value)
