"""Flows of SQLite and PostgreSQL against the plain account of what is to come."""

import contextlib
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from jobpool.store.opening import open_store
from support.crash_points.states import work_root
from support.postgres.server import server
from support.store.flow_meddling import meddle
from support.store.flow_model import live
from support.store.hypothesis_machine import depth
from support.store.new_file import place_new_file
from support.store.storing import ManualClock, begin_run


def live_at(url, data, life=live):
    """Let a flow live in the store at *url*, where the model's clock counts."""
    clock = ManualClock()
    with contextlib.closing(open_store(url, clock=clock)) as store:
        begin_run(store)
        life(store, clock, data)


@settings(depth(5, 1), deadline=None)
@given(st.data())
def test_any_flow_in_a_file_ends_as_its_members_do(data):
    """No member begins early or twice, none is left, and hooks fire that fit."""
    with tempfile.TemporaryDirectory(dir=work_root()) as folder:
        place_new_file(path := Path(folder, "jobs.db"))
        live_at(f"sqlite:///{path}", data)


@settings(depth(3, 1), deadline=None)
@given(st.data())
def test_whatever_people_let_run_again_each_step_ends_as_it_should(data):
    """At any time, jobs of any step: none begins early, and the flow ends whole."""
    with tempfile.TemporaryDirectory(dir=work_root()) as folder:
        place_new_file(path := Path(folder, "jobs.db"))
        live_at(f"sqlite:///{path}", data, meddle)


@settings(depth(4, 1), deadline=None)
@given(st.data())
def test_any_flow_on_a_server_ends_as_its_members_do(data):
    """The same on PostgreSQL."""
    url = server().store_url()
    try:
        live_at(url, data)
    finally:
        server().drop(url)
