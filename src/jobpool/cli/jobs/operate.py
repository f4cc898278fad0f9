"""`jobpool cancel`, `retry`, `release`: by id, or many at once by filter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from jobpool.cli.context import opened, own_sources
from jobpool.cli.exits import Exit
from jobpool.cli.flags import (
    JobName,
    json_flag,
    note_flag,
    selection_flags,
    store_flags,
)
from jobpool.cli.jobs.acting import operating
from jobpool.cli.jobs.known_names import note_slips
from jobpool.cli.jobs.selection import chosen, id_of
from jobpool.cli.jobs.state_names import StateChoice
from jobpool.cli.output import print_json, print_line
from jobpool.core.safe_text import one_line
from jobpool.core.units import size_bytes
from jobpool.operations.action import Done
from jobpool.operations.jobs import Cancel, JobsAction, Release, Retry
from jobpool.operations.selection import Selection
from jobpool.store.protocol import Store
from jobpool.words.figures import counted
from jobpool.words.moments import rate_per_s

C = TypeVar("C", bound=Callable[..., Any])
_SHOWN_IDS = 5


def _operation(act: type[JobsAction]) -> Callable[[C], C]:
    """Give a command its arguments: ids or filters."""

    def decorate(command: C) -> C:
        for option in (
            json_flag,
            store_flags,
            note_flag,
            click.option("--dry-run", is_flag=True, help="Count only; change nothing."),
            click.option(
                "--rate", metavar="RATE", help="No faster than this, such as 100/s."
            ),
            selection_flags,
            click.option(
                "--state",
                "states",
                multiple=True,
                type=StateChoice(act.states),
                help=f"May be repeated; default {', '.join(act.usual)}.",
            ),
            click.argument("ids", nargs=-1, metavar="[IDS]...", type=JobName()),
        ):
            command = option(command)
        return command

    return decorate


@click.command()
@_operation(Cancel)
def cancel(**given: Any) -> None:
    """Cancel jobs; running ones are killed at once."""
    _operate(Cancel, **given)


def _with_canary(command: C) -> C:
    """Give a command ``--canary`` and ``--stop-after-failures``."""
    for option in (
        click.option(
            "--stop-after-failures",
            metavar="N",
            type=click.IntRange(1),
            help="If this many of the first fail, the rest stays as it is; default 1.",
        ),
        click.option(
            "--canary",
            metavar="N",
            type=click.IntRange(1),
            help="First only this many; the rest once these have ended well.",
        ),
    ):
        command = option(command)
    return command


class _CanaryWatch:
    """Says on stderr how the canaries are doing, each time that this has changed."""

    def __init__(self) -> None:
        self._said = ""

    def __call__(self, done: Done) -> None:
        text = (
            f"canaries: {len(done.ended)} of {len(done.canaries)} have ended, "
            f"{len(done.failed)} failed; {_left(done)} wait for them"
        )
        if text != self._said:
            click.echo(text, err=True)
            self._said = text


@click.command()
@_with_canary
@_operation(Retry)
def retry(**given: Any) -> None:
    """Run dead, canceled or waiting jobs now, with fresh counters."""
    _operate(Retry, **given)


@click.command()
@click.option(
    "--memory",
    metavar="SIZE",
    help="Their memory limit from now on, such as 2GiB: more than killed them.",
)
@_with_canary
@_operation(Release)
def release(*, memory: str | None, **given: Any) -> None:
    """Put quarantined jobs back in line, with fresh counters."""
    limit_bytes = None if memory is None else size_bytes(memory, "--memory")
    _operate(Release, {"memory_bytes": limit_bytes}, **given)


def _operate(
    act: type[JobsAction],
    own: Mapping[str, Any] | None = None,
    /,
    *,
    ids: tuple[int | str, ...],
    states: tuple[str, ...],
    rate: str | None,
    note: str | None,
    dry_run: bool,
    canary: int | None = None,
    stop_after_failures: int | None = None,
    store: str | None,
    config: str | None,
    as_json: bool,
    **selection: str | None,
) -> None:
    filtered = bool(states) or any(selection.values())
    if bool(ids) == filtered:
        raise click.UsageError(
            "say which jobs: either their IDs, or filters such as --kind shop.pay "
            "--state dead --since 2h"
        )
    shown = states or act.usual
    if stop_after_failures is not None and (canary or 0) < stop_after_failures:
        raise click.UsageError(
            "--stop-after-failures counts the canaries: give --canary N as well, with "
            "an N that is not smaller"
        )
    more = dict(own or {})
    if canary is not None:
        stop_after = stop_after_failures or 1
        more |= {"canary": canary, "stop_after": stop_after, "on_check": _CanaryWatch()}
    per_s = rate_per_s(rate) if rate else None
    which = None if ids else chosen(states=shown, **selection)
    sources = own_sources(store, config)
    done = Done()
    meant: list[int] = []
    with opened(sources) as found:
        named = tuple(id_of(found, one) for one in ids)
        jobs = Selection(ids=named, which=which, shown=() if ids else shown)
        action = act(jobs=jobs, per_s=per_s, note=note, **more)
        if dry_run:
            meant, done.refused = action.select(found)
            done.matched = len(meant)
        else:
            operating(found, action, done)
        failures = [_failure(found, job_id) for job_id in done.failed]
        if not ids and not done.matched:
            note_slips(found, sources, selection)
    _report_canaries(act, done, failures)
    _report(act, done, meant, dry_run=dry_run, as_json=as_json)


def _failure(store: Store, job_id: int) -> str:
    """Return how a canary has ended."""
    job = store.get(job_id)
    if job is None:
        return f"job {job_id} is gone: it was pruned"
    return f"job {job_id} is {job.shown_state}: {job.reason or 'without a reason'}"


def _left(done: Done) -> str:
    """Return how many jobs are still to follow; not all of them may be counted yet."""
    least = "at least " if done.is_counting else ""
    return f"{least}{counted(done.matched - done.jobs, 'job')}"


def _report_canaries(
    act: type[JobsAction], done: Done, failures: Sequence[str]
) -> None:
    """Name the canaries that have failed, and say what became of the rest."""
    for line in failures:
        click.echo(f"failed: {one_line(line)}", err=True)
    if done.is_stopped:
        click.echo(
            f"Error: {len(done.failed)} of {len(done.canaries)} canaries failed; "
            f"{_left(done)} stayed as they were. Once the "
            "cause is gone, give the same command again: what failed is "
            f"{act.past} again as well",
            err=True,
        )


def _report(
    act: type[JobsAction],
    done: Done,
    meant: Sequence[int],
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Say what was done.

    Args:
        act: the command.
        done: what it has done.
        meant: the jobs that it would be done to, if this is a dry run.
        dry_run: nothing was done.
        as_json: as one object.
    """
    if as_json:
        shown = {
            act.past: done.jobs,
            "matched": done.matched,
            "dry_run": dry_run,
            "refused": list(done.refused),
        }
        if done.canaries:
            canaries = {str(job_id): state for job_id, state in done.canaries.items()}
            shown |= {"canaries": canaries, "failed": done.failed}
        print_json(shown)
    elif done.refused and not done.matched:
        pass  # the remarks say it all
    elif dry_run:
        some = ", ".join(map(str, meant[:_SHOWN_IDS]))
        dots = ", …" if len(meant) > _SHOWN_IDS else ""
        print_line(f"{counted(len(meant), 'job')} would be {act.past}", f"{some}{dots}")
    else:
        least = "at least " if done.is_counting else ""
        matched = counted(done.matched, "job")
        print_line(f"{done.jobs} of {least}{matched} {act.past}")
    for remark in done.refused:
        click.echo(f"Error: {remark}", err=True)
    left = 0 if dry_run or done.is_stopped else done.matched - done.jobs
    if left:
        few = counted(left, "job")
        click.echo(f"Error: {few} not {act.past}: {act.stays}", err=True)
    if done.refused or left or done.is_stopped:
        raise click.exceptions.Exit(Exit.FAILED)
