"""A damaged row of a flow costs that flow alone, in a store that runs."""

import contextlib
import sqlite3

import psycopg
import pytest

from jobpool.core.jobs.flow import Hook, When
from jobpool.core.jobs.job import Debounce, JobState, OnConflict
from jobpool.store.records.flows import FlowFilter
from support.postgres.server import libpq_url, query_of
from support.store.flows import only, run_to_end, state, step, store_flow, unfinished
from support.store.storing import begin_run, new_job

ENGINES = ["sqlite", "postgres"]
BOTH = (
    "UPDATE {}flows SET state = 'lost' WHERE id = {}",
    "UPDATE {}flows SET failure = 'lost' WHERE id = {}",
    "UPDATE {}flows SET ending = 'lost' WHERE id = {}",
    "UPDATE {}steps SET state = 'lost' WHERE number = 0 AND flow = {}",
    "UPDATE {}steps SET state = 'lost' WHERE number = 1 AND flow = {}",
    "UPDATE {}steps SET hook = 'lost' WHERE number = 1 AND flow = {}",
    "UPDATE {}steps SET hook = 'lost' WHERE number = 2 AND flow = {}",
    "UPDATE {}edges SET when_ended = 'lost' WHERE flow = {}",
)
SQLITE = (
    "UPDATE {}steps SET failed = 'x' WHERE number = 0 AND flow = {}",
    "UPDATE {}steps SET timeout_ms = 'x' WHERE number = 1 AND flow = {}",
    "UPDATE {}edges SET to_step = 'x' WHERE flow = {}",
)


@pytest.fixture
def damage(store_url):
    """Return a function that writes past the rules of the database."""

    def sqlite(text, flow):
        with contextlib.closing(sqlite3.connect(store_url[len("sqlite:///") :])) as one:
            one.execute("PRAGMA ignore_check_constraints = ON")
            one.execute(text.format("jobpool_", flow))
            one.commit()

    def postgres(text, flow):
        schema = query_of(store_url)["schema"]
        with psycopg.connect(libpq_url(store_url)) as one:
            rules = one.execute(
                "SELECT conrelid::regclass, conname FROM pg_constraint WHERE "
                "contype = 'c' AND connamespace = %s::regnamespace",
                [schema],
            ).fetchall()
            for table, name in rules:
                one.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
            one.execute(text.format(f"{schema}.", flow))

    return sqlite if store_url.startswith("sqlite") else postgres


def test_a_damaged_row_of_a_flow_costs_that_flow_alone(store, store_url, damage):
    """It is shown, named and canceled, and its hook runs; another goes on."""
    texts = BOTH + (SQLITE if store_url.startswith("sqlite") else ())
    flows = [
        store_flow(store, step(0), step(1, 0), step(2, hook=Hook.FINISH)) for _ in texts
    ]
    other = store_flow(store, step(0), step(1, 0))
    for text, flow in zip(texts, flows, strict=True):
        damage(text, flow)
    assert len(store.flows(FlowFilter())) == len(flows) + 1
    assert all(len(store.flow(flow).steps) == 3 for flow in flows)
    run_to_end(store)
    said = "\n".join(store.damaged_rows())
    assert state(store, other) == "succeeded"
    for text, flow in zip(texts, flows, strict=True):
        assert state(store, flow) == "canceled", text
        assert unfinished(store, flow) == [], text
        assert f"flow {flow} could not be read and was repaired" in said, text
        if "number = 2" not in text:
            assert only(store, flow, 2).state is JobState.SUCCEEDED, text


def test_a_job_that_waits_for_nothing_is_named(store, store_url, damage):
    """Its step is not there, so its turn never comes; one that waits rightly is not."""
    steps = ["NULL", "-99", "99"]
    steps += ["'x'", "x'00'"] if store_url.startswith("sqlite") else []
    flows = [store_flow(store, step(0), step(1, 0)) for _ in [*steps, "as it was"]]
    begin_run(store)
    for _ in range(2):
        again = new_job(unique="u", debounce=Debounce(OnConflict.REPLACE), priority=9)
        (follower,) = store.enqueue([again])
        if store.get(follower.id).state is JobState.RUNNABLE:
            store.lease("run-1", {"cpu": 1}, {"cpu": [again.kind]})
    assert store.get(follower.id).state is JobState.WAITING
    assert store.strays() == []
    hurt = [only(store, flow, 1).id for flow in flows[:-1]]
    for job_id, text in zip(hurt, steps, strict=True):
        damage(f"UPDATE {{}}jobs SET step = {text} WHERE id = {{}}", job_id)  # noqa: S608 - ours
    assert store.strays() == sorted(hurt)
    assert store.strays(limit=2) == sorted(hurt)[:2]
    store.cancel(hurt)
    assert store.strays() == []


@pytest.mark.parametrize("number", [0, 1])
def test_a_member_whose_row_is_damaged_fails_its_step_when_it_is_found(
    store, store_url, damage, number
):
    """By a scrub, also before its turn; what waits for that failure begins."""
    flow = store_flow(
        store, step(0), step(1, 0), step(2, 1, when=When.FAILED), step(3, 1)
    )
    text = "UPDATE {}jobs SET max_attempts = -7 WHERE id = {}"
    damage(text, only(store, flow, number).id)
    place = store.scrub(None)
    while place is not None:
        place = store.scrub(place)
    assert only(store, flow, number).state is JobState.DEAD
    assert run_to_end(store) == ([[0], [2]] if number else [])
    store.fold()
    assert state(store, flow) == "failed"
    assert unfinished(store, flow) == []
