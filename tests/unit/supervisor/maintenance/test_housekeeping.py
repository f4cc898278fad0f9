"""Housekeeping: wake-ups lead to a check for cancellations, after other requests."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from jobpool.core.clock import SystemClock
from jobpool.core.config.settings import Settings
from jobpool.core.rules.run_report import HostReport
from jobpool.core.rules.usage.sketch import Measure
from jobpool.errors import OutcomeUnknown, StoreError, StoreUnavailable
from jobpool.store.contract.watermark import Watermark
from jobpool.store.records.flows import Folded
from jobpool.store.records.reading import SketchRow
from jobpool.store.records.runs import Renewal
from jobpool.store.records.schedules import Ticked
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.state.usage import Usage
from jobpool.supervisor.maintenance import housekeeping
from jobpool.supervisor.maintenance.housekeeping import Housekeeping
from jobpool.supervisor.maintenance.other_pools import OtherPools
from jobpool.supervisor.maintenance.ticking import Ticking
from support.waiting import wait_until

PATIENCE_S = 30.0


@pytest.fixture
def chores() -> list[str]:
    """The chores that were left with the store thread, by name."""
    return []


@pytest.fixture
def keeper(chores: list[str]) -> Iterator[Housekeeping]:
    store: Any = SimpleNamespace(
        shared=True,
        chore=lambda chore: chores.append(chore.__name__),
        known=Watermark("run"),
    )
    settings = Settings(store="x", app="x", app_directory="/", pools=())
    keeper = Housekeeping(
        settings,
        "run",
        store=store,
        usage=Usage(),
        ticking=Ticking("own", SystemClock()),
        other_pools=OtherPools(store),
        look=HostReport,
        clock=SystemClock(),
    )
    yield keeper
    keeper.close()
    keeper.join(PATIENCE_S)
    assert not keeper.is_alive()


def test_many_wake_ups_cause_few_checks_for_cancellations(
    keeper: Housekeeping, chores: list[str]
) -> None:
    """Soon, and once for many of them: not each costs a query."""
    keeper.start()
    wait_until(lambda: "_cancels" in chores, PATIENCE_S, "the first look")
    keeper._canceling.every_s = 3600.0
    before = chores.count("_cancels")
    for _ in range(1000):
        keeper.check_cancels()
    wait_until(lambda: chores.count("_cancels") > before, PATIENCE_S, "a look")
    assert chores.count("_cancels") <= before + 50


def test_a_backlog_is_pruned_without_a_wait_for_the_next_turn(
    keeper: Housekeeping, chores: list[str]
) -> None:
    """A step that was full is soon followed by another one."""
    full: Any = SimpleNamespace(
        prune=lambda _, rows: rows, drop_outputs=lambda _, rows: 0
    )
    for turn in keeper._turns:
        turn.next_s += 3600.0
    keeper.start()
    keeper._prune(full)
    wait_until(lambda: "_prune" in chores, PATIENCE_S, "the next step")


def test_steps_of_what_is_due_at_once_follow_each_other_without_a_wait(
    keeper: Housekeeping, chores: list[str]
) -> None:
    """10,000 ticks are a thousand steps on SQLite: ten milliseconds each are too many.

    What has been left meanwhile is written between two.
    """
    due: Any = SimpleNamespace(tick=lambda: Ticked(next_due_in_s=0.0))
    keeper._tick(due)
    assert chores == ["_tick"]
    rests: Any = SimpleNamespace(tick=lambda: Ticked(next_due_in_s=0.5))
    keeper._tick(rests)
    assert chores == ["_tick"]
    keeper.start()


@pytest.mark.parametrize(
    ("folded", "wakes", "is_again_soon"),
    [
        (Folded(), 0, False),
        (Folded(opened=frozenset({"cpu"})), 1, False),
        (Folded(is_short=True), 0, True),
    ],
    ids=["nothing", "opened", "not all of it"],
)
def test_flows_go_on_while_nobody_asks_for_jobs(
    keeper: Housekeeping,
    chores: list[str],
    folded: Folded,
    wakes: int,
    *,
    is_again_soon: bool,
) -> None:
    """Whoever may run what begins is woken; what is left is not left for a second."""
    woken: list[bool] = []
    store: Any = SimpleNamespace(fold=lambda: folded, wake=lambda: woken.append(True))
    for turn in keeper._turns:
        turn.next_s += 3600.0
    keeper.start()
    keeper._fold(store)
    assert len(woken) == wakes
    if is_again_soon:
        wait_until(lambda: "_fold" in chores, PATIENCE_S, "the next fold")
    else:
        assert keeper._folds.next_s > SystemClock().monotonic_s() + 3000.0


def test_housekeeping_ends_at_once_although_nothing_is_due(
    keeper: Housekeeping,
) -> None:
    """Whatever it waits for."""
    for turn in keeper._turns:
        turn.next_s += 3600.0
    keeper.start()
    keeper.close()
    keeper.join(PATIENCE_S)
    assert not keeper.is_alive()


@pytest.mark.parametrize(
    ("renewal", "posted"),
    [(Renewal.HELD, []), (Renewal.OUTDATED, [inp.Outdated])],
)
def test_an_outdated_run_on_one_host_is_told(
    keeper: Housekeeping, renewal: Renewal, posted: list[type]
) -> None:
    """It keeps its leases, which what it has needs until its end."""
    keeper.start()
    store: Any = SimpleNamespace(renew=lambda _run, _ttl_s, *, anew, known: renewal)
    assert [type(one) for one in keeper._renew(store)] == posted


def test_what_was_asked_for_is_granted_by_housekeeping(
    keeper: Housekeeping, chores: list[str]
) -> None:
    """Nobody else may look, once the last supervisor of an older release has ended."""
    keeper.start()
    wait_until(lambda: "_formats" in chores, PATIENCE_S, "a look at the formats")
    granted: list[bool] = []
    store: Any = SimpleNamespace(grant_format=lambda: granted.append(True))
    assert keeper._formats(store) == ()
    assert granted == [True]


class SketchStore:
    """A store that keeps rows, or is away."""

    def __init__(self) -> None:
        self.batches: list[list[SketchRow]] = []
        self.error: StoreError | None = None

    def add_sketches(self, rows: list[SketchRow]) -> None:
        if self.error is not None:
            raise self.error
        self.batches.append(rows)


def _count(store: SketchStore) -> int:
    rows = [row for batch in store.batches for row in batch]
    return sum(row.attempts for row in rows if row.measure is Measure.MEMORY)


@pytest.mark.parametrize(
    ("error", "kept"), [(StoreUnavailable("away"), 3), (OutcomeUnknown("lost"), 0)]
)
def test_usage_that_was_not_written_is_written_later_and_none_twice(
    keeper: Housekeeping, error: StoreError, kept: int
) -> None:
    """If it may have been written, it is not counted once more."""
    keeper.start()
    keeper._usage.succeeded("work", "cpu", [1000] * 3, [0.5] * 3)
    store: Any = SketchStore()
    store.error = error
    with pytest.raises(type(error)):
        keeper.write_usage(store)
    store.error = None
    keeper.write_usage(store)
    assert _count(store) == kept
    keeper.write_usage(store)
    assert _count(store) == kept


def test_much_usage_is_written_in_bounded_statements(
    keeper: Housekeeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No row is lost, and none is written twice."""
    monkeypatch.setattr(housekeeping, "USAGE_ROWS", 7)
    keeper.start()
    for kind in range(20):
        keeper._usage.succeeded(f"kind.{kind}", "cpu", [1000], [0.5])
    store: Any = SketchStore()
    keeper.write_usage(store)
    assert max(map(len, store.batches)) == 7
    assert sum(map(len, store.batches)) == 40
