"""`jobpool flows show`: one flow as a tree."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import click
from rich.text import Text

from jobpool.cli.admin.flows.drawing import bar, label
from jobpool.cli.admin.flows.layout import lines
from jobpool.cli.admin.flows.meaning import meant
from jobpool.cli.admin.flows.records import detail_object
from jobpool.cli.context import now_ms, opened, own_sources
from jobpool.cli.flags import FlowName, json_flag, store_flags
from jobpool.cli.output import (
    console,
    encodable,
    heading,
    print_json,
    print_line,
    print_rows,
)
from jobpool.core.event_lines import iso_time
from jobpool.core.jobs.flow import ENDED_STEPS, Failure
from jobpool.monitoring.looking.presence import why_silent
from jobpool.store.protocol import Store
from jobpool.store.records.flows import FlowDetail, StepRow
from jobpool.words.figures import ago, seconds
from jobpool.words.flows.critical import critical_path
from jobpool.words.flows.words import (
    age_s,
    begins_words,
    count_words,
    ending_words,
    failed_words,
    jobs_words,
    left_out_words,
    path_words,
    state_word,
    tally,
    took_s,
    waits_words,
)

_BAR_WIDTH = 40


@click.command("show")
@click.argument("flow", metavar="FLOW", type=FlowName())
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Show at most so many steps, those first that failed or have not ended.",
)
@store_flags
@json_flag
def show_flow(
    *, flow: int | str, limit: int, store: str | None, config: str | None, as_json: bool
) -> None:
    """Show one flow: its steps, and what it waits for.

    FLOW is its number or its ref. Its jobs: `jobpool list --flow FLOW`.
    """
    with opened(own_sources(store, config)) as found:
        detail = meant(found, flow)
        is_served = _is_served(found)
    if as_json:
        print_json(encodable(detail_object(detail, now_ms())))
    else:
        _print(detail, limit, is_served=is_served)


def _is_served(store: Store) -> bool:
    now = now_ms()
    return any(not why_silent(store.run_root, run, now) for run in store.open_runs())


def _print(found: FlowDetail, limit: int, *, is_served: bool) -> None:
    now = now_ms()
    print_line(f"flow {found.row.id}", found.row.name, found.row.state)
    if jobs := tally(found.steps):
        drawn = Text("  ").append(bar(jobs, _BAR_WIDTH))
        console().print(drawn.append(f"  {count_words(jobs)}"), soft_wrap=True)
    for name, text in _facts(found, now, is_served=is_served):
        print_line(f"  {name:<11}{text}")
    if found.steps:
        heading("STEPS")
        print_rows(
            ("STEP", "STATE", "JOBS", "TOOK", "BEGINS"),
            list(_lines(found.steps, limit, now)),
            right=("TOOK",),
            spare=("TOOK", "JOBS"),
        )
    path = critical_path(found.steps)
    if len(path) > 1:
        heading("CRITICAL PATH")
        print_line(path_words(path, now))


def _facts(
    found: FlowDetail, now: int, *, is_served: bool
) -> Iterator[tuple[str, str]]:
    row = found.row
    finished = "" if row.finished_at_ms is None else iso_time(row.finished_at_ms)
    took = seconds(age_s(row, now))
    waits = waits_words(row, found.steps, now, is_served=is_served)
    goes_on = row.failure is Failure.CONTINUE
    rows = [
        ("why", ending_words(row)),
        *(("failed", text) for text in failed_words(row, found.steps)),
        *(("waits for", text) for text in waits),
        ("key", row.key or ""),
        ("tenant", row.tenant or ""),
        ("created", f"{iso_time(row.created_at_ms)}  {ago(row.created_at_ms, now)}"),
        ("finished", f"{finished}  took {took}" if finished else ""),
        ("failure", "other branches go on when a step fails" if goes_on else ""),
        ("generation", str(row.generation) if row.generation > 1 else ""),
        ("ref", row.ref),
    ]
    yield from ((name, text) for name, text in rows if text)


def _lines(steps: Sequence[StepRow], limit: int, now: int) -> Iterator[tuple[Any, ...]]:
    """Yield the table's lines: the tree, then the hooks."""
    numbered = {one.number: one for one in steps}
    shown = _shown(steps, limit)
    tree = {
        one.number: [number for number, _ in one.after]
        for one in steps
        if one.hook is None
    }
    for line in lines(tree, shown):
        if line.steps[0] in shown:
            yield _cells(numbered[line.steps[0]], line.stem, now)
        else:
            left_out = [numbered[number] for number in line.steps]
            words = Text().append(f"{line.stem}⋮ {left_out_words(left_out)}", "dim")
            yield (words, "", "", "", "")
    for step in steps:
        if step.hook is not None:
            yield _cells(step, "", now)


def _shown(steps: Sequence[StepRow], limit: int) -> Collection[int]:
    """Return the steps that get a line, the most interesting ones."""
    ranked = sorted(
        steps,
        key=lambda one: (not one.failed, one.state in ENDED_STEPS, one.number),
    )
    return {one.number for one in ranked[:limit]}


def _cells(step: StepRow, stem: str, now: int) -> tuple[Any, ...]:
    return (
        label(step, stem),
        state_word(step),
        jobs_words(step),
        seconds(took_s(step, now)),
        begins_words(step),
    )
