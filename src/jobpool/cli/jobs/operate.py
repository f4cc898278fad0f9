"""`jobpool cancel`, `retry`, `release`: by id, or many at once by filter."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import click
import msgspec

from jobpool.cli.context import opened, own_sources
from jobpool.cli.exits import Exit
from jobpool.cli.flags import JobName, json_flag, selection_flags, store_flags
from jobpool.cli.jobs.known_names import note_slips
from jobpool.cli.jobs.selection import chosen, id_of, matching
from jobpool.cli.jobs.state_names import StateChoice
from jobpool.cli.jobs.times import rate_per_s
from jobpool.cli.output import counted, print_json, print_line
from jobpool.core.jobs.job import JobState
from jobpool.store.protocol import Store

C = TypeVar("C", bound=Callable[..., Any])
_BATCH = 500
_BATCHES_PER_S = 10
"""With a rate: small batches this often, rather than a large one each second."""
_SHOWN_IDS = 5


class _Act(msgspec.Struct, frozen=True, kw_only=True):
    """What one of the three commands does."""

    done: str
    """Past participle, for the report."""
    states: tuple[str, ...]
    """The states, as shown, that it applies to."""
    usual: tuple[str, ...]
    """The states that a filter without ``--state`` selects."""
    call: Callable[[Store, Sequence[int]], int]
    elsewhere: dict[str, str] = {}
    """A hint for jobs in other states."""


def _revived(*states: JobState) -> Callable[[Store, Sequence[int]], int]:
    return lambda store, ids: store.revive(ids, states)


_CANCEL = _Act(
    done="canceled",
    states=("pending", "retryable", "runnable", "leased", "quarantined"),
    usual=("pending", "retryable", "runnable", "leased"),
    call=lambda store, ids: store.cancel(ids),
    elsewhere={"dead": "it has ended already"},
)
_RETRY = _Act(
    done="retried",
    states=("pending", "retryable", "dead", "canceled"),
    usual=("dead",),
    call=_revived(JobState.PENDING, JobState.DEAD, JobState.CANCELED),
    elsewhere={"quarantined": "use jobpool release"},
)
_RELEASE = _Act(
    done="released",
    states=("quarantined", "dead"),
    usual=("quarantined",),
    call=_revived(JobState.QUARANTINED, JobState.DEAD),
)


def _operation(act: _Act) -> Callable[[C], C]:
    """Give a command its arguments: ids or filters."""

    def decorate(command: C) -> C:
        for option in (
            json_flag,
            store_flags,
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
@_operation(_CANCEL)
def cancel(**given: Any) -> None:
    """Cancel jobs; running ones are killed at once."""
    _operate(_CANCEL, **given)


@click.command()
@_operation(_RETRY)
def retry(**given: Any) -> None:
    """Run dead, canceled or waiting jobs now, with fresh counters."""
    _operate(_RETRY, **given)


@click.command()
@_operation(_RELEASE)
def release(**given: Any) -> None:
    """Put quarantined jobs back in line, with fresh counters."""
    _operate(_RELEASE, **given)


def _operate(
    act: _Act,
    *,
    ids: tuple[int | str, ...],
    states: tuple[str, ...],
    rate: str | None,
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
    per_s = rate_per_s(rate) if rate else None
    sources = own_sources(store, config)
    with opened(sources) as found:
        if ids:
            meant, refused = _by_id(found, act, ids)
        else:
            shown = states or act.usual
            which = chosen(states=shown, **selection)
            meant = [job.id for job in matching(found, which, shown)][::-1]
            refused = []
            if not meant:
                note_slips(found, sources, selection)
        changed = 0 if dry_run else _act(found, act, meant, per_s)
    _report(act, meant, refused, changed=changed, dry_run=dry_run, as_json=as_json)


def _by_id(
    store: Store, act: _Act, named: Sequence[int | str]
) -> tuple[list[int], list[str]]:
    """Split ids into those that the act applies to and remarks about the others."""
    meant: list[int] = []
    refused: list[str] = []
    ids = dict.fromkeys(id_of(store, one) for one in named)
    for job_id in ids:
        job = store.get(job_id)
        if job is None:
            refused.append(f"there is no job {job_id} in {store.url}")
        elif job.shown_state in act.states:
            meant.append(job_id)
        else:
            hint = act.elsewhere.get(job.shown_state)
            refused.append(
                f"job {job_id} is {job.shown_state}; only {', '.join(act.states)} jobs "
                f"can be {act.done}" + (f" ({hint})" if hint else "")
            )
    return meant, refused


def _act(store: Store, act: _Act, ids: Sequence[int], per_s: float | None) -> int:
    """Act in batches, the oldest jobs first, not faster than *per_s*."""
    size = _BATCH
    if per_s is not None:
        size = max(1, min(_BATCH, int(per_s / _BATCHES_PER_S)))
    changed = 0
    begun_s = time.monotonic()
    for number, batch in enumerate(_batches(ids, size)):
        if per_s is not None:
            due_s = begun_s + number * size / per_s
            time.sleep(max(0.0, due_s - time.monotonic()))
        changed += act.call(store, batch)
        store.wake()
    return changed


def _report(
    act: _Act,
    meant: Sequence[int],
    refused: Sequence[str],
    *,
    changed: int,
    dry_run: bool,
    as_json: bool,
) -> None:
    if as_json:
        print_json(
            {
                act.done: changed,
                "matched": len(meant),
                "dry_run": dry_run,
                "refused": list(refused),
            }
        )
    elif refused and not meant:
        pass  # the remarks say it all
    elif dry_run:
        some = ", ".join(map(str, meant[:_SHOWN_IDS]))
        dots = ", …" if len(meant) > _SHOWN_IDS else ""
        print_line(f"{counted(len(meant), 'job')} would be {act.done}", f"{some}{dots}")
    else:
        print_line(f"{changed} of {counted(len(meant), 'job')} {act.done}")
    for remark in refused:
        click.echo(f"Error: {remark}", err=True)
    if refused or (not dry_run and changed < len(meant)):
        raise click.exceptions.Exit(Exit.FAILED)


def _batches(ids: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(ids), size):
        yield ids[start : start + size]
