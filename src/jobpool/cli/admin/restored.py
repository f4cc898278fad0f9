"""`jobpool restored`: make a store usable that was restored from a backup."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click
import msgspec

from jobpool.cli.context import now_ms, opened, own_sources
from jobpool.cli.flags import json_flag, note_flag, store_flags
from jobpool.cli.jobs.acting import operating
from jobpool.cli.output import encodable, heading, print_json, print_line, print_table
from jobpool.core.event_lines import iso_time
from jobpool.core.jobs.job import UNFINISHED
from jobpool.core.rules.repairs.restoring import age_s, ids_after, tokens_after
from jobpool.core.units import show_duration
from jobpool.errors import UsageError
from jobpool.monitoring.looking.presence import holder
from jobpool.operations.queue import Restored
from jobpool.store.protocol import Store
from jobpool.store.records.operating import Filter
from jobpool.store.records.reading import UnfinishedRow
from jobpool.store.records.runs import Position, Run
from jobpool.words.figures import counted
from jobpool.words.moments import since_ms

if TYPE_CHECKING:
    from jobpool.supervisor.maintenance.restored_runs import Fate

_RECENT_MS = 10_000
"""A living run's last sign of life is not older, in a store that hosts share."""
_RENEWED_IN_S = 1.5
"""It gives another one in this time."""
_PAGE = 1000
_CHOICES = {"skip": False, "catch-up": True}
"""Whether schedules catch up with what they have missed."""


class _Plan(msgspec.Struct, frozen=True):
    """Where a restored store stands, and where it goes on."""

    position: Position
    age_s: float
    tokens: int
    last_id: int


class _Found(msgspec.Struct, frozen=True):
    """What the operator has to know."""

    plan: _Plan
    fates: Sequence[Fate]
    again: Sequence[UnfinishedRow]
    at_most_once: frozenset[str]
    ids: Mapping[str, Sequence[int]] | None
    """Of unfinished jobs, by kind; None: they were not asked for."""
    schedules: int
    """How many there are."""


class _Previewed(Exception):
    """Rolls back what a dry run has done to find out."""


@click.command()
@click.option(
    "--lost-since",
    metavar="TIME",
    help="When the backup was taken, such as 2h (ago), or an ISO 8601 time. "
    "Default: the newest time in it.",
)
@click.option(
    "--last-id",
    "seen_id",
    type=click.IntRange(min=1),
    metavar="ID",
    help="The highest job id in anybody's logs; it is never given out again.",
)
@click.option(
    "--schedules",
    "choice",
    type=click.Choice(list(_CHOICES)),
    help="What schedules have missed since: skip it, or catch up by their policies. "
    "Default: it is asked.",
)
@click.option("--ids", "with_ids", is_flag=True, help="List the ids that run again.")
@click.option("--dry-run", is_flag=True, help="Only report; change nothing.")
@note_flag
@store_flags
@json_flag
def restored(
    *,
    lost_since: str | None,
    seen_id: int | None,
    choice: str | None,
    with_ids: bool,
    dry_run: bool,
    store: str | None,
    config: str | None,
    note: str | None,
    as_json: bool,
) -> None:
    """Make a store usable that was restored from a backup, before supervisors start.

    Fencing tokens and job ids go on above any that were given after the backup. What
    was leased when it was taken is taken back. The store is paused, so that you can
    see what runs again first: `jobpool resume --all` starts it.
    """
    with opened(own_sources(store, config)) as found:
        lost_since_ms = lost_since and since_ms(lost_since, now_ms(), "--lost-since")
        plan = _plan(found, lost_since_ms or None, seen_id or 0)
        if dry_run:
            seen = _preview(found, plan, with_ids=with_ids)
        else:
            choice = _choose(found, choice, asks=not as_json)
            catch_up = None if choice is None else _CHOICES[choice]
            seen = _restore(
                found, plan, catch_up=catch_up, note=note, with_ids=with_ids
            )
        if as_json:
            print_json(encodable(_object(seen, seen_id, dry_run=dry_run)))
        else:
            _print(found.url, seen, seen_id, choice, dry_run=dry_run)


def _schedules(store: Store) -> int:
    return sum(row.retired_ms is None for row in store.schedules())


def _choose(store: Store, choice: str | None, *, asks: bool) -> str | None:
    """Return what is to become of what schedules have missed; None: there are none.

    Raises:
        UsageError: it was not said, and nobody can be asked; nothing was changed.
    """
    schedules = _schedules(store)
    if not schedules:
        return None
    if choice is None:
        has = counted(schedules, "schedule")
        if not (asks and _can_ask()):
            raise UsageError(
                f"the store has {has}; say what becomes of what they have missed since "
                "the backup: --schedules skip, or --schedules catch-up for what their "
                "policies say. Nothing was changed"
            )
        choice = click.prompt(
            f"The store has {has}. What they have missed since the backup",
            type=click.Choice(list(_CHOICES)),
            err=True,
        )
    return choice


def _can_ask() -> bool:
    return sys.stdin.isatty()


def _plan(store: Store, lost_since_ms: int | None, seen_id: int) -> _Plan:
    position = store.position()
    _refuse_living(store, position.now_ms)
    backup_age_s = age_s(
        now_ms=position.now_ms,
        newest_ms=position.newest_ms,
        lost_since_ms=lost_since_ms,
    )
    return _Plan(
        position,
        backup_age_s,
        tokens_after(position.tokens, backup_age_s),
        ids_after(position.last_id, backup_age_s, seen_id),
    )


def _refuse_living(store: Store, now_ms: int) -> None:
    """Refuse a store that supervisors still use, as far as it can be seen from here.

    Raises:
        UsageError: one is alive; nothing was changed.
    """
    root = store.run_root
    folders = root.iterdir() if root.is_dir() else ()
    living = {f"pid {pid} on this host" for one in folders if (pid := holder(one))}
    if not store.one_host:
        living |= {f"pid {run.pid} on {run.host}" for run in _renewing(store, now_ms)}
    if living:
        raise UsageError(
            f"a supervisor uses {store.url} ({', '.join(sorted(living))}); stop all of "
            "them first, on every host. Nothing was changed"
        )


def _renewing(store: Store, now_ms: int) -> list[Run]:
    """Return the runs that give signs of life, twice a second, to a shared store."""
    before = {
        run.id: run.heartbeat_at_ms
        for run in store.open_runs()
        if run.heartbeat_at_ms > now_ms - _RECENT_MS
    }
    if not before:
        return []
    time.sleep(_RENEWED_IN_S)  # The backup may be as young as that.
    return [
        run
        for run in store.open_runs()
        if run.heartbeat_at_ms > before.get(run.id, run.heartbeat_at_ms)
    ]


def _take_back(store: Store, plan: _Plan, *, with_ids: bool) -> _Found:
    """Take back what runs held, and find out the rest; within a transaction."""
    from jobpool.supervisor.maintenance.restored_runs import (  # noqa: PLC0415 - brings the sandbox
        take_back_all,
    )

    fates = take_back_all(store, plan.position.now_ms)
    names = {name for one in store.kinds() for name in one.at_most_once}
    ids = _ids(store) if with_ids else None
    again, schedules = store.unfinished(), _schedules(store)
    return _Found(plan, fates, again, frozenset(names), ids, schedules)


def _preview(store: Store, plan: _Plan, *, with_ids: bool) -> _Found:
    with suppress(_Previewed), store.transaction():
        found = _take_back(store, plan, with_ids=with_ids)
        raise _Previewed
    return found


def _restore(
    store: Store,
    plan: _Plan,
    *,
    catch_up: bool | None,
    note: str | None,
    with_ids: bool,
) -> _Found:
    found: list[_Found] = []

    def take_back() -> int:
        found[:] = [_take_back(store, plan, with_ids=with_ids)]
        return len(found[0].fates)

    operating(
        store,
        Restored(
            tokens=plan.tokens,
            last_id=plan.last_id,
            take_back=take_back,
            catch_up=catch_up,
            note=note,
        ),
    )
    return found[0]


def _ids(store: Store) -> dict[str, list[int]]:
    """Return the ids of unfinished jobs, by kind."""
    which, before_id = Filter(states=tuple(UNFINISHED)), None
    ids: dict[str, list[int]] = {}
    while jobs := store.find(which, limit=_PAGE, before_id=before_id):
        for job in jobs:
            ids.setdefault(job.kind, []).append(job.id)
        before_id = jobs[-1].id
    return {kind: ids[kind][::-1] for kind in sorted(ids)}


def _lost(found: _Found, seen_id: int | None) -> int | None:
    """Return how many jobs are gone at most; None: that cannot be known."""
    newest_id = found.plan.position.newest_id
    return None if seen_id is None else max(0, seen_id - newest_id)


def _object(found: _Found, seen_id: int | None, *, dry_run: bool) -> dict[str, Any]:
    plan = found.plan
    whole: dict[str, Any] = {
        "dry_run": dry_run,
        "restores": plan.position.restores + 1,
        "newest_time_at": iso_time(plan.position.newest_ms),
        "backup_age_s": plan.age_s,
        "tokens_after": plan.tokens,
        "backup_newest_id": plan.position.newest_id,
        "ids_after": plan.last_id,
        "taken_back": [
            {"id": one.id, "kind": one.kind, "state": one.state} for one in found.fates
        ],
        "unfinished": [
            {
                **msgspec.to_builtins(row),
                "at_most_once": row.kind in found.at_most_once,
            }
            for row in found.again
        ],
        "lost_at_most": _lost(found, seen_id),
        "schedules": found.schedules,
    }
    if found.ids is not None:
        whole["ids"] = found.ids
    return whole


def _print(
    url: str,
    found: _Found,
    seen_id: int | None,
    choice: str | None,
    *,
    dry_run: bool,
) -> None:
    plan = found.plan
    newest = iso_time(plan.position.newest_ms) or "unknown"
    would = "would be " if dry_run else "is "
    print_line(f"store  {url}")
    print_line(
        f"the backup is {show_duration(max(0, round(plan.age_s)))} old at most",
        f"the newest time in it is {newest}",
    )
    print_line(
        f"new jobs {'would ' if dry_run else ''}get ids above {plan.last_id}",
        f"the newest in the backup is {plan.position.newest_id}",
    )
    print_line(
        f"the whole store {would}paused: nothing starts before `jobpool resume --all`"
    )
    if found.schedules:
        has = counted(found.schedules, "schedule")
        what = choice or "skip or catch-up, as --schedules says"
        print_line(has, f"ticks missed since the backup: {what}")
    _print_taken(found.fates)
    _print_again(found)
    heading("GONE")
    for line in _gone(plan.position.newest_id, _lost(found, seen_id)):
        print_line(line)
    if dry_run:
        heading("nothing was changed; without --dry-run it is done")


def _print_taken(fates: Sequence[Fate]) -> None:
    if not fates:
        return
    heading("LEASED WHEN THE BACKUP WAS TAKEN")
    groups = Counter((one.kind, one.state) for one in fates)
    print_table(
        ("KIND", "NOW", "JOBS"),
        ((kind, state, jobs) for (kind, state), jobs in sorted(groups.items())),
        right=("JOBS",),
    )


def _print_again(found: _Found) -> None:
    if not found.again:
        return
    heading("UNFINISHED IN THE BACKUP (what is due may have run since, and runs again)")
    print_table(
        ("KIND", "POOL", "DUE", "LATER", "AT MOST ONCE"),
        (
            (
                row.kind,
                row.pool,
                row.due,
                row.later,
                "yes" if row.kind in found.at_most_once else None,
            )
            for row in found.again
        ),
        right=("DUE", "LATER"),
    )
    if any(row.kind in found.at_most_once and row.due for row in found.again):
        print_line("Cancel those at most once that have run: jobpool cancel ID")
    for kind, ids in (found.ids or {}).items():
        print_line(f"{kind}: {' '.join(map(str, ids))}")


def _gone(newest_id: int, lost: int | None) -> Iterator[str]:
    yield "What ended, was enqueued or was operated on after the backup is forgotten."
    if lost is None:
        yield (
            f"Jobs with ids above {newest_id} were enqueued after it. How many, this "
            "store cannot know: look for the highest id in your logs (--last-id)."
        )
    elif lost:
        first, last = newest_id + 1, newest_id + lost
        jobs = f"Jobs {first} to {last}" if lost > 1 else f"Job {first}"
        yield f"{jobs}: enqueued after it, if not refused."
    else:
        yield "No job was enqueued after it, if that is the highest id."
