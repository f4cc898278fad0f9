"""What keys change of what is looked at, and what they ask for."""

import msgspec
import pytest

from jobpool.cli.terminal.keys import keys_in
from jobpool.cli.watch.top.view import (
    BINDINGS,
    BY_KEY,
    SORTS,
    Open,
    Pane,
    Quit,
    Sort,
    View,
    place_of,
    press,
    rows_of,
)
from jobpool.operations.jobs import Cancel, Release, Retry
from jobpool.operations.queue import Pause, Resume
from jobpool.store.records.operating import PauseRow
from support.glances import MIB, end_row, glance, pool_row, running_row


def typed(view, seen, *keys):
    """Press keys; return the view and the last request."""
    request = None
    for key in keys:
        view, request = press(key, view, seen)
    return view, request


def ids(view, seen):
    return [one.job.id for one in rows_of(seen, view).running]


RUNNING = [
    running_row(1, 30, rss_bytes=500 * MIB, kind="shop.a", progress=b"0.2"),
    running_row(2, 90, rss_bytes=100 * MIB, kind="shop.c", progress=b"0.9"),
    running_row(3, 60, rss_bytes=None, kind="shop.b", progress=b'"words"'),
]


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        (Sort.RUNS, [2, 3, 1]),
        (Sort.MEMORY, [1, 2, 3]),
        (Sort.PROGRESS, [2, 1, 3]),
        (Sort.KIND, [1, 3, 2]),
        (Sort.JOB, [1, 2, 3]),
    ],
)
def test_what_runs_is_sorted_by_any_column_either_way(sort, expected):
    """What is most worth a look comes first; unknown figures come last."""
    seen = glance(RUNNING)
    assert ids(View(sort=sort), seen) == expected
    assert ids(View(sort=sort, reverse=True), seen) == expected[::-1]


def test_s_goes_through_all_columns():
    """And comes back to the first."""
    view, found = View(), []
    for _ in SORTS:
        found.append(view.sort)
        view, _ = press("s", view, glance())
    assert tuple(found) == SORTS
    assert view.sort is SORTS[0]
    assert press("S", view, glance())[0].reverse


def test_the_chosen_row_stays_chosen_while_others_come_and_go():
    """By its job, not by its place."""
    seen = glance(RUNNING)
    view, _ = typed(View(), seen, "down")
    assert view.chosen[Pane.RUNNING] == 3
    more = glance([running_row(9, 999), running_row(8, 500), *RUNNING])
    assert ids(view, more)[place_of(view, rows_of(more, view), Pane.RUNNING)] == 3
    gone = glance([RUNNING[0], RUNNING[1]])
    place = place_of(view, rows_of(gone, view), Pane.RUNNING)
    assert ids(view, gone)[place] == 1, "the row that stands there now"
    assert place_of(view, rows_of(glance(), view), Pane.RUNNING) is None


@pytest.mark.parametrize("key", ["down", "up", "page down", "page up", "home", "end"])
def test_no_key_leaves_the_rows(key):
    """However often it is pressed, and if there are none."""
    view, _ = typed(View(), glance(), key, key)
    assert view.chosen == {}
    seen = glance(RUNNING)
    view, _ = typed(View(), seen, *[key] * 20)
    at = 0 if key in {"up", "page up", "home"} else 2
    assert place_of(view, rows_of(seen, view), Pane.RUNNING) == at


def test_a_job_is_canceled_only_after_a_yes_and_it_is_the_one_that_was_named():
    """Whatever has moved to its place between the question and the answer."""
    view, request = typed(View(), glance(RUNNING), "c")
    assert request is None
    assert "job 2" in view.asked.question
    assert "shop.c" in view.asked.question
    _, request = press("y", view, glance([running_row(7, 9999)]))
    assert isinstance(request, Cancel)
    assert request.jobs.ids == (2,)


@pytest.mark.parametrize("key", ["n", "enter", "escape", " ", "q", "c", "down"])
def test_any_answer_but_yes_changes_nothing(key):
    """And it is not taken for another key."""
    view, _ = typed(View(), glance(RUNNING), "c")
    after, request = press(key, view, glance(RUNNING))
    assert request is None
    assert after.asked is None
    assert after.said == "nothing was changed"
    assert after.chosen == view.chosen


@pytest.mark.parametrize(
    ("state", "act"),
    [("dead", Retry), ("pending", Retry), ("quarantined", Release)],
)
def test_a_dead_job_is_let_run_again(state, act):
    """By what fits its state."""
    seen = glance(deaths=[end_row(5, state=state)])
    view, _ = typed(View(pane=Pane.DEATHS), seen, "r")
    _, request = press("y", view, seen)
    assert type(request) is act
    assert request.jobs.ids == (5,)


@pytest.mark.parametrize("state", ["succeeded", "leased", "runnable", "canceled"])
def test_a_job_that_need_not_run_again_is_left_alone(state):
    """It says so instead of asking."""
    seen = glance(deaths=[end_row(5, state=state)])
    view, request = typed(View(pane=Pane.DEATHS), seen, "r")
    assert (view.asked, request) == (None, None)
    assert state in view.said


@pytest.mark.parametrize(
    ("view", "seen"),
    [
        (View(pane=Pane.POOLS), glance(RUNNING)),
        (View(pane=Pane.DEATHS), glance(RUNNING)),
        (View(), glance()),
    ],
)
def test_nothing_is_canceled_where_no_running_job_is_chosen(view, seen):
    """Only what is marked can be meant."""
    after, request = press("c", view, seen)
    assert (after.asked, request) == (None, None)
    assert "choose" in after.said


def test_p_pauses_a_pool_or_a_kind_and_resumes_it():
    """Of the chosen row; a question says which, and what goes on."""
    seen = glance(RUNNING, [end_row()])
    asked = {pane: press("p", View(pane=pane), seen)[0].asked.action for pane in Pane}
    assert asked == {
        Pane.POOLS: Pause(pool="cpu"),
        Pane.RUNNING: Pause(kind="shop.c"),
        Pane.DEATHS: Pause(kind="shop.scan"),
    }
    pools = [pool_row(pause=PauseRow(what="pool", name="cpu"))]
    paused = glance(RUNNING, pools=pools, kinds_paused=frozenset({"shop.c"}))
    asked = [
        press("p", View(pane=pane), paused)[0].asked.action
        for pane in (Pane.POOLS, Pane.RUNNING)
    ]
    assert asked == [Resume(pool="cpu"), Resume(kind="shop.c")]
    empty, _ = press("p", View(), glance())
    assert empty.asked is None


def test_a_filter_is_typed_and_cleared():
    """Letters are letters then; keys have no other meaning."""
    seen = glance(RUNNING, [end_row(kind="shop.b"), end_row(6)])
    view, _ = typed(View(), seen, "/", *"SHOP.qb", "backspace", "backspace", "b")
    assert view.is_typing
    assert ids(view, seen) == [3]
    view, request = typed(view, seen, "enter")
    assert (view.is_typing, view.wanted, request) == (False, "SHOP.b", None)
    assert len(rows_of(seen, view).deaths) == 1
    view, _ = press("escape", view, seen)
    assert ids(view, seen) == [2, 3, 1]
    view, _ = typed(View(), seen, "/", "x", "escape")
    assert (view.wanted, view.is_typing) == ("", False)


def test_enter_opens_a_job_or_what_runs_in_a_pool():
    """And Escape closes it."""
    seen = glance(RUNNING, [end_row(77)])
    assert press("enter", View(), seen)[1] == Open(2)
    assert press("enter", View(pane=Pane.DEATHS), seen)[1] == Open(77)
    view, request = press("enter", View(pane=Pane.POOLS), seen)
    assert (view.pane, view.wanted, request) == (Pane.RUNNING, "cpu/", None)
    assert ids(view, seen) == [2, 3, 1]
    opened = View(opened=("one", "two", "three"), opened_id=2)
    view, _ = typed(opened, seen, "down", "down", "down", "down")
    assert view.top == 2
    view, _ = press("escape", view, seen)
    assert (view.opened, view.opened_id, view.top) == (None, None, 0)


def test_tab_goes_through_the_panes_both_ways():
    """And q ends."""
    view, _ = press("tab", View(), glance())
    assert view.pane is Pane.DEATHS
    view, _ = press("back tab", view, glance())
    assert view.pane is Pane.RUNNING
    assert press("q", view, glance())[1] == Quit()
    helped, _ = press("?", view, glance())
    assert helped.helped
    assert press("q", helped, glance()) == (view, None)


def test_each_key_has_one_meaning():
    """The table is the help, too: no key is in it twice."""
    assert len(BY_KEY) == sum(len(one.keys) for one in BINDINGS)


def test_what_was_said_goes_with_the_next_key():
    """A view never keeps an old answer."""
    view = msgspec.structs.replace(View(), said="job 2 canceled")
    assert press("down", view, glance(RUNNING))[0].said == ""


@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        ("q", ["q"]),
        ("\x1b[A\x1b[B", ["up", "down"]),
        ("\x1bOA\x1bOC", ["up", "right"]),
        ("\x1b[5~\x1b[6~\x1b[1~\x1b[F", ["page up", "page down", "home", "end"]),
        (
            "\x1b[Z\t\r\n\x7f\x08",
            ["back tab", "tab", *["enter"] * 2, *["backspace"] * 2],
        ),
        ("\x1b", ["escape"]),
        ("\x1b\x1b[A", ["escape", "up"]),
        ("\x1b[200~\x1b[1;5A\x1b[<0;3;4M", []),
        ("ä漢", ["ä", "漢"]),
        ("\x00\x01\x9b", []),
    ],
)
def test_keys_are_told_apart_in_what_a_terminal_sends(sent, keys):
    """Sequences that mean nothing here are no letters."""
    assert list(keys_in(sent)) == keys
