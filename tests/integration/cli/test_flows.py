"""`jobpool flows`, and what other commands say of flows."""

import json
import re

import pytest

from jobpool.core.jobs.flow import Hook, NewFlow, NewStep, When
from jobpool.core.jobs.job import JobState, NewJob, Settlement
from jobpool.core.jobs.outcome import CHARGES, Outcome
from jobpool.store.records.operating import AuditFilter
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


def place(store, name="order", steps=ORDER, **more):
    """Store a flow with one job a step; return its number."""
    flow = NewFlow(name=name, steps=steps, **more)
    members = [
        (
            one.number,
            member(kind=f"external.{one.name}", pool="external")
            if one.external
            else member(),
        )
        for one in steps
    ]
    return store.enqueue_flow(flow, members).id


def end_next(store, outcome=Outcome.SUCCEEDED, state=JobState.SUCCEEDED):
    """Run the job that is due; fold what follows."""
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
    while store.fold().is_short:
        pass
    return lease.id


def jobs_of(store, flow):
    """Return the first job of each step, by the step's name."""
    return {step.name: step.first_job for step in store.flow(flow).steps}


def words(result):
    """Return the lines of an output, with single spaces."""
    assert result.exit_code == 0, result.output
    return [" ".join(line.split()) for line in result.stdout.splitlines()]


def actions(store):
    return [(row.action, row.note) for row in store.audits(AuditFilter())][::-1]


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
    end_next(store)
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
    end_next(store)
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
    flow = place(store, steps=steps, failure="continue")
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
        for command in ("show",), ("cancel",), ("pause",), ("retry",):
            result = run("flows", *command, name)
            assert result.exit_code == run("show", 7).exit_code
            assert store.url in result.stderr
    assert run("flows", "show", "order").exit_code == 2
    assert actions(store) == []


def test_a_flow_is_paused_and_resumed_with_a_row_for_each(store):
    """What changes nothing has no row."""
    flow = place(store)
    said = words(run("flows", "pause", flow, "--note", "vendor down"))
    assert said == [f"flow {flow} paused"]
    again = words(run("flows", "pause", flow))
    assert again == [f"nothing changed flow {flow} is paused already"]
    (job,) = {store.get(job).state for job in jobs_of(store, flow).values()}
    assert job is JobState.WAITING
    waits = [line for line in words(run("flows", "show", flow)) if "waits" in line]
    assert f"jobpool flows resume {flow}" in waits[0]
    assert rows(run("flows", "resume", flow, "--json")) == [
        {"flow": flow, "resumed": True, "changed": True, "state": "open"}
    ]
    assert actions(store) == [("flows pause", "vendor down"), ("flows resume", None)]
    (seen, *_) = store.audits(AuditFilter())
    assert json.loads(seen.target) == {"flow": flow}


def test_a_canceled_flow_ends_as_such_and_its_hook_runs(store):
    """Nothing else of it begins."""
    flow = place(store)
    assert words(run("flows", "cancel", flow, "--note", "sold out")) == [
        f"flow {flow} canceled"
    ]
    while store.fold().is_short:
        pass
    jobs = jobs_of(store, flow)
    assert end_next(store) == jobs["tell"]
    assert store.get(jobs["charge"]).state is JobState.CANCELED
    assert rows(run("flows", "--json"))[0]["state"] == "canceled"
    again = words(run("flows", "cancel", flow))
    assert again == [f"nothing changed flow {flow} is canceled already"]
    assert actions(store) == [("flows cancel", "sold out")]


def test_a_failed_flow_is_retried_as_a_whole_and_no_job_of_it_alone(store):
    """What succeeded keeps its result; whoever retries a job is told what to do."""
    flow = place(store)
    early = words(run("flows", "retry", flow))
    assert early == [f"nothing changed flow {flow} is open already"]
    jobs = jobs_of(store, flow)
    end_next(store)
    while store.flow(flow).row.state == "open":
        end_next(store, Outcome.FAILED, JobState.DEAD)
    dead = store.flow(flow).steps[1].first_job
    for command in ("retry", dead), ("replay", dead, "--set", '{"path": "b.jpg"}'):
        result = run(*command)
        assert result.exit_code != 0
        assert f"jobpool flows retry {flow}" in result.stderr
    assert store.get(dead).state is JobState.DEAD
    assert retries(dead) == f"jobpool flows retry {flow}"
    assert rows(run("flows", "retry", flow, "--json")) == [
        {"flow": flow, "retried": True, "changed": True, "state": "open"}
    ]
    while store.flow(flow).row.state == "open":
        end_next(store)
    assert store.flow(flow).row.state == "succeeded"
    assert store.get(jobs["charge"]).attempt == 1
    assert actions(store) == [("flows retry", None)]


def retries(job):
    """Return the command that lets a job run again, as `show` names it."""
    (said,) = (line for line in words(run("show", job)) if line.startswith("next"))
    return said.removeprefix("next nothing, until its flow is retried: ")


def test_a_job_that_failed_runs_again_while_its_flow_goes_on(store):
    """By its number or its ref; whoever names one that has not failed is told so."""
    flow = place(store)
    end_next(store)
    dead = end_next(store, Outcome.FAILED, JobState.DEAD)
    other = jobs_of(store, flow)["charge"]
    assert retries(dead) == f"jobpool flows retry {flow} --job {dead}"
    result = run("flows", "retry", flow, "--job", other)
    assert result.exit_code != 0
    assert "only jobs that are dead, quarantined or canceled" in result.stderr
    ref = store.get(dead).ref
    assert words(run("flows", "retry", flow, "--job", ref)) == [f"flow {flow} retried"]
    while store.flow(flow).row.state == "open":
        end_next(store)
    assert store.flow(flow).row.state == "succeeded"
    (audit,) = store.audits(AuditFilter(action="flows retry"))
    assert json.loads(audit.target) == {"flow": flow, "ids": str(dead)}


ASKING = (
    NewStep(number=0, name="charge"),
    NewStep(
        number=1,
        name="approval",
        after=((0, When.SUCCEEDED),),
        external=True,
        timeout_ms=7_200_000,
    ),
    NewStep(number=2, name="ship", after=((1, When.SUCCEEDED),)),
)


def test_what_waits_for_somebody_is_approved_once_it_is_its_turn(store):
    """Before that it is an error; its result is what is given, and in no trail."""
    flow = place(store, steps=ASKING)
    job = jobs_of(store, flow)["approval"]
    early = run("flows", "approve", job)
    assert early.exit_code != 0
    wrong = run("flows", "approve", store.flow(flow).row.ref)
    assert "is a flow's ref; its jobs: jobpool flows show flow-" in wrong.stderr
    end_next(store)
    waits = [line for line in words(run("flows", "show", flow)) if "waits" in line]
    assert f"jobpool flows approve {job}; without it, it fails in" in waits[0]
    (said,) = (line for line in words(run("show", job)) if line.startswith("next"))
    assert said == f"next ends when somebody says so: jobpool flows approve {job}"
    secret = '{"by": "ann", "code": "s3cret"}'
    ref = store.get(job).ref
    done = run("flows", "approve", ref, "--result", secret, "--note", "fine")
    assert words(done) == [f"job {job} approved"]
    assert json.loads(store.get(job).result) == json.loads(secret)
    (row,) = store.audits(AuditFilter())
    assert (row.action, row.note, row.jobs) == ("flows approve", "fine", 1)
    assert json.loads(row.target) == {"ids": str(job)}
    assert "s3cret" not in row.target
    store.fold()
    assert end_next(store) == jobs_of(store, flow)["ship"]


def test_a_result_that_is_no_json_approves_nothing(store):
    """The message shows what JSON looks like."""
    flow = place(store, steps=ASKING)
    end_next(store)
    job = jobs_of(store, flow)["approval"]
    wrong = run("flows", "approve", job, "--result", "yes")
    assert wrong.exit_code == 2
    assert "nothing was approved" in wrong.stderr
    assert store.get(job).state is JobState.WAITING
    assert actions(store) == []


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
    end_next(store)
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


def test_a_dry_run_of_prune_counts_no_job_of_an_open_flow(store):
    """They go with their flow, which has not ended."""
    place(store)
    end_next(store)
    dry = run("prune", "--older-than", "0s", "--dry-run")
    assert words(dry) == ["0 jobs would be pruned"]
    assert words(run("prune", "--older-than", "0s")) == ["0 jobs pruned"]
