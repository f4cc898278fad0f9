"""`jobpool flows`, and what other commands say of flows."""

import contextlib
import re
import sqlite3

import pytest

from jobpool.cli.context import now_ms
from jobpool.core.jobs.flow import Hook, NewStep, When
from jobpool.core.jobs.job import JobState, NewJob, Settlement
from jobpool.core.jobs.outcome import CHARGES, Outcome
from support.store.cli_store import CLEAR, KIND, RUN, rows, run, stored, url_of
from support.store.storing import started

ORDER = (
    NewStep(number=0, name="charge"),
    NewStep(number=1, name="reserve", after=((0, When.SUCCEEDED),)),
    NewStep(number=2, name="invoice", after=((0, When.SUCCEEDED),)),
    NewStep(number=3, name="ship", after=((1, When.SUCCEEDED), (2, When.SUCCEEDED))),
    NewStep(number=4, name="refund", after=((3, When.FAILED),)),
    NewStep(number=5, name="tell", hook=Hook.FINISH),
)


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JOBPOOL_STORE", url_of(tmp_path))
    store = stored(tmp_path)
    yield store
    store.close()


def member(**more):
    given = {"kind": KIND.kind, "pool": KIND.pool, "payload": b'{"path": "a.jpg"}'}
    return NewJob(**given | more)


def place(store, name="order", steps=ORDER, key=None, tenant=None):
    """Put a flow with one job a step in place by hand; return its number."""
    ids = [one.id for one in store.enqueue([member()] * len(steps))]
    with hand_of(store) as hand:
        flow = hand.execute(
            "INSERT INTO jobpool_flows (name, key, tenant, state, failure, "
            "created_at_ms) VALUES (?, ?, ?, 'open', 'fail', ?) RETURNING id",
            (name, key, tenant, now_ms()),
        ).fetchone()[0]
        rows = {}
        for one, job_id in zip(steps, ids, strict=True):
            begins = not one.after and one.hook is None
            (rows[one.number],) = hand.execute(
                "INSERT INTO jobpool_steps (flow, number, name, state, hook) "
                "VALUES (?, ?, ?, ?, ?) RETURNING id",
                (flow, one.number, one.name, "ready" if begins else "closed", one.hook),
            ).fetchone()
            hand.execute(
                "UPDATE jobpool_jobs SET step = ?, state = ? WHERE id = ?",
                (rows[one.number], "runnable" if begins else "waiting", job_id),
            )
            for before, when in one.after:
                edge = (flow, rows[before], rows[one.number], when)
                hand.execute("INSERT INTO jobpool_edges VALUES (?, ?, ?, ?)", edge)
    return flow


def hand_of(store):
    path = store.url.removeprefix("sqlite:///")
    return contextlib.closing(sqlite3.connect(path, isolation_level=None))


def end_next(store, outcome=Outcome.SUCCEEDED, state=JobState.SUCCEEDED, opens=()):
    """Run the job that is due; its step is done, and others open, by hand."""
    (lease,) = store.lease(RUN.id, {"cpu": 1}, {"cpu": [KIND.kind]}).leases
    store.begin_attempts([started(lease, "cpu/1")])
    settlement = Settlement(
        id=lease.id,
        token=lease.token,
        state=state,
        outcome=outcome,
        charge=CHARGES[outcome],
        result=b'"done"',
    )
    assert store.settle([settlement]) == [True]
    member_of = store.flow_of(lease.id)
    with hand_of(store) as hand:
        hand.execute(
            "UPDATE jobpool_steps SET state = 'done', failed = ? "
            "WHERE flow = ? AND number = ?",
            (state is not JobState.SUCCEEDED, member_of.flow, member_of.number),
        )
        for number in opens:
            hand.execute(
                "UPDATE jobpool_steps SET state = 'ready' "
                "WHERE flow = ? AND number = ?",
                (member_of.flow, number),
            )
            hand.execute(
                "UPDATE jobpool_jobs SET state = 'runnable' WHERE step = "
                "(SELECT id FROM jobpool_steps WHERE flow = ? AND number = ?)",
                (member_of.flow, number),
            )
    return lease.id


def jobs_of(store, flow):
    """Return the first job of each step, by the step's name."""
    return {step.name: step.first_job for step in store.flow(flow).steps}


def words(result):
    """Return the lines of an output, with single spaces."""
    assert result.exit_code == 0, result.output
    return [" ".join(line.split()) for line in result.stdout.splitlines()]


def test_flows_are_listed_newest_first_with_what_they_are_called(store):
    """For people in words, for programs with everything."""
    first = place(store, "order", key="1042", tenant="acme")
    second = place(store, "report")
    head, newest, oldest = words(run("flows"))
    assert head == "ID STATE NAME TENANT CREATED TOOK KEY"
    assert re.fullmatch(rf"{second} open report - \S+ ago \S+ -", newest)
    assert re.fullmatch(rf"{first} open order acme \S+ ago \S+ 1042", oldest)
    assert [row["name"] for row in rows(run("flows", "--json"))] == ["report", "order"]
    assert [row["id"] for row in rows(run("flows", "--limit", 1, "--json"))] == [second]
    for which in (
        ("--name", "order"),
        ("--key", "1042"),
        ("--tenant", "acme"),
        ("--name", "order", "--state", "open"),
    ):
        assert [row["id"] for row in rows(run("flows", *which, "--json"))] == [first]


def test_where_no_flow_is_meant_a_note_says_so(store):
    """An empty list is no error; an option of the list is none of a command."""
    place(store)
    result = run("flows", "--state", "failed")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "there is no such flow" in result.stderr
    wrong = run("flows", "--state", "open", "show", 1)
    assert wrong.exit_code == 2
    assert "--state is for the list of flows; 'show' is about one" in wrong.stderr


def test_a_flow_is_shown_as_a_tree_with_what_it_waits_for(store):
    """Which step is how far, where branches join, and what the end depends on."""
    flow = place(store, key="1042")
    end_next(store, opens=(1, 2))
    end_next(store)
    jobs = jobs_of(store, flow)
    seen = words(run("flows", "show", flow))
    assert seen[0] == f"flow {flow} order open"
    assert seen[1].endswith("2 of 6 jobs ended")
    assert "waits for step 2 invoice: 1 job due, waiting for a slot" in seen
    at = seen.index("STEPS")
    assert seen[at + 1] == "STEP STATE JOBS TOOK BEGINS"
    took = r"\d[\d.]*m?s"
    for line, pattern in zip(
        seen[at + 2 : at + 8],
        (
            rf"✔ 0 charge done job {jobs['charge']} {took}",
            rf"├─ ✔ 1 reserve done job {jobs['reserve']} {took} after 0",
            rf"├─ ◌ 2 invoice ready job {jobs['invoice']} - after 0",
            rf"· 3 ship closed job {jobs['ship']} - after 1-2",
            rf"· 4 refund closed job {jobs['refund']} - if 3 fails",
            rf"· 5 tell closed job {jobs['tell']} - at the flow's end",
        ),
        strict=True,
    ):
        assert re.fullmatch(pattern, line), line
    path = seen[seen.index("CRITICAL PATH") + 1]
    assert re.fullmatch(rf"0 charge \({took}\) → 2 invoice → 3 ship", path)


def test_a_flow_is_shown_to_programs_with_all_of_its_steps(store):
    """By its ref as well as by its number."""
    flow = place(store)
    end_next(store, opens=(1, 2))
    (shown,) = rows(run("flows", "show", flow, "--json"))
    assert rows(run("flows", "show", shown["ref"], "--json"))[0]["id"] == flow
    assert shown["jobs"] == {"succeeded": 1, "runnable": 2, "waiting": 3}
    assert shown["critical_path"] == [0, 1, 3]
    assert [step["shown"] for step in shown["steps"]] == [
        *("done", "ready", "ready", "closed", "closed", "closed")
    ]
    assert shown["steps"][4]["after"] == [{"step": 3, "when": "failed"}]
    assert shown["steps"][5]["hook"] == "finish"


def test_of_many_steps_those_are_shown_that_failed_or_have_not_ended(store):
    """The others have one line in their place."""
    steps = tuple(NewStep(number=number, name="part") for number in range(6))
    flow = place(store, steps=steps)
    end_next(store)
    end_next(store, Outcome.FAILED, JobState.DEAD)
    for _ in range(3):
        end_next(store)
    seen = words(run("flows", "show", flow, "--limit", 2))
    assert [line for line in seen if " part " in line or "⋮" in line] == [
        "├─ ⋮ 1 step: 1 done",
        *(line for line in seen if line.startswith("├─ ✘ 1 part failed job")),
        "├─ ⋮ 3 steps: 3 done",
        *(line for line in seen if line.startswith("└─ ◌ 5 part ready job")),
    ]


def test_a_flow_that_does_not_exist_is_an_error_that_says_where_it_was_sought(store):
    """By number, and by a ref of another store; what is neither is a wrong usage."""
    for name in 7, "flow-7-aaaaaaaaaaaaaaaaaaaaaaaaaa":
        result = run("flows", "show", name)
        assert result.exit_code == run("show", 7).exit_code
        assert store.url in result.stderr
    assert run("flows", "show", "order").exit_code == 2


def test_show_of_a_member_names_its_flow(store):
    """With the step, and the command that shows the rest."""
    flow = place(store, name=f"order{CLEAR}", key="1042")
    job = jobs_of(store, flow)["ship"]
    seen = words(run("show", job))
    (line,) = (line for line in seen if line.startswith("flow "))
    assert line.endswith(f"open; step 3: jobpool flows show {flow}")
    assert "\x1b" not in line
    (shown,) = rows(run("show", job, "--json"))
    assert shown["flow"]["id"] == flow
    assert (shown["flow"]["key"], shown["flow"]["step"]) == ("1042", 3)
    assert shown["flow"]["after"] == [1, 2]
    (plain,) = store.enqueue([member()])
    assert rows(run("show", plain.id, "--json"))[0]["flow"] is None


def test_the_jobs_of_a_flow_can_be_listed_and_counted(store):
    """By its number or its ref, with other conditions; others are not among them."""
    place(store)
    flow = place(store)
    store.enqueue([member()])
    listed = rows(run("list", "--flow", flow, "--json"))
    assert [row["id"] for row in listed] == sorted(
        jobs_of(store, flow).values(), reverse=True
    )
    ref = store.flow(flow).row.ref
    assert rows(run("list", "--flow", ref, "--json")) == listed
    waiting = rows(run("list", "--flow", flow, "--state", "waiting", "--json"))
    assert len(waiting) == 5
    counts = rows(run("list", "--flow", flow, "--group-by", "state", "--json"))
    assert {row["state"]: row["jobs"] for row in counts} == {
        "runnable": 1,
        "waiting": 5,
    }
    assert rows(run("list", "--flow", flow + 7, "--json")) == []
