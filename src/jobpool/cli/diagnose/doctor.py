"""`jobpool doctor`: checks what jobpool needs of this machine and its store."""

from __future__ import annotations

import os
import sys

import click

from jobpool.cli.context import now_ms, opened, own_sources
from jobpool.cli.diagnose.kernel_features import Fact, Verdict, kernel_facts
from jobpool.cli.diagnose.quotas import differing
from jobpool.cli.exits import Exit
from jobpool.cli.flags import json_flag, store_flags
from jobpool.cli.machine.resources import (
    affinity_cores,
    cgroup_memory_bytes,
    cores,
    cpu_quota,
    memory_bytes,
)
from jobpool.cli.output import cell, encodable, print_json, print_line, print_table
from jobpool.cli.terminal.lasting import lasting
from jobpool.core.config.layers import misspelled_variables
from jobpool.core.config.load import Sources, store_of
from jobpool.core.units import show_duration, show_size
from jobpool.errors import StoreError
from jobpool.monitoring.looking.waits import STRAY
from jobpool.store.protocol import Store
from jobpool.store.records.runs import CapacityFact

_CLOCK_S_MAX = 5.0
"""Clocks that are further apart are worth a word."""
_STRAYS_MAX = 10
"""So many jobs are named."""
_SQLITE = "sqlite:///"


@click.command()
@store_flags
@json_flag
def doctor(*, store: str | None, config: str | None, as_json: bool) -> None:
    """Check the platform, the limits in force and the store."""
    sources = own_sources(store, config)
    facts = [*kernel_facts(), *_resource_facts(), *_store_facts(sources)]
    facts += [
        Fact("environment", r, Verdict.NOTE) for r in misspelled_variables(os.environ)
    ]
    if as_json:
        for fact in facts:
            print_json(
                encodable(
                    {
                        "name": fact.name,
                        "value": fact.value,
                        "verdict": fact.verdict.value,
                        **({"figures": fact.figures} if fact.figures else {}),
                    }
                )
            )
    else:
        print_table(
            ("WHAT", "VERDICT", "FOUND"),
            ((cell(f.name), cell(f.verdict.value), cell(f.value)) for f in facts),
        )
    broken = [fact for fact in facts if fact.verdict is Verdict.BROKEN]
    if broken:
        click.echo(
            f"Error: {len(broken)} found broken: {', '.join(f.name for f in broken)}; "
            "jobpool cannot keep its promises here until that is fixed",
            err=True,
        )
        raise click.exceptions.Exit(Exit.FAILED)
    if not as_json:
        print_line("nothing is broken")


def _resource_facts() -> list[Fact]:
    quota = cpu_quota()
    limit = cgroup_memory_bytes()
    return [
        Fact(
            "cores",
            f"{cores()} usable; {os.cpu_count()} in the machine, {affinity_cores()} by "
            f"affinity, cgroup quota {'none' if quota is None else f'{quota:g}'}",
        ),
        Fact(
            "memory",
            f"{show_size(memory_bytes())} usable; cgroup limit "
            f"{'none' if limit is None else show_size(limit)}",
        ),
        Fact("python", sys.version.split()[0]),
    ]


def _store_facts(sources: Sources) -> list[Fact]:
    """Describe the store; does not create one."""
    url = store_of(sources)
    facts = [Fact("store", f"{url.shown}  ({url.origin})")]
    path = url.value.removeprefix(_SQLITE)
    if url.value.startswith(_SQLITE) and not os.path.lexists(path):
        facts.append(Fact("store exists", "no; the first start creates it"))
        facts.append(_parent_fact(path))
        return facts
    try:
        with opened(sources) as store:
            facts += [_judged(*item) for item in store.describe().items()]
            facts.append(_runs_fact(store))
            facts += _clock_facts(store)
            facts += [
                Fact("quotas", remark, Verdict.NOTE)
                for remark in differing(store.differing_quotas())
            ]
            facts += map(_stray_fact, store.strays(_STRAYS_MAX))
            with lasting("measure the store"):
                facts += map(_capacity_fact, store.capacity(memory_bytes()))
    except StoreError as exc:
        facts.append(Fact("store usable", str(exc), Verdict.BROKEN))
    return facts


def _parent_fact(path: str) -> Fact:
    parent = os.path.dirname(path)  # noqa: PTH120 - a text, as the URL has it
    if os.access(parent, os.W_OK | os.X_OK):
        return Fact("store's directory", f"{parent} can be written")
    return Fact(
        "store's directory",
        f"{parent} does not exist or cannot be written; create it or use another store",
        Verdict.BROKEN,
    )


def _judged(name: str, value: str) -> Fact:
    """Turn a store's fact into one with a verdict, from what the store says of it."""
    is_note = value.startswith("affected") or "warning" in value.lower()
    return Fact(name, value, Verdict.NOTE if is_note else Verdict.FINE)


def _capacity_fact(found: CapacityFact) -> Fact:
    if found.concern is None:
        return Fact(found.name, found.seen, figures=found.figures)
    value = f"{found.seen}; {found.concern}"
    return Fact(found.name, value, Verdict.NOTE, found.figures)


def _stray_fact(job_id: int) -> Fact:
    words = f"job {job_id} waits for ever: {STRAY}; end it: jobpool cancel {job_id}"
    return Fact("waiting jobs", words, Verdict.NOTE)


def _clock_facts(store: Store) -> list[Fact]:
    """Say whether this host's clock is not the store's, by which all goes."""
    ahead_s = (now_ms() - store.clock_ms()) / 1000
    if abs(ahead_s) < _CLOCK_S_MAX:
        return []
    how = f"{show_duration(abs(ahead_s))} {'ahead of' if ahead_s > 0 else 'behind'}"
    words = (
        f"this host's is {how} the store's: leases and schedules go by that one, ages "
        "and times that are shown here may go by this one; set the clock"
    )
    return [Fact("clock", words, Verdict.NOTE)]


def _runs_fact(store: Store) -> Fact:
    runs = store.open_runs()
    return Fact("supervisors", f"{len(runs)} entered in the store")
