"""`jobpool cancel`, `retry`, `release`: by id, or many at once by filter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from jobpool.cli.jobs.times import rate_per_s
from jobpool.cli.output import counted, print_json, print_line
from jobpool.operations.action import Done
from jobpool.operations.jobs import Cancel, JobsAction, Release, Retry
from jobpool.operations.selection import Selection

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


@click.command()
@_operation(Retry)
def retry(**given: Any) -> None:
    """Run dead, canceled or waiting jobs now, with fresh counters."""
    _operate(Retry, **given)


@click.command()
@_operation(Release)
def release(**given: Any) -> None:
    """Put quarantined jobs back in line, with fresh counters."""
    _operate(Release, **given)


def _operate(
    act: type[JobsAction],
    *,
    ids: tuple[int | str, ...],
    states: tuple[str, ...],
    rate: str | None,
    note: str | None,
    dry_run: bool,
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
    per_s = rate_per_s(rate) if rate else None
    which = None if ids else chosen(states=shown, **selection)
    sources = own_sources(store, config)
    done = Done()
    meant: list[int] = []
    with opened(sources) as found:
        named = tuple(id_of(found, one) for one in ids)
        jobs = Selection(ids=named, which=which, shown=() if ids else shown)
        action = act(jobs=jobs, per_s=per_s, note=note)
        if dry_run:
            meant, done.refused = action.select(found)
            done.matched = len(meant)
        else:
            operating(found, action, done)
        if not ids and not done.matched:
            note_slips(found, sources, selection)
    _report(act, done, meant, dry_run=dry_run, as_json=as_json)


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
        print_json(
            {
                act.past: done.jobs,
                "matched": done.matched,
                "dry_run": dry_run,
                "refused": list(done.refused),
            }
        )
    elif done.refused and not done.matched:
        pass  # the remarks say it all
    elif dry_run:
        some = ", ".join(map(str, meant[:_SHOWN_IDS]))
        dots = ", …" if len(meant) > _SHOWN_IDS else ""
        print_line(f"{counted(len(meant), 'job')} would be {act.past}", f"{some}{dots}")
    else:
        print_line(f"{done.jobs} of {counted(done.matched, 'job')} {act.past}")
    for remark in done.refused:
        click.echo(f"Error: {remark}", err=True)
    if done.refused or (not dry_run and done.jobs < done.matched):
        raise click.exceptions.Exit(Exit.FAILED)
