"""The heartbeat file: ready means that jobs can begin."""

from __future__ import annotations

import pytest

from jobpool.cli.launch.heartbeat_file import LifeSign, Stage
from jobpool.core.events.event import Event
from jobpool.core.events.supervisor import (
    LeaseFenced,
    LeaseRegained,
    StoreBack,
    StoreTrouble,
    SupervisorDraining,
    SupervisorReady,
)

READY = SupervisorReady(
    at_ms=0, pid=1, run_id="r", pools={}, store="s", app="a", version="0"
)
TROUBLE = StoreTrouble(at_ms=0, error="x", again_in_s=0.1)
FENCED = LeaseFenced(at_ms=0, silent_s=9.0, ended=1, handed_back=0)
REGAINED = LeaseRegained(at_ms=0, away_s=9.0)
BACK = StoreBack(at_ms=0, away_s=1.0)
DRAINING = SupervisorDraining(at_ms=0, pid=1, reason="TERM", running=0, drain_s=1.0)


@pytest.mark.parametrize(
    ("events", "stage"),
    [
        ([], Stage.LOADING),
        ([TROUBLE], Stage.LOADING),
        ([TROUBLE, READY], Stage.WAITING),
        ([READY], Stage.READY),
        ([READY, TROUBLE], Stage.WAITING),
        ([READY, TROUBLE, BACK], Stage.READY),
        ([READY, FENCED, TROUBLE, BACK], Stage.WAITING),
        ([READY, FENCED, TROUBLE, BACK, REGAINED], Stage.READY),
        ([READY, TROUBLE, DRAINING, BACK], Stage.ENDING),
    ],
)
def test_ready_means_that_jobs_can_begin(events: list[Event], stage: Stage) -> None:
    """Not before the application is loaded, nor while the store cannot be used."""
    sign = LifeSign()
    for event in events:
        assert sign.hears(type(event))
        sign.observe(event)
    assert sign._stage is stage
