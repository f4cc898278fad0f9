"""When a store that was away is said to be back."""

from __future__ import annotations

import pytest

from jobpool.core.events import supervisor as ev
from jobpool.errors import StoreFull, StoreUnavailable
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.storage import trouble as trouble_of_threads
from jobpool.supervisor.storage.trouble import FULL_CALM_S, Trouble
from support.machine.store_rig import PATIENCE_S, Rig
from support.store.storing import ManualClock


def test_a_full_disk_is_not_over_because_something_could_be_read() -> None:
    """Nor because a small row did fit: else trouble comes and goes each second."""
    clock, said = ManualClock(), []
    trouble = Trouble(said.append, clock)
    for _ in range(20):
        trouble.seen(StoreFull("there is no room on its disk"))
        clock.advance(0.5)
        trouble.over(has_written=False)
        trouble.over()
        clock.advance(0.5)
    assert [type(event) for event in said] == [ev.StoreTrouble]
    clock.advance(FULL_CALM_S)
    trouble.over(has_written=False)
    assert len(said) == 1
    trouble.over()
    assert [type(event) for event in said] == [ev.StoreTrouble, ev.StoreBack]
    # One that did not answer is back as soon as it does.
    trouble.seen(StoreUnavailable("away"))
    trouble.over(has_written=False)
    assert len(said) == 4


def test_a_look_for_jobs_that_finds_none_does_not_show_that_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It writes nothing; what is stored does."""
    monkeypatch.setattr(trouble_of_threads, "FULL_CALM_S", 0.0)
    rig = Rig(ManualClock())
    rig.store.failures = [StoreFull("there is no room on its disk")]
    rig.thread.leave([cmd.Lease({"cpu": 1})])
    rig.wait_for(inp.GrantFailed)
    rig.thread.leave([cmd.Lease({"cpu": 1})])
    rig.wait_for(inp.Granted)
    assert not rig.of(ev.StoreBack)
    rig.settle(1)
    rig.wait_settled(1)
    assert len(rig.of(ev.StoreTrouble)) == len(rig.of(ev.StoreBack)) == 1
    rig.thread.close(PATIENCE_S)
