"""`jobpool prune`: delete finished jobs now, by the configuration or by age."""

from __future__ import annotations

import click

from jobpool.cli.context import now_ms, opened, own_sources
from jobpool.cli.flags import json_flag, store_flags
from jobpool.cli.jobs.state_names import StateChoice
from jobpool.cli.output import counted, print_json, print_line
from jobpool.core.config.load import retention_of
from jobpool.core.config.settings import Retention
from jobpool.core.jobs.job import FINISHED, JobState
from jobpool.core.units import duration_s
from jobpool.store.protocol import Store
from jobpool.store.records import Filter

_BATCH = 1000


@click.command()
@click.option(
    "--older-than",
    metavar="TIME",
    help="Ended at least this long ago: 30d. Default: the configured [retention].",
)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=StateChoice([state.value for state in FINISHED]),
    help="Only jobs in this state; may be repeated. Default: all but quarantined.",
)
@click.option("--dry-run", is_flag=True, help="Count only; delete nothing.")
@store_flags
@json_flag
def prune(
    *,
    older_than: str | None,
    states: tuple[str, ...],
    dry_run: bool,
    store: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    """Delete finished jobs that are old enough."""
    sources = own_sources(store, config)
    age_s = None if older_than is None else duration_s(older_than, "--older-than")
    retention = _ages(retention_of(sources), states, age_s)
    with opened(sources) as found:
        if dry_run:
            jobs = _count(found, retention)
        else:
            jobs = 0
            while (deleted := found.prune(retention, _BATCH)) > 0:
                jobs += deleted
    if as_json:
        print_json({"pruned": 0 if dry_run else jobs, "matched": jobs})
    else:
        print_line(f"{counted(jobs, 'job')} {'would be ' if dry_run else ''}pruned")


def _ages(
    configured: Retention, states: tuple[str, ...], age_s: float | None
) -> Retention:
    """Return the age by state; None keeps the jobs of a state.

    Without ``--state``: all finished states except quarantined. Quarantined jobs are
    evidence, and are deleted only when asked for by name.
    """

    def age_of(state: JobState) -> float | None:
        usual = (s for s in FINISHED if s is not JobState.QUARANTINED)
        if state not in (states or usual):
            return None
        if age_s is not None:
            return age_s
        configured_s: float | None = getattr(configured, f"{state}_s")
        return configured_s

    return Retention(**{f"{state}_s": age_of(state) for state in FINISHED})


def _count(store: Store, retention: Retention) -> int:
    """Count what `Store.prune` would delete: all jobs of a state minus the young."""
    jobs = 0
    now = now_ms()
    for state in FINISHED:
        age_s: float | None = getattr(retention, f"{state}_s")
        if age_s is not None:
            young = max(0, now - round(age_s * 1000)) + 1
            every = Filter(states=(state,))
            jobs += store.count(every)
            jobs -= store.count(Filter(states=(state,), since_ms=young))
    return jobs
