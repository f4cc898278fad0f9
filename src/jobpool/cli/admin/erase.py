"""`jobpool erase`: delete the data of a tenant, a job, or a kind's old jobs."""

from __future__ import annotations

import sys
from collections import Counter

import click

from jobpool.cli.context import now_ms, opened, own_sources
from jobpool.cli.exits import Exit
from jobpool.cli.flags import JobName, Name, json_flag, note_flag, store_flags
from jobpool.cli.jobs.acting import operating
from jobpool.cli.jobs.known_names import note_slips
from jobpool.cli.jobs.selection import id_of
from jobpool.cli.jobs.state_names import StateChoice
from jobpool.cli.output import print_json, print_line
from jobpool.core.jobs.job import FINISHED, JobState
from jobpool.core.safe_text import one_line
from jobpool.core.units import duration_s
from jobpool.operations.action import Done
from jobpool.operations.erasure import Erase, Survey, belongings, unfinished_words
from jobpool.operations.selection import Selection
from jobpool.store.protocol import Store
from jobpool.store.records.operating import Filter
from jobpool.words.figures import counted

ELSEWHERE = (
    "copies elsewhere are not reached: backups, replicas, logs, and what the "
    "application itself has stored"
)


@click.command()
@click.option("--tenant", metavar="NAME", help="The jobs of this tenant.")
@click.option(
    "--job",
    "jobs",
    metavar="ID",
    multiple=True,
    type=JobName(),
    help="This job, by its number or ref; may be repeated.",
)
@click.option(
    "--kind", type=Name("kind"), metavar="KIND", help="The jobs of this kind."
)
@click.option(
    "--older-than",
    metavar="TIME",
    help="Only jobs that ended at least this long ago: 30d.",
)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=StateChoice([state.value for state in FINISHED]),
    help="Only jobs in this state; may be repeated.",
)
@click.option("--cancel", is_flag=True, help="Cancel jobs that have not ended first.")
@click.option("--dry-run", is_flag=True, help="Count only; erase nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--rewrite",
    is_flag=True,
    help="Copy the tables afterwards, so that no remains are left in the files.",
)
@note_flag
@store_flags
@json_flag
def erase(
    *,
    tenant: str | None,
    jobs: tuple[int | str, ...],
    kind: str | None,
    older_than: str | None,
    states: tuple[str, ...],
    cancel: bool,
    dry_run: bool,
    yes: bool,
    rewrite: bool,
    note: str | None,
    store: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    """Delete all data of jobs that have ended; it cannot be brought back.

    Arguments, results, errors, attempts, output, keys and the tenant's name are gone,
    and so is what hooks were told and what the audit trail says of them. A row without
    data stays for statistics, until it is pruned. What would be erased is counted
    first.
    """
    if bool(jobs) == bool(tenant or kind):
        raise click.UsageError(
            "say whose data: either --job ID, or --tenant NAME or --kind KIND"
        )
    if jobs and (states or older_than):
        raise click.UsageError(
            "--state and --older-than select among others than --job"
        )
    before_ms = None
    if older_than is not None:
        before_ms = now_ms() - round(duration_s(older_than, "--older-than") * 1000)
    sources = own_sources(store, config)
    with opened(sources) as found:
        action = Erase(
            jobs=Selection(ids=tuple(id_of(found, one) for one in jobs))
            if jobs
            else Selection(
                which=Filter(
                    tenant=tenant,
                    kind=kind,
                    states=tuple(JobState(state) for state in states) or None,
                ),
                shown=states,
            ),
            before_ms=before_ms,
            cancels=cancel,
            rewrite=rewrite,
            note=note,
        )
        survey = action.survey(found)
        if not jobs and not survey.ids and not survey.unfinished:
            note_slips(found, sources, {"kind": kind})
            _note_unknown(found, tenant)
        facts = _facts(found, action, survey)
        if not as_json:
            _print_survey(survey, facts)
        done = Done()
        if not dry_run:
            if survey.unfinished and not cancel:
                raise click.UsageError(unfinished_words(survey.unfinished))
            _confirm(is_agreed=yes)
            operating(found, action, done)
        _note_schedules(found, tenant)
    _report(survey, facts, done, dry_run=dry_run, as_json=as_json)


def _facts(store: Store, action: Erase, survey: Survey) -> dict[str, int]:
    beside = belongings(store, [*survey.ids, *survey.hooks])
    return {
        "hook_jobs": len(survey.hooks),
        "attempts": beside.attempts,
        "outputs": beside.outputs,
        "audit_entries": len(action.entries(store, survey.ids)),
    }


def _note_unknown(store: Store, tenant: str | None) -> None:
    """Say on stderr that no job has a tenant: nobody may take a slip for an erasure."""
    if tenant is not None and not store.find(Filter(tenant=tenant), 1):
        text = f"no job in {store.url} has the tenant {tenant!r}"
        remark = "it was erased or pruned before, or is spelled differently"
        click.echo(f"note: {one_line(text)}: {remark}", err=True)


def _note_schedules(store: Store, tenant: str | None) -> None:
    """Say on stderr which schedules still hold data of a tenant, and make jobs of it.

    What is erased is jobs. A schedule is what somebody wants to happen.
    """
    for row in store.schedules() if tenant is not None else ():
        if row.declared.tenant == tenant:
            name = row.declared.name
            remark = (
                f"remove it as well, if it is to end: jobpool schedules remove {name}"
            )
            text = f"schedule {name} holds arguments for this tenant"
            click.echo(f"note: {one_line(text)}; {remark}", err=True)


def _print_survey(survey: Survey, facts: dict[str, int]) -> None:
    print_line(counted(survey.states.total(), "job"), _by_state(survey.states))
    for name, count in facts.items():
        if count:
            print_line(f"  {name.replace('_', ' '):<14}{count:>8,}")
    if survey.unfinished:
        states = Counter(survey.unfinished.values())
        print_line(
            f"  {'not ended':<14}{len(survey.unfinished):>8,}", _by_state(states)
        )


def _by_state(states: Counter[str]) -> str:
    return ", ".join(f"{jobs} {state}" for state, jobs in states.most_common())


def _confirm(*, is_agreed: bool) -> None:
    """Ask on a terminal.

    Raises:
        UsageError: nobody can be asked.
        Abort: the answer is no; nothing was changed.
    """
    if is_agreed:
        return
    if not _can_ask():
        raise click.UsageError(
            "nobody can be asked here; give --yes to erase, or --dry-run to count"
        )
    click.confirm("Erase their data? It cannot be brought back", abort=True, err=True)


def _can_ask() -> bool:
    return sys.stdin.isatty()


def _report(
    survey: Survey,
    facts: dict[str, int],
    done: Done,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    refused = survey.missing if dry_run else list(done.refused)
    if as_json:
        print_json(
            {
                "erased": done.jobs,
                "matched": survey.states.total() if dry_run else done.matched,
                "by_state": dict(survey.states),
                "unfinished": dict(Counter(survey.unfinished.values())),
                **facts,
                "dry_run": dry_run,
                "refused": refused,
                "notes": list(done.notes),
            }
        )
    elif not dry_run:
        print_line(f"{counted(done.jobs, 'job')} erased")
    if not dry_run and not as_json:
        for remark in (*done.notes, ELSEWHERE):
            click.echo(f"note: {remark}", err=True)
    for remark in refused:
        click.echo(f"Error: {remark}", err=True)
    if refused or (not dry_run and done.jobs < done.matched):
        raise click.exceptions.Exit(Exit.FAILED)
