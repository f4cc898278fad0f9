"""What is seen of flows; their rows are put in place by hand."""

import contextlib
import sqlite3

import pytest

from jobpool.core.jobs.flow import FlowState, Hook, StepState, When
from jobpool.core.jobs.job import JobState
from jobpool.store.records.flows import FlowFilter, MemberOf
from jobpool.store.records.operating import Filter
from support.postgres.server import query_of, server
from support.store.storing import new_job

ENGINES = ["sqlite", "postgres"]
"""In memory nothing can be put in place by hand."""
FLOWS = (
    (1, "order", "a", "acme", "open", None),
    (2, "order", "b", None, "failed", 5),
    (3, "report", None, None, "building", None),
)
STEPS = ((11, 1, 0, "done"), (12, 1, 1, "ready"), (13, 1, 2, "closed"))
EDGES = ((1, 11, 12, "succeeded"), (1, 11, 13, "failed"), (1, 12, 13, "finished"))


@pytest.fixture
def hand(store):
    """Return what runs a statement beside the store; ``{}`` stands before a table."""
    if store.url.startswith("sqlite"):
        path, before = store.url.removeprefix("sqlite:///"), "jobpool_"
        opened = contextlib.closing(sqlite3.connect(path, isolation_level=None))
    else:
        before = f"{query_of(store.url)['schema']}."
        opened = contextlib.closing(server().connect(store.url))
    with opened as connection:
        yield lambda statement: connection.execute(statement.format(before))


@pytest.fixture
def flows(hand):
    """Put three flows in place; one of them has steps."""

    def text(value):
        return "NULL" if value is None else f"'{value}'"

    for flow_id, name, key, tenant, state, finished in FLOWS:
        hand(
            "INSERT INTO {}flows (id, name, key, tenant, state, failure, "  # noqa: S608
            f"created_at_ms, finished_at_ms) VALUES ({flow_id}, '{name}', {text(key)}, "
            f"{text(tenant)}, '{state}', 'fail', {flow_id}, {finished or 'NULL'})"
        )
    for step, flow, number, state in STEPS:
        hand(
            "INSERT INTO {}steps (id, flow, number, name, state) VALUES "  # noqa: S608
            f"({step}, {flow}, {number}, 's{number}', '{state}')"
        )
    for flow, before, after, when in EDGES:
        hand(
            "INSERT INTO {}edges (flow, from_step, to_step, when_ended) VALUES "  # noqa: S608
            f"({flow}, {before}, {after}, '{when}')"
        )
    hand("UPDATE {}steps SET hook = 'finish' WHERE id = 13")


def join(store, hand, step, count):
    """Store jobs that are members of a step; return their ids."""
    ids = [one.id for one in store.enqueue([new_job()] * count)]
    listed = ", ".join(map(str, ids))
    hand(f"UPDATE {{}}jobs SET step = {step}, generation = 2 WHERE id IN ({listed})")  # noqa: S608
    return ids


def finish(hand, job_id, began_ms, ended_ms):
    hand(
        "UPDATE {}jobs SET state = 'succeeded', outcome = 'succeeded', attempt = 1, "  # noqa: S608
        f"started_at_ms = {began_ms}, finished_at_ms = {ended_ms} WHERE id = {job_id}"
    )


@pytest.mark.usefixtures("flows")
def test_flows_are_found_newest_first_by_what_they_are_called(store):
    """One that is still being built is none yet."""

    def found(**which):
        return [row.id for row in store.flows(FlowFilter(**which))]

    assert found() == found(name="order") == [2, 1]
    assert found(ids=(3, 1, 10**30)) == found(key="a") == found(tenant="acme") == [1]
    assert found(states=(FlowState.FAILED, FlowState.CANCELED)) == [2]
    assert found(name="report") == found(name="or\0der") == []
    assert [row.id for row in store.flows(FlowFilter(), 1)] == [2]
    assert [row.id for row in store.flows(FlowFilter(), 1, before_id=2)] == [1]
    assert store.flows(FlowFilter(), before_id=1) == []
    assert store.flow(3) is store.flow(7) is store.flow(10**30) is None


@pytest.mark.usefixtures("flows")
def test_a_flow_has_its_steps_with_what_their_members_came_to(store, hand):
    """Counts by state, the first job, the first beginning and the last end."""
    first, second = join(store, hand, 11, 2)
    (third,) = join(store, hand, 12, 1)
    finish(hand, first, 40, 70)
    finish(hand, second, 30, 60)
    found = store.flow(1)
    assert (found.row.name, found.row.key, found.row.tenant) == ("order", "a", "acme")
    done, ready, hook = found.steps
    assert (done.state, done.jobs) == (StepState.DONE, {JobState.SUCCEEDED: 2})
    assert (done.first_job, done.began_ms, done.ended_ms) == (first, 30, 70)
    assert (ready.first_job, ready.began_ms, ready.ended_ms) == (third, None, None)
    assert ready.after == ((0, When.SUCCEEDED),)
    assert hook.after == ((0, When.FAILED), (1, When.FINISHED))
    assert (hook.hook, hook.jobs, hook.first_job) == (Hook.FINISH, {}, None)
    assert store.flow(2).steps == ()


@pytest.mark.usefixtures("flows")
def test_one_that_was_replaced_does_not_count(store, hand):
    """Its place is the new one's."""
    first, second = join(store, hand, 12, 2)
    finish(hand, first, 40, 70)
    hand(f"UPDATE {{}}jobs SET replaced_by = {second} WHERE id = {first}")  # noqa: S608
    ready = store.flow(1).steps[1]
    assert (ready.jobs, ready.first_job) == ({JobState.RUNNABLE: 1}, second)
    assert ready.ended_ms is None
    assert store.step_results(1, None) == []


@pytest.mark.usefixtures("flows")
def test_a_flows_ref_leads_to_it_and_is_no_jobs(store):
    """As those of jobs do."""
    ref = store.flow(1).row.ref
    assert ref.startswith("flow-1-")
    assert store.flow_id_of(ref) == 1
    assert store.flow_id_of(ref[:-1]) is None
    assert store.id_of(ref) is None
    (job,) = store.enqueue([new_job()])
    assert store.flow_id_of(store.get(job.id).ref) is None


@pytest.mark.usefixtures("flows")
def test_a_member_knows_its_place_and_those_before_it(store, hand):
    """The numbers of steps, not their rows; what is in no flow has no place."""
    (member,) = join(store, hand, 13, 1)
    (other,) = (one.id for one in store.enqueue([new_job()]))
    assert store.flow_of(member) == MemberOf(1, 2, 2, (0, 1))
    assert store.flow_of(other) is store.flow_of(10**30) is None


@pytest.mark.usefixtures("flows")
def test_results_come_in_order_and_page_by_page(store, hand):
    """Of the steps that are meant, and of those that have succeeded."""
    first, second, _ = join(store, hand, 11, 3)
    (third,) = join(store, hand, 12, 1)
    for job_id in first, second, third:
        finish(hand, job_id, 1, 2)
    every = store.step_results(1, None)
    assert [(row.job_id, row.number) for row in every] == [
        (first, 0),
        (second, 0),
        (third, 1),
    ]
    assert {(row.kind, row.result, row.codec) for row in every} == {
        ("shop.thumbnail", b"null", None)
    }
    assert store.step_results(1, [1]) == every[2:]
    assert store.step_results(1, None, after_id=first, limit=1) == every[1:2]
    assert store.step_results(1, []) == store.step_results(2, None) == []
    store.erase([second])
    left = store.step_results(1, [0])
    assert [(row.job_id, row.is_erased) for row in left] == [
        (first, False),
        (second, True),
    ]


@pytest.mark.usefixtures("flows")
def test_jobs_can_be_sought_by_their_flow(store, hand):
    """With other conditions; they can be counted as well."""
    mine = [*join(store, hand, 11, 2), *join(store, hand, 12, 1)]
    finish(hand, mine[0], 1, 2)
    (other,) = (one.id for one in store.enqueue([new_job()]))
    assert [job.id for job in store.find(Filter(flow=1))] == mine[::-1]
    assert store.find(Filter(flow=1, ids=(other,))) == []
    assert store.count(Filter(flow=1, states=(JobState.RUNNABLE,))) == 2
    assert store.find(Filter(flow=2)) == store.find(Filter(flow=10**30)) == []
    assert sum(row.jobs for row in store.groups(Filter(flow=1))) == 3
