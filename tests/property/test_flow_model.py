"""Flows of a store in a file against the plain account of what is to come."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from jobpool.store.opening import open_store
from support.crash_points.states import work_root
from support.store.flow_model import live
from support.store.hypothesis_machine import depth
from support.store.new_file import place_new_file
from support.store.storing import ManualClock, begin_run


@settings(depth(5, 1), deadline=None)
@given(st.data())
def test_any_flow_ends_as_its_members_do(data):
    """No member begins early or twice, none is left, and hooks fire that fit."""
    with tempfile.TemporaryDirectory(dir=work_root()) as folder:
        place_new_file(path := Path(folder, "jobs.db"))
        clock = ManualClock()
        store = open_store(f"sqlite:///{path}", clock=clock)
        try:
            begin_run(store)
            live(store, clock, data)
        finally:
            store.close()
