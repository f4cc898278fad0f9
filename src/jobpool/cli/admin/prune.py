"""`jobpool prune`: delete finished jobs now, by the configuration, age or count."""

from __future__ import annotations

import click
import msgspec

from jobpool.cli.context import opened, own_sources
from jobpool.cli.flags import json_flag, note_flag, store_flags
from jobpool.cli.jobs.acting import operating
from jobpool.cli.jobs.state_names import StateChoice
from jobpool.cli.output import print_json, print_line
from jobpool.cli.terminal.lasting import lasting
from jobpool.core.config.load import retention_of
from jobpool.core.config.settings import RETENTION_COUNT_MAX, Retention
from jobpool.core.jobs.job import FINISHED, JobState
from jobpool.core.units import duration_s
from jobpool.operations.queue import Prune
from jobpool.words.figures import counted


@click.command()
@click.option(
    "--older-than",
    metavar="TIME",
    help="Only jobs that ended at least this long ago: 30d. Default: the configured "
    "[retention].",
)
@click.option(
    "--keep",
    metavar="JOBS",
    type=click.IntRange(1, RETENTION_COUNT_MAX),
    help="Keep this many of each state, the newest. Default: as above.",
)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=StateChoice([state.value for state in FINISHED]),
    help="Only jobs in this state; may be repeated. Default: all but quarantined.",
)
@click.option("--dry-run", is_flag=True, help="Count only; delete nothing.")
@note_flag
@store_flags
@json_flag
def prune(
    *,
    older_than: str | None,
    keep: int | None,
    states: tuple[str, ...],
    dry_run: bool,
    note: str | None,
    store: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    """Delete finished jobs that are too old, or too many."""
    sources = own_sources(store, config)
    retention = retention_of(sources)
    if older_than is not None or keep is not None:
        age_s = None if older_than is None else duration_s(older_than, "--older-than")
        retention = msgspec.structs.replace(
            retention,
            **{f"{state}_s": age_s for state in FINISHED},
            **{f"{state}_count": keep for state in FINISHED},
        )
    retention = _only(states, retention)
    with opened(sources) as found:
        if dry_run:
            with lasting("count"):
                jobs = found.prunable(retention)
        else:
            jobs = operating(found, Prune(retention=retention, note=note)).jobs
    if as_json:
        print_json({"pruned": 0 if dry_run else jobs, "matched": jobs})
    else:
        print_line(f"{counted(jobs, 'job')} {'would be ' if dry_run else ''}pruned")


def _only(states: tuple[str, ...], retention: Retention) -> Retention:
    """Return a retention that keeps all jobs of other states.

    Without ``--state``: all finished states except quarantined. Quarantined jobs are
    evidence, and are deleted only when asked for by name.
    """
    usual = (state for state in FINISHED if state is not JobState.QUARANTINED)
    others = [state for state in FINISHED if state not in (states or usual)]
    return msgspec.structs.replace(
        retention,
        **{f"{state}_s": None for state in others},
        **{f"{state}_count": None for state in others},
    )
