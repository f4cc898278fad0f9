"""A flow's steps as boxes: what they say, and which lines join them."""

import pytest

from jobpool.core.jobs.flow import Hook, StepState, When
from jobpool.core.jobs.job import JobState
from jobpool.dashboard.screens.flows.graph import SIZES, graph_of
from support.store.flow_rows import NOW_MS, done, order_steps, step_row


def boxes(steps):
    return {box.title: box for box in graph_of(steps, NOW_MS).boxes}


def test_each_step_has_a_box_with_its_state_and_its_time():
    found = boxes(order_steps())
    assert [*found] == ["charge", "reserve", "invoice", "ship", "mail", "refund"]
    assert found["reserve"].words == "done · 4\N{NO-BREAK SPACE}s"
    assert found["ship"].words == "running · 12\N{NO-BREAK SPACE}s"
    assert (found["mail"].look, found["mail"].words) == ("closed", "not yet")
    assert found["ship"].job == 33
    assert "After 1-2" in found["ship"].whole


def test_the_critical_path_is_marked_and_an_edge_for_failures_looks_otherwise():
    graph = graph_of(order_steps(), NOW_MS)
    assert [box.title for box in graph.boxes if box.is_critical] == [
        *("charge", "reserve", "ship", "mail")
    ]
    looks = [(line.look, line.is_critical) for line in graph.lines]
    assert looks.count(("plain", True)) == 3
    assert looks.count(("failed", False)) == 1
    assert len(looks) == 6


def test_an_edge_that_others_imply_is_drawn_only_if_it_says_something_else():
    steps = [
        done(0, "a", began_s=9, took_s=1),
        done(1, "b", 0, began_s=8, took_s=1),
        step_row(2, "c", StepState.CLOSED, 0, 1),
        step_row(3, "d", StepState.CLOSED, (0, When.FAILED), 1),
    ]
    assert len(graph_of(steps, NOW_MS).lines) == 4


def test_a_step_of_many_jobs_has_a_bar_in_which_nothing_is_lost():
    """One death of a million is seen, and the bar is no wider than its box."""
    jobs = {JobState.SUCCEEDED: 10**6, JobState.DEAD: 1, JobState.LEASED: 2}
    (box,) = graph_of([step_row(0, "all", StepState.READY, jobs=jobs)], NOW_MS).boxes
    assert box.words == "1,000,001 of 1,000,003"
    assert box.job is None
    assert [part.look for part in box.bar] == ["ended", "bad", "running"]
    assert all(part.width >= 2 for part in box.bar)
    assert box.bar[-1].left + box.bar[-1].width == pytest.approx(SIZES.width - 24)


def test_hooks_stand_at_the_end_and_no_line_leads_to_them():
    hook = step_row(9, "tell", hook=Hook.FAILURE)
    graph = graph_of([*order_steps(), hook], NOW_MS)
    assert graph.boxes[-1].is_hook
    assert graph.boxes[-1].left == max(box.left for box in graph.boxes)
    assert len(graph.lines) == 6


def test_steps_that_share_a_box_are_called_by_what_their_names_have_in_common():
    steps = [step_row(0, "list", StepState.DONE, jobs={})]
    steps += [step_row(n, f"resize {n}", StepState.DONE, 0) for n in range(1, 80)]
    graph = graph_of(steps, NOW_MS)
    assert [box.title for box in graph.boxes] == [
        "list",
        "79 \N{MULTIPLICATION SIGN} resize",
    ]
    assert graph.boxes[1].words == "all done"
    assert graph.folded == 79
    assert graph_of(steps, NOW_MS, whole=True).folded == 0
