"""`jobpool schedules run`, `pause`, `resume`, `backfill` and `remove`."""

from __future__ import annotations

import click

from jobpool.cli.context import now_ms, opened, own_sources
from jobpool.cli.flags import json_flag, note_flag, store_flags
from jobpool.cli.jobs.acting import operating
from jobpool.cli.output import print_json, print_line
from jobpool.core.rules.schedules.policy import MISSED_AFTER_S
from jobpool.core.units import duration_s
from jobpool.operations.action import Done
from jobpool.operations.schedules import (
    Backfill,
    PauseSchedule,
    RemoveSchedule,
    ResumeSchedule,
    RunSchedule,
)
from jobpool.store.protocol import Store
from jobpool.words.figures import counted
from jobpool.words.moments import since_ms


@click.command("run")
@click.argument("name")
@note_flag
@store_flags
@json_flag
def run_schedule(
    *, name: str, note: str | None, store: str | None, config: str | None, as_json: bool
) -> None:
    """Enqueue a job of a schedule now, whatever its policies say."""
    ids: list[int] = []
    with opened(own_sources(store, config)) as found:
        action = RunSchedule(schedule=name, on_stored=ids.append, note=note)
        operating(found, action)
    (job_id,) = ids
    if as_json:
        print_json({"schedule": name, "job": job_id})
    else:
        print_line(f"job {job_id}", f"jobpool show {job_id}")


@click.command("pause")
@click.argument("name")
@click.option(
    "--for", "duration", metavar="TIME", help="It ends by itself: 2h. Default: never."
)
@note_flag
@store_flags
@json_flag
def pause_schedule(
    *,
    name: str,
    duration: str | None,
    note: str | None,
    store: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    """Let a schedule have no ticks; jobs that it has made go on.

    To hold the jobs as well, pause their kind: `jobpool pause --kind`.
    """
    for_s = None if duration is None else duration_s(duration, "--for")
    if for_s == 0:
        raise click.UsageError("--for must be longer than 0, such as 2h")
    with opened(own_sources(store, config)) as found:
        action = PauseSchedule(schedule=name, for_s=for_s, note=note)
        _change(found, action, "paused", as_json=as_json)


@click.command("resume")
@click.argument("name")
@click.option(
    "--catch-up",
    is_flag=True,
    help="Its ticks of the pause were missed: its policy decides. Default: none.",
)
@note_flag
@store_flags
@json_flag
def resume_schedule(
    *,
    name: str,
    catch_up: bool,
    note: str | None,
    store: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    """Undo the pause of a schedule."""
    with opened(own_sources(store, config)) as found:
        action = ResumeSchedule(schedule=name, catch_up=catch_up, note=note)
        _change(found, action, "resumed", as_json=as_json)


@click.command("remove")
@click.argument("name")
@note_flag
@store_flags
@json_flag
def remove_schedule(
    *, name: str, note: str | None, store: str | None, config: str | None, as_json: bool
) -> None:
    """Delete a schedule that was put, or is retired; its jobs stay.

    Its ticks go with it. One that an application declares goes with its line in the
    code; or here, once no supervisor runs that application any more.
    """
    with opened(own_sources(store, config)) as found:
        action = RemoveSchedule(schedule=name, note=note)
        _change(found, action, "removed", as_json=as_json)


@click.command("backfill")
@click.argument("name")
@click.option(
    "--from",
    "start",
    metavar="TIME",
    required=True,
    help="The first moment: 2d is two days ago; or an ISO 8601 time.",
)
@click.option(
    "--to",
    "end",
    metavar="TIME",
    help="The last one, likewise. Default: a minute ago; later ones still come.",
)
@click.option("--dry-run", is_flag=True, help="Count only; store nothing.")
@note_flag
@store_flags
@json_flag
def backfill_schedule(
    *,
    name: str,
    start: str,
    end: str | None,
    dry_run: bool,
    note: str | None,
    store: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    """Make up for the times of a span of the past that have no tick.

    Their jobs run one after another, about one a second, the oldest first. One command
    makes up for 1,000 times at most.
    """
    now = now_ms()
    from_ms = since_ms(start, now, "--from")
    to_ms = now - MISSED_AFTER_S * 1000 if end is None else since_ms(end, now, "--to")
    with opened(own_sources(store, config)) as found:
        if dry_run:
            ticks = found.backfill(name, from_ms, to_ms, dry_run=True)
        else:
            action = Backfill(schedule=name, from_ms=from_ms, to_ms=to_ms, note=note)
            ticks = operating(found, action).matched
    if as_json:
        print_json({"schedule": name, "ticks": ticks, "dry_run": dry_run})
    else:
        words = f"{counted(ticks, 'tick')} {'would be ' if dry_run else ''}stored"
        print_line(words if ticks else f"{words}: no time in that span lacks one")


def _change(
    store: Store,
    action: PauseSchedule | ResumeSchedule | RemoveSchedule,
    past: str,
    *,
    as_json: bool,
) -> None:
    done: Done = operating(store, action)
    if as_json:
        print_json({"schedule": action.schedule, past: True, "changed": done.is_made})
    else:
        words = f"schedule {action.schedule} {past}"
        if not done.is_made and isinstance(action, RemoveSchedule):
            words = f"there is no schedule {action.schedule}"
        print_line(words, "" if done.is_made else "(no change)")
