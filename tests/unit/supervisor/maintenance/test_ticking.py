"""This supervisor's share in keeping schedules: what it reports, and when it looks."""

from types import SimpleNamespace
from typing import Any

import pytest

from jobpool.core.clock import SystemClock
from jobpool.core.events.schedules import SchedulePaused, ScheduleRefused, TicksMissed
from jobpool.core.rules.schedules.rule import Rule
from jobpool.core.rules.schedules.schedule import Declared
from jobpool.errors import FeatureHeldBack
from jobpool.store.records.schedules import Notice, Published, Ticked
from jobpool.supervisor.maintenance.ticking import Ticking

BEAT = Declared(name="beat", kind="beat", pool="io", payload=b"{}", rule=Rule())


@pytest.fixture
def ticking() -> Ticking:
    return Ticking("run", SystemClock())


def store_that(
    answers: list[Any],
    woken: list[str] | None = None,
    asked: list[bool] | None = None,
) -> Any:
    """Return a store that gives these answers, or raises them, one after another."""
    asked = [] if asked is None else asked

    def answer(*_: object, again: bool = False) -> Any:
        asked.append(again)
        said = answers.pop(0)
        if isinstance(said, Exception):
            raise said
        return said

    wake = (lambda: woken.append("wake")) if woken is not None else None
    return SimpleNamespace(tick=answer, publish_schedules=answer, wake=wake)


@pytest.mark.parametrize(
    ("next_due_in_s", "pause_s"),
    [(None, 1.0), (3600.0, 1.0), (0.25, 0.25), (0.0, 0.01), (-5.0, 0.01)],
)
def test_it_looks_again_when_something_is_due_and_at_least_every_second(
    ticking: Ticking, next_due_in_s: float | None, pause_s: float
) -> None:
    """Others may put a schedule at any time; what is due at once lets others write."""
    done = Ticked(next_due_in_s=next_due_in_s)
    assert ticking.tick(store_that([done])) == ((), pause_s)


def test_supervisors_are_woken_for_new_jobs_only(ticking: Ticking) -> None:
    """A step that skipped its ticks is none of their business."""
    woken: list[str] = []
    ticking.tick(store_that([Ticked(skipped=2)], woken))
    assert woken == []
    ticking.tick(store_that([Ticked(enqueued=1)], woken))
    assert woken == ["wake"]


def test_what_somebody_should_know_is_reported(ticking: Ticking) -> None:
    """Each notice in words of its own."""
    notices = (
        Notice(name="a", missed=2, late_ms=90_000),
        Notice(name="b", paused="job 7 is dead"),
        Notice(name="c", unplanned="no such zone"),
    )
    posts, _ = ticking.tick(store_that([Ticked(notices=notices)]))
    assert [type(post) for post in posts] == [
        TicksMissed,
        SchedulePaused,
        ScheduleRefused,
    ]
    assert posts[0].missed == 2
    assert posts[0].late_s == 90


def test_names_that_others_have_are_reported_once(ticking: Ticking) -> None:
    """Again only after they could be stored meanwhile."""
    ticking.declared = (BEAT,)
    refused, kept = Published(refused=("beat",)), Published()
    store = store_that([refused, refused, kept, refused])
    found = [len(ticking.publish(store)) for _ in range(4)]
    assert found == [1, 0, 0, 1]


def test_schedules_that_older_supervisors_hold_back_are_tried_again(
    ticking: Ticking,
) -> None:
    """An application with a codec starts beside them; the log says it once."""
    ticking.declared = (BEAT,)
    held = FeatureHeldBack("supervisor x is too old")
    store = store_that([held, held, Published(added=("beat",))])
    (said,) = ticking.publish(store)
    assert "supervisor x is too old" in said.reason
    assert ticking.publish(store) == ()
    (said,) = ticking.publish(store)
    assert said.added == ("beat",)


def test_what_was_stored_is_published_again_as_that(ticking: Ticking) -> None:
    """Not what newer code kept out, and not what a reload has declared anew."""
    asked: list[bool] = []
    kept, older = Published(), Published(is_newest=False)
    store = store_that([kept, kept, older, kept, kept], asked=asked)
    for _ in range(4):
        ticking.publish(store)
    ticking.declared = (BEAT,)
    ticking.publish(store)
    assert asked == [False, True, True, False, False]
