"""Flows with real supervisors, children and deaths, judged by what is stored."""

import json
import signal

import pytest

from jobpool.core.application.placeholders import placeholder
from jobpool.core.jobs.flow import (
    FlowState,
    Hook,
    NewFlow,
    NewStep,
    StepState,
    When,
)
from jobpool.core.jobs.job import JobState, NewJob
from jobpool.store.records.operating import Filter
from support.postgres.server import server
from support.site.supervising import PATIENCE_S, Site
from support.waiting import wait_until

APP = """
import contextlib, sqlite3


@jobs.job("io", kind="give", max_attempts=1)
def give(value: int) -> int:
    return value


@jobs.job("io", kind="sum", max_attempts=1)
def add_up(values: list[int]) -> int:
    return sum(values)


@jobs.job("io", kind="mint", max_attempts=1)
def mint() -> str:
    return "4711 0815"


@jobs.job("io", kind="pay", max_attempts=1, redact=["token"])
def pay(token: str):
    print("paying with", token)
    raise ValueError(f"refused {token}")


@jobs.job("io", kind="note", max_attempts=1)
def note():
    witness("noted")


@jobs.job("cpu", kind="held", retry=AT_ONCE)
def held(gate: str):
    hold(gate)


@jobs.job("lone", kind="alone")
def alone(gate: str):
    hold(gate)


@jobs.job("lone", kind="once", rerun="never")
def once(gate: str):
    hold(gate)


@jobs.job("cpu", kind="fails", max_attempts=1)
def fails():
    raise ValueError("no")


@jobs.job("cpu", kind="eats", memory="60MiB", max_crashes=1)
def eats():
    kept = b"x" * (160 << 20)
    time.sleep(1000)


@jobs.job("cpu", kind="poison", max_crashes=1)
def poison():
    segfault()


@jobs.job("cpu", kind="slow", timeout="200ms", max_attempts=1)
def slow():
    time.sleep(1000)


@jobs.job("cpu", kind="completes", max_crashes=1)
def completes(dies: bool = False) -> int:
    path = HERE / "jobpool.db"
    with contextlib.closing(sqlite3.connect(path, timeout=20)) as connection:
        with connection:
            current().complete(connection, 7)
    if dies:
        segfault()
    return 8
"""


def member(kind, arguments=None, *, pool="cpu", **options):
    payload = json.dumps(arguments or {}).encode()
    return NewJob(kind=kind, pool=pool, payload=payload, **options)


def note():
    return member("note", pool="io")


def enqueue(site, steps, members):
    """Store a flow as another process would; return its id."""
    made = site.store.enqueue_flow(NewFlow(name="test", steps=tuple(steps)), members)
    site.store.wake()
    return made.id


def watched(site, kind, arguments=None, **options):
    """Store a member, and what follows its success, its failure and any end of it.

    Hooks follow the flow's failure and any end of it.
    """
    after = {"succeeded": When.SUCCEEDED, "failed": When.FAILED}
    steps = [NewStep(number=0, name="watched")]
    for name, when in {**after, "finished": When.FINISHED}.items():
        steps.append(NewStep(number=len(steps), name=name, after=((0, when),)))
    for hook in Hook:
        steps.append(NewStep(number=len(steps), name=f"on {hook}", hook=hook))
    first = member(kind, arguments, **options)
    rest = [(one.number, note()) for one in steps[1:]]
    return enqueue(site, steps, [(0, first), *rest])


def end_of(site, flow_id):
    """Wait for the end of a flow, and return it."""

    def ended():
        found = site.store.flow(flow_id)
        return found if found.row.finished_at_ms is not None else None

    return wait_until(ended, PATIENCE_S, f"flow {flow_id}'s end")


def begun(detail):
    """Return the names of a flow's steps that were not skipped."""
    return [one.name for one in detail.steps if one.state is StepState.DONE]


def first_job(site, flow_id):
    """Return the first member of a flow."""
    (found,) = [
        job
        for job in site.store.find(Filter(), limit=10_000)
        if job.kind != "note" and site.store.flow_of(job.id).flow == flow_id
    ]
    return found


def enqueue_sum(site):
    """Store a flow that adds up the results of three members, and gives the sum on."""
    steps = [
        NewStep(number=0, name="three"),
        NewStep(number=1, name="sum", after=((0, When.SUCCEEDED),)),
        NewStep(number=2, name="same", after=((1, When.SUCCEEDED),)),
    ]
    members = [(0, member("give", {"value": one}, pool="io")) for one in (1, 2, 4)]
    all_three, total = placeholder(0, many=True), placeholder(1, many=False)
    members.append((1, member("sum", {"values": all_three}, pool="io")))
    members.append((2, member("give", {"value": total}, pool="io")))
    return enqueue(site, steps, members)


AFTER_SUCCESS = ["watched", "succeeded", "finished", "on success", "on finish"]
AFTER_FAILURE = ["watched", "failed", "finished", "on failure", "on finish"]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with Site(tmp_path_factory.mktemp("flows"), APP) as site:
        for pools in ("cpu=2", "io=2"):
            site.start(pools)
        yield site
        for supervisor in site.supervisors:
            supervisor.stop()


@pytest.mark.parametrize(
    ("kind", "arguments", "options", "state"),
    [
        ("give", {"value": 1}, {"pool": "io"}, JobState.SUCCEEDED),
        ("fails", {}, {}, JobState.DEAD),
        ("slow", {}, {}, JobState.DEAD),
        ("eats", {}, {}, JobState.QUARANTINED),
        ("poison", {}, {}, JobState.QUARANTINED),
        ("unheard", {}, {"pool": "gone", "expires_in_ms": 100}, JobState.CANCELED),
        ("completes", {}, {}, JobState.SUCCEEDED),
        ("completes", {"dies": True}, {}, JobState.SUCCEEDED),
    ],
    ids=[
        "succeeded",
        "dead",
        "timed out",
        "out of memory",
        "quarantined",
        "expired",
        "completed",
        "completed, then dead",
    ],
)
def test_what_waits_for_an_end_begins_however_that_comes(
    site, kind, arguments, options, state
):
    """And nothing else: of every pair, one step begins and the other is skipped."""
    flow_id = watched(site, kind, arguments, **options)
    detail = end_of(site, flow_id)
    assert detail.steps[0].jobs == {state: 1}
    has_failed = state is not JobState.SUCCEEDED
    assert begun(detail) == (AFTER_FAILURE if has_failed else AFTER_SUCCESS)
    assert detail.row.state is (FlowState.FAILED if has_failed else FlowState.SUCCEEDED)


def test_what_waits_for_a_canceled_member_begins(site):
    """Also if it was running when somebody canceled it."""
    flow_id = watched(site, "held", {"gate": "never"})
    job_id = first_job(site, flow_id).id
    site.wait_begun(job_id)
    site.store.cancel([job_id])
    site.store.wake()
    detail = end_of(site, flow_id)
    assert detail.steps[0].jobs == {JobState.CANCELED: 1}
    assert begun(detail) == AFTER_FAILURE


def test_results_take_their_places_in_arguments(site):
    """Those of all members of a step as a list, of the only one as itself."""
    flow_id = enqueue_sum(site)
    assert end_of(site, flow_id).row.state is FlowState.SUCCEEDED
    found = site.store.step_results(flow_id, (1, 2))
    assert [row.result for row in found] == [b"7", b"7"]


def test_a_result_that_a_kind_redacts_is_in_no_text(site):
    """As an argument from whoever enqueued it: not in what it wrote, nor its error."""
    steps = [
        NewStep(number=0, name="mint"),
        NewStep(number=1, name="pay", after=((0, When.SUCCEEDED),)),
    ]
    token = placeholder(0, many=False)
    members = [
        (0, member("mint", pool="io")),
        (1, member("pay", {"token": token}, pool="io")),
    ]
    detail = end_of(site, enqueue(site, steps, members))
    job = site.store.get(detail.steps[1].first_job)
    (attempt,) = site.store.attempts(job.id)
    assert job.error == "refused [redacted]"
    assert attempt.output == "paying with [redacted]\n"
    assert "4711" not in attempt.traceback


def test_flows_run_on_postgresql(tmp_path):
    """With everything that passes between store, supervisor and child."""
    with Site(tmp_path, APP) as site:
        site.url = server().store_url()
        site.start("io=2", "--store", site.url)
        assert end_of(site, enqueue_sum(site)).row.state is FlowState.SUCCEEDED


def test_a_flow_goes_on_after_the_end_of_its_supervisor(site):
    """Its member is run anew, and what waits for that begins once.

    One that must not run again, since its end is unknown, has failed.
    """
    first = site.start("lone=2")
    flows = [
        watched(site, kind, {"gate": "alone"}, pool="lone")
        for kind in ("alone", "once")
    ]
    for flow_id in flows:
        site.wait_begun(first_job(site, flow_id).id)
    first.send(signal.SIGKILL)
    first.wait_exit()
    site.open_gate("alone")
    site.start("lone=2")
    ends = [begun(end_of(site, flow_id)) for flow_id in flows]
    assert ends == [AFTER_SUCCESS, AFTER_FAILURE]
    assert first_job(site, flows[1]).attempt == 1


def test_a_burst_ends_no_sooner_than_the_flow(tmp_path):
    """Even if all that happens at first is that a member expires."""
    with Site(tmp_path, APP) as site:
        flow_id = watched(site, "unheard", pool="io", expires_in_ms=1)
        supervisor = site.launch("--pools", "io=1", "--burst")
        assert supervisor.wait_exit() == 0
        assert begun(site.store.flow(flow_id)) == AFTER_FAILURE
