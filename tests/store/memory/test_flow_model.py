"""Flows of the store in memory against the plain account."""

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from jobpool.core.rules.admission import Admission
from jobpool.store.memory.database import MemoryDatabase
from jobpool.store.memory.store import MemoryStore
from support.store.flow_meddling import meddle
from support.store.flow_model import live
from support.store.hypothesis_machine import depth
from support.store.storing import ManualClock, begin_run


def at_once(life, data):
    """Let a flow live in a store of its own."""
    clock = ManualClock()
    store = MemoryStore(
        MemoryDatabase("flows"),
        clock=clock,
        admission=Admission(),
        run_root=Path("/nonexistent"),
    )
    begin_run(store)
    life(store, clock, data)


@settings(depth(40, 1), deadline=None)
@given(st.data())
def test_any_flow_ends_as_its_members_do(data):
    """No member begins early or twice, none is left, and hooks fire that fit."""
    at_once(live, data)


@settings(depth(20, 1), deadline=None)
@given(st.data())
def test_whatever_people_let_run_again_each_step_ends_as_it_should(data):
    """At any time, jobs of any step: none begins early, and the flow ends whole."""
    at_once(meddle, data)
