"""The critical path of a flow."""

from jobpool.core.jobs.flow import Hook, StepState
from jobpool.words.flows.critical import critical_path
from support.store.flow_rows import done, order_steps, step_row


def path(steps):
    return [one.name for one in critical_path(steps)]


def test_it_goes_through_what_was_waited_for_longest_and_on_to_the_end():
    """The reservation ended after the invoice; a refund is no way to the end."""
    assert path(order_steps()) == ["charge", "reserve", "ship", "mail"]


def test_of_what_is_under_way_it_takes_what_most_steps_wait_for():
    """Not what began first."""
    steps = [
        step_row(0, "alone", StepState.READY),
        step_row(1, "first", StepState.READY),
        step_row(2, "second", StepState.CLOSED, 1),
        step_row(3, "third", StepState.CLOSED, 2),
        step_row(4, "other", StepState.CLOSED, 0),
    ]
    assert path(steps) == ["first", "second", "third"]


def test_among_equals_it_takes_the_lowest_numbers():
    """The same flow has the same path each time that it is looked at."""
    steps = [
        step_row(0, "a", StepState.READY),
        step_row(1, "b", StepState.READY),
        step_row(2, "c", StepState.CLOSED, 0),
        step_row(3, "d", StepState.CLOSED, 0),
        step_row(4, "e", StepState.CLOSED, 1),
    ]
    assert path(steps) == ["a", "c"]


def test_at_the_end_it_leads_to_what_ended_last():
    """A hook is not on it, however long it took."""
    steps = [
        done(0, "charge", began_s=20, took_s=1),
        done(1, "quick", 0, began_s=18, took_s=1),
        done(2, "slow", 0, began_s=18, took_s=9),
        done(3, "tell", began_s=8, took_s=5, hook=Hook.FINISH),
    ]
    assert path(steps) == ["charge", "slow"]


def test_where_nothing_has_begun_there_is_none():
    """Nor where there is nothing."""
    assert path([step_row(0, "charge"), step_row(1, "ship", StepState.CLOSED, 0)]) == []
    assert path([]) == []
