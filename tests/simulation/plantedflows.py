"""Bugs of flows, to plant in the simulation."""

from __future__ import annotations

from typing import Any

from jobpool.core.jobs.flow import StepState
from jobpool.core.rules.flows import Next
from jobpool.store.memory.database import MemoryDatabase
from jobpool.store.memory.flows import fold as folding
from jobpool.store.memory.flows import retry
from planted_bugs.bug import Promise
from simulation.planting import Change, breaks, nothing


@breaks(Promise.FLOWS)
def a_member_ends_without_a_note() -> list[Change]:
    return [(MemoryDatabase, "note_step", nothing)]


@breaks(Promise.FLOWS)
def one_step_before_is_enough() -> list[Change]:
    right = folding.opened

    def wrong(before: Any, ending: Any) -> Next | None:
        edges = list(before)
        over = [one for one in edges if one.state is StepState.DONE]
        return right(over or edges, ending)

    return [(folding, "opened", wrong)]


@breaks(Promise.FLOWS)
def a_step_ends_with_its_first_member() -> list[Change]:
    right = folding.ended

    def wrong(state: StepState, *, is_unfinished: bool, **facts: Any) -> Next | None:
        is_ready = state is StepState.READY
        return right(state, is_unfinished=is_unfinished and not is_ready, **facts)

    return [(folding, "ended", wrong)]


@breaks(Promise.FLOWS)
def a_failure_hook_is_skipped() -> list[Change]:
    right = folding.opened_hook

    def wrong(hook: Any, end: Any) -> Next:
        found = right(hook, end)
        is_failure = hook.value == "failure"
        return Next(StepState.SKIPPING) if is_failure else found

    return [(folding, "opened_hook", wrong)]


@breaks(Promise.FLOWS)
def a_flow_goes_on_after_a_failure() -> list[Change]:
    right = folding.opened

    def wrong(before: Any, ending: Any) -> Next | None:
        return right([one._replace(failed=False) for one in before], ending)

    return [(folding, "opened", wrong)]


@breaks(Promise.FLOWS)
def hooks_have_run_before_a_retry() -> list[Change]:
    right = retry.retried

    def wrong(steps: Any, chosen: Any = None) -> dict[int, StepState]:
        anew = right(steps, chosen)
        return {step: state for step, state in anew.items() if not steps[step].hook}

    return [(retry, "retried", wrong)]


@breaks(Promise.FLOWS)
def a_retry_runs_all_again() -> list[Change]:
    right = retry.retried

    def wrong(steps: Any, chosen: Any = None) -> dict[int, StepState]:
        anew = right(steps, chosen)
        done = {step for step, one in steps.items() if one.state is StepState.DONE}
        return dict.fromkeys(done, StepState.CLOSED) | anew if anew else anew

    return [(retry, "retried", wrong)]
