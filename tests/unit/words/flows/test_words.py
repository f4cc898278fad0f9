"""What is said of flows: bars, steps, and what is waited for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobpool.cli.admin.flows.drawing import bar, label
from jobpool.core.jobs.flow import Ending, FlowState, Hook, StepState, When
from jobpool.core.jobs.job import JobState
from jobpool.words.flows.critical import critical_path
from jobpool.words.flows.words import (
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
from support.store.flow_rows import NOW_MS, done, flow_row, order_steps, step_row

COUNTS = st.dictionaries(
    st.sampled_from(JobState), st.integers(1, 10**7), min_size=1, max_size=8
)


def test_a_bar_shows_what_ended_well_and_badly_what_runs_and_what_is_to_come():
    """From left to right, in proportion."""
    jobs = {
        JobState.SUCCEEDED: 8,
        JobState.DEAD: 2,
        JobState.CANCELED: 2,
        JobState.LEASED: 4,
        JobState.WAITING: 4,
    }
    assert bar(jobs, 20).plain == "████████▚▚▚▚▒▒▒▒░░░░"
    assert count_words(jobs) == "12 of 20 jobs ended, 2 dead, 2 canceled, 4 running"


def test_what_was_skipped_is_no_failure():
    """A refund that is not needed is canceled, and nothing is wrong with its flow."""
    steps = [
        done(0, "ship", began_s=9, took_s=1),
        step_row(1, "refund", StepState.SKIPPED, jobs={JobState.CANCELED: 1}),
        step_row(2, "mail", StepState.DONE, jobs={JobState.CANCELED: 1}, failed=True),
    ]
    jobs = tally(steps)
    assert jobs == {"succeeded": 1, "skipped": 1, "canceled": 1}
    assert count_words(jobs) == "3 of 3 jobs ended, 1 canceled, 1 skipped"
    assert bar(jobs, 18).plain == "██████▚▚▚▚▚▚──────"


@given(COUNTS, st.integers(16, 60))
def test_a_bar_has_its_width_and_hides_nothing(jobs, width):
    """One death of ten million is a column, and one job to come is another."""
    drawn = bar(jobs, width).plain
    assert len(drawn) == width
    bad = {JobState.DEAD, JobState.QUARANTINED, JobState.CANCELED}
    assert ("▚" in drawn) == bool(bad & set(jobs))
    assert ("█" in drawn) == (JobState.SUCCEEDED in jobs)
    assert ("▒" in drawn) == (JobState.LEASED in jobs)
    unfinished = {JobState.PENDING, JobState.WAITING, JobState.RUNNABLE}
    assert ("░" in drawn) == bool(unfinished & set(jobs))


NONE_RUN = {JobState.CANCELED: 1}


@pytest.mark.parametrize(
    ("step", "word"),
    [
        (step_row(0, "a"), "closed"),
        (step_row(0, "a", StepState.READY), "ready"),
        (step_row(0, "a", StepState.READY, jobs={JobState.LEASED: 1}), "running"),
        (step_row(0, "a", StepState.READY, external=True), "asks"),
        (step_row(0, "a", StepState.SKIPPING), "skipping"),
        (step_row(0, "a", StepState.DONE), "done"),
        (step_row(0, "a", StepState.DONE, failed=True), "failed"),
        (step_row(0, "a", StepState.SKIPPED, jobs=NONE_RUN, failed=True), "skipped"),
        (step_row(0, "a", StepState.SKIPPED, jobs={}, failed=True), "failed"),
        (step_row(0, "a", StepState.SKIPPED, jobs={}), "skipped"),
    ],
)
def test_each_state_has_a_word(step, word):
    """What is done and failed is failed; what was skipped was skipped, however.

    But without jobs it stands for other steps, and has failed as they have.
    """
    assert state_word(step) == word


def test_a_step_says_after_what_it_begins():
    """Each condition in its own words, numbers in ranges."""
    assert begins_words(step_row(9, "a")) == ""
    after = (0, 1, 2, 5, (6, When.FAILED), (7, When.FINISHED))
    assert begins_words(step_row(9, "a", StepState.CLOSED, *after)) == (
        "after 0-2, 5, if 6 fails, once 7 has ended"
    )
    several = tuple((number, When.FINISHED) for number in range(8))
    assert begins_words(step_row(9, "a", StepState.CLOSED, *several)) == (
        "once all of 0-7 have ended"
    )
    assert begins_words(step_row(9, "a", hook=Hook.FAILURE)) == "if the flow fails"


def test_a_step_of_one_job_names_it_and_one_of_many_counts():
    """One of none has nothing to say."""
    assert jobs_words(step_row(4, "a")) == "job 34"
    many = {JobState.SUCCEEDED: 1200, JobState.DEAD: 1, JobState.WAITING: 7}
    assert jobs_words(step_row(4, "a", jobs=many)) == "1,201 of 1,208"
    assert jobs_words(step_row(4, "a", jobs={})) is None


def test_a_step_took_what_lies_between_its_first_beginning_and_its_last_end():
    """So far, if it runs; nothing, if it has not begun."""
    charge, _, _, ship, mail, _ = order_steps()
    assert took_s(charge, NOW_MS) == 0.5
    assert took_s(ship, NOW_MS) == 12
    assert took_s(mail, NOW_MS) is None


def test_the_critical_path_is_told_with_times():
    """A time that is not over says so."""
    assert path_words(critical_path(order_steps()), NOW_MS) == (
        "0 charge (500ms) → 1 reserve (4s) → 3 ship (12s so far) → 4 mail"
    )


def test_a_name_controls_no_terminal():
    """It is what an application says."""
    step = step_row(0, "a\x1b[2J\u202e")
    assert "\x1b" not in label(step, "└─ ").plain + path_words([step], NOW_MS)
    assert label(step, "└─ ").plain == r"└─ · 0 a\x1b[2J\u202e"


def said(row, steps, *, is_served=True):
    return list(waits_words(row, steps, NOW_MS, is_served=is_served))


def test_what_a_flow_waits_for_is_told_by_step():
    """Jobs by what they wait for, and where nobody works that as well."""
    assert said(flow_row(), order_steps(), is_served=False) == [
        "step 3 ship: 1 job running",
        "no supervisor is alive: nothing begins until one is",
    ]
    many = {JobState.LEASED: 8, JobState.RUNNABLE: 71, JobState.DEAD: 1}
    assert said(flow_row(), [step_row(0, "parts", StepState.READY, jobs=many)]) == [
        "step 0 parts: 8 jobs running, 71 jobs due, waiting for a slot"
    ]


def test_what_somebody_has_to_approve_says_how_and_until_when():
    """With the command; without a time it waits for ever."""
    step = step_row(
        0, "approval", StepState.READY, external=True, until_ms=NOW_MS + 7_200_000
    )
    assert said(flow_row(), [step]) == [
        (
            "step 0 approval: an approval: jobpool flows approve 30; "
            "without it, it fails in 2h00m, at 2027-01-15 10:00Z"
        )
    ]


def test_a_paused_flow_says_how_to_go_on():
    """And what runs all the same."""
    first, second = said(flow_row(state=FlowState.PAUSED), order_steps())
    assert first == "it is paused; nothing of it begins until: jobpool flows resume 7"
    assert second == "step 3 ship: 1 job running"


def test_between_two_steps_it_waits_for_a_supervisor_and_at_its_end_for_nothing():
    """Nothing that is open waits for nothing."""
    assert said(flow_row(), [step_row(0, "charge")]) == [
        "a supervisor's next look at it, which opens what is next"
    ]
    ended = flow_row(state=FlowState.FAILED, finished_at_ms=NOW_MS, ending=Ending.FAIL)
    assert said(ended, order_steps()) == []
    assert ending_words(ended) == ""
    assert ending_words(flow_row(ending=Ending.CANCEL)).startswith("somebody canceled")


def test_what_has_failed_says_where_to_look():
    """A job, or the jobs of the flow; what was only skipped has not failed."""
    steps = [
        step_row(0, "ship", StepState.DONE, failed=True, jobs={JobState.DEAD: 1}),
        step_row(1, "mail", StepState.SKIPPED, failed=True),
        step_row(
            2,
            "parts",
            StepState.DONE,
            failed=True,
            jobs={JobState.SUCCEEDED: 9, JobState.CANCELED: 1, JobState.DEAD: 1200},
        ),
    ]
    assert list(failed_words(flow_row(), steps)) == [
        "step 0 ship: 1 job dead: jobpool show 30",
        "step 2 parts: 1,200 jobs dead, 1 job canceled: jobpool list --flow 7",
    ]
    assert list(failed_words(flow_row(), [steps[0]] * 8))[5:] == ["3 more steps"]


def test_of_many_steps_under_way_the_first_ones_are_told():
    """And how many more there are."""
    steps = [
        step_row(number, "s", StepState.READY, jobs={JobState.LEASED: 1})
        for number in range(7)
    ]
    assert said(flow_row(), steps)[-1] == "2 more steps under way"
    assert len(said(flow_row(), steps)) == 6
