"""One flow: how far it is, what it waits for, its graph, and its steps."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from starlette.responses import Response

from jobpool.core.clock import SystemClock
from jobpool.core.jobs.flow import ENDED_STEPS, StepState
from jobpool.dashboard.asked import Asked
from jobpool.dashboard.reading import Unknown
from jobpool.dashboard.screens.flows.graph import Graph, graph_of
from jobpool.errors import FlowNotFound
from jobpool.monitoring.looking.presence import why_silent
from jobpool.operations.flows import (
    Approve,
    CancelFlow,
    PauseFlow,
    ResumeFlow,
    RetryFlow,
)
from jobpool.store.protocol import Store
from jobpool.store.records.flows import FlowDetail, FlowRow, StepRow
from jobpool.words.flows.critical import critical_path
from jobpool.words.flows.words import (
    age_s,
    begins_words,
    count_words,
    ending_words,
    failed_words,
    jobs_words,
    path_words,
    state_word,
    tally,
    took_s,
    waits_words,
)

_LINES_MAX = 100
"""Steps in the table, the most interesting first."""

_PATH_MAX = 12
"""A longer critical path is only drawn."""


class StepLine(msgspec.Struct, frozen=True, kw_only=True):
    """A step in the table."""

    number: int
    name: str
    look: str
    jobs: str | None
    begins: str
    took_s: float | None
    ref: str | None
    """Of its only job; None: it has several, or none."""
    until_ms: int | None
    """Until when it waits for an approval; None: for ever, or for nothing."""


class FlowView(msgspec.Struct, frozen=True, kw_only=True):
    """What the page shows."""

    row: FlowRow
    said: str
    """How far its jobs are; "": it has none."""
    why: str
    waits: tuple[str, ...]
    failed: tuple[str, ...]
    took_s: float
    graph: Graph
    refs: dict[int, str]
    """Of jobs that are alone in their steps."""
    lines: tuple[StepLine, ...]
    asks: tuple[StepLine, ...]
    """Steps that wait for an approval."""
    steps: int
    path: str
    """The critical path; "": it is one step, or too long to be read."""


async def show(asked: Asked) -> Response:
    """Answer with the page."""
    ref, whole = asked.part("ref"), asked.query.get("whole") == "1"

    def read(store: Store) -> FlowView:
        return view_of(store, ref, SystemClock().utc_ms(), whole=whole)

    seen = await asked.reading.read(read)
    if isinstance(seen, Unknown):  # thousands of steps: the open page shows it later
        seen = await asked.served.live.shared(
            f"flow {ref} {whole}", read, every_s=2.0, waits=False
        )
    return asked.page(
        "flow.html",
        seen=seen,
        ref=ref,
        whole=whole,
        actions={
            "approve": Approve,
            "cancel": CancelFlow,
            "pause": PauseFlow,
            "resume": ResumeFlow,
            "retry": RetryFlow,
        },
    )


def view_of(store: Store, ref: str, now_ms: int, *, whole: bool = False) -> FlowView:
    """Read a flow.

    Args:
        store: where it is.
        ref: its ref.
        now_ms: the store's clock, or one that is near it.
        whole: as of `graph_of`.

    Raises:
        FlowNotFound: there is none.
    """
    flow_id = store.flow_id_of(ref)
    found = None if flow_id is None else store.flow(flow_id)
    if found is None:
        raise FlowNotFound(
            "there is no such flow in this store; it may have been pruned, or the "
            "link is another store's"
        )
    runs, root = store.open_runs(), store.run_root
    is_served = any(not why_silent(root, run, now_ms) for run in runs)
    graph = graph_of(found.steps, now_ms, whole=whole)
    shown = _shown(found.steps)
    single = {box.job for box in graph.boxes}
    single |= {one.first_job for one in shown if _is_single(one)}
    refs = {job: store.ref_of(job) for job in single if job is not None}
    return _view(found, graph, shown, refs, now_ms, is_served=is_served)


def _view(
    found: FlowDetail,
    graph: Graph,
    shown: Sequence[StepRow],
    refs: dict[int, str],
    now_ms: int,
    *,
    is_served: bool,
) -> FlowView:
    row, steps = found.row, found.steps
    lines = tuple(_line(one, refs, now_ms) for one in shown)
    path = critical_path(steps)
    waits = waits_words(row, steps, now_ms, is_served=is_served, commands=False)
    jobs = tally(steps)
    return FlowView(
        row=row,
        said=count_words(jobs) if jobs else "",
        why=ending_words(row),
        waits=tuple(waits),
        failed=tuple(failed_words(row, steps, commands=False)),
        took_s=age_s(row, now_ms),
        graph=graph,
        refs=refs,
        lines=lines,
        asks=tuple(one for one in lines if one.look == "asks"),
        steps=len(steps),
        path=path_words(path, now_ms) if 1 < len(path) <= _PATH_MAX else "",
    )


def _shown(steps: Sequence[StepRow]) -> list[StepRow]:
    """Return the steps of the table: what failed, what is under way, then the rest."""
    return sorted(
        steps,
        key=lambda one: (
            not one.failed,
            one.state is not StepState.READY,
            one.state in ENDED_STEPS,
            one.number,
        ),
    )[:_LINES_MAX]


def _is_single(step: StepRow) -> bool:
    return sum(step.jobs.values()) == 1


def _line(step: StepRow, refs: dict[int, str], now_ms: int) -> StepLine:
    is_single = _is_single(step)
    return StepLine(
        number=step.number,
        name=step.name,
        look=state_word(step),
        jobs="1 job" if is_single else jobs_words(step),
        begins=begins_words(step),
        took_s=took_s(step, now_ms),
        ref=refs.get(step.first_job or 0) if is_single else None,
        until_ms=step.until_ms,
    )
