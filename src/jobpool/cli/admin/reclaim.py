"""`jobpool reclaim`: takes back a dead run's jobs on an operator's word."""

from __future__ import annotations

import click

from jobpool.cli.context import now_ms, opened, own_sources
from jobpool.cli.flags import json_flag, note_flag, store_flags
from jobpool.cli.jobs.acting import operating
from jobpool.cli.output import print_json, print_line
from jobpool.core.event_lines import human_line, json_line
from jobpool.core.events.event import Event
from jobpool.operations.queue import Reclaim
from jobpool.store.protocol import Store
from jobpool.store.records.runs import Run
from jobpool.words.figures import counted


@click.command()
@click.argument("run_id", required=False)
@click.option("--yes", is_flag=True, help="Do not ask: none of its processes is alive.")
@note_flag
@json_flag
@store_flags
def reclaim(
    run_id: str | None,
    *,
    yes: bool,
    note: str | None,
    as_json: bool,
    store: str | None,
    config: str | None,
) -> None:
    """Take back the jobs of a run that you know is dead, when jobpool cannot prove it.

    Supervisors take jobs back by themselves as soon as a run is proven dead, and log an
    alarm when it can be proven neither dead nor alive. Without RUN_ID, the open runs
    are listed.
    """
    with opened(own_sources(store, config)) as found:
        if run_id is None:
            _list(found, found.open_runs(), as_json=as_json)
            return
        run = _open_run(found, run_id)
        if not yes:
            click.confirm(
                f"Is every process of run {run_id} (pid {run.pid} on {run.host}) gone? "
                "Its jobs will run again.",
                abort=True,
            )
        _reclaim(found, run, note, as_json=as_json)


def _open_run(store: Store, run_id: str) -> Run:
    for run in store.open_runs():
        if run.id == run_id:
            return run
    raise click.UsageError(f"no run {run_id[:40]!r} is open in {store.url}")


def _list(store: Store, runs: list[Run], *, as_json: bool) -> None:
    if not runs and not as_json:
        print_line(f"no run is open in {store.url}")
    for run in runs:
        held = len(store.leases_of(run.id))
        if as_json:
            print_json({"run": run.id, "pid": run.pid, "host": run.host, "held": held})
        else:
            print_line(
                f"{run.id}  pid {run.pid} on {run.host}  holds {counted(held, 'job')}"
            )


def _reclaim(store: Store, run: Run, note: str | None, *, as_json: bool) -> None:
    from jobpool.supervisor.maintenance.lost_jobs import (  # noqa: PLC0415 - brings the sandbox
        PublishedPolicies,
    )
    from jobpool.supervisor.maintenance.lost_jobs import (  # noqa: PLC0415 - likewise
        reclaim as take_back,
    )

    events: list[Event] = []

    def take() -> int:
        _open_run(store, run.id)  # or a supervisor has taken it back meanwhile
        held = len(store.leases_of(run.id))
        events[:] = take_back(
            store,
            run,
            running=None,
            registry=PublishedPolicies(store.kinds()),
            now_ms=now_ms(),
        )
        return held - len(store.leases_of(run.id))

    operating(store, Reclaim(run=run.id, host=run.host, take_back=take, note=note))
    for event in events:
        print_line(json_line(event) if as_json else human_line(event, None))
