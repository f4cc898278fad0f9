"""How many calls the host gets: few while they are slow, many while they are fast."""

from jobpool.executor.caller.window import (
    CALLS_MAX,
    NEVER_S,
    RECALL_AFTER_S,
    RECALL_LAST_S,
    RECENT_S,
    Window,
)


def test_the_window_begins_one_larger_than_the_workers():
    """So that a child need not wait for its next call, and few more appear running."""
    window = Window(4)
    assert window.room(0.0, 0) == 5
    assert window.room(0.0, 5) == 0


def test_the_window_opens_while_calls_end_quickly():
    """Twice the number of recent ends comes on top, up to a bound."""
    window = Window(2)
    window.ended(1.0, 10)
    assert window.room(1.0, 0) == 23
    window.ended(1.0, 10 * CALLS_MAX)
    assert window.room(1.0, 0) == CALLS_MAX


def test_the_window_closes_once_calls_stop_ending():
    """Old ends do not count."""
    window = Window(2)
    window.ended(1.0, 10)
    assert window.room(1.0 + 2 * RECENT_S, 0) == 3


def test_calls_that_children_may_be_about_to_begin_are_not_recalled():
    """Only calls beyond the base, and only once none has ended for a while."""
    window = Window(2)
    window.sent(1.0, 0)
    assert window.recall_at_s(3) == NEVER_S
    assert window.recall_at_s(4) == 1.0 + RECALL_AFTER_S
    window.ended(1.02, 1)
    assert window.recall_at_s(4) == 1.02 + RECALL_AFTER_S


def test_recalls_become_rare_while_no_call_ends():
    """Each pause is twice the one before, up to a second; an end starts anew."""
    window = Window(2)
    window.sent(0.0, 0)
    pauses, now_s = [], 0.0
    for _ in range(8):
        at_s = window.recall_at_s(9)
        pauses.append(at_s - now_s)
        now_s = at_s
        window.recalled(now_s)
    assert pauses == sorted(pauses)
    assert abs(pauses[0] - RECALL_AFTER_S) < 1e-9
    assert abs(pauses[-1] - RECALL_LAST_S) < 1e-9
    window.ended(now_s, 1)
    assert abs(window.recall_at_s(9) - now_s - RECALL_AFTER_S) < 1e-9
