"""The check of a chaos run's flows can fail at each rule, and passes a good run.

The good run: flow ``f`` has a step that adds a job to itself, one that is approved, and
one that gets the results of the first. They are jobs 1 and 2, 3, and 4.
"""

import json
from random import Random

import pytest

from chaos.accounts import Accounts, Final
from chaos.audit import Change
from chaos.flow_accounts import RULES, FlowRow, Flows, StepRow
from chaos.flows import APPROVAL, Act, Drawn, FlowProducer, draw
from chaos.producing import Call
from jobpool import JobPool
from jobpool.core.jobs.flow import NewFlow, NewStep, When
from jobpool.core.rules.flows import check_flow
from support.store.invariants import violations

MS = 1_000_000
DECLARED = NewFlow(
    name="f",
    steps=(
        NewStep(number=0, name="s0"),
        NewStep(number=1, name="s1", external=True),
        NewStep(number=2, name="s2", after=((0, When.SUCCEEDED), (1, When.SUCCEEDED))),
    ),
)
DRAWN = Drawn(
    DECLARED, (("spread",), ("external.s1",), ("gather",)), {"f.0.0": 1}, {2: (0,)}
)
OF_STEP = {1: ("f.0.0", 0), 2: ("f.0.0+0", 0), 3: (None, 1), 4: ("f.2.0", 2)}
KINDS = {1: "spread", 2: "quick", 3: "external.s1", 4: "gather"}


def final(job, **changed):
    """Return how a member of the good run has ended; its token is 10 times its id."""
    call, step = OF_STEP[job]
    values = {
        "state": "succeeded",
        "payload": json.dumps({} if call is None else {"call": call}).encode(),
        "result": b"%d" % (APPROVAL if call is None else 10 * job),
        "step": 100 + step,
    }
    counts = dict.fromkeys(("failures", "crashes", "interruptions", "recoveries"), 0)
    attempt = int(call is not None)
    values |= {"attempt": attempt, "max_attempts": None} | counts | changed
    return Final(job=job, kind=KINDS[job], **values)


def change(job, at_ms, before, after, *, ends=False):
    """Return a row of the audit; *ends* says that its lease does."""
    token, held = 10 * job, after == "leased"
    old = (before, token if ends else None, "a" if ends else None, int(ends), 0)
    new = (after, token if held else None, "a" if held else None, int(held or ends), 0)
    if before is None:
        old = (None,) * 5
    return Change(at_ms, at_ms, job, *old, *new, "succeeded" if ends else None, None)


def ran(job, at_ms):
    """Return its grant and its success 50 ms later."""
    return [
        change(job, at_ms, "runnable", "leased"),
        change(job, at_ms + 50, "leased", "succeeded", ends=True),
    ]


CHANGES = [
    *(change(job, job, None, "waiting") for job in (1, 3, 4)),
    *ran(1, 100),
    change(2, 149, None, "runnable"),
    *ran(2, 200),
    change(3, 300, "waiting", "succeeded"),
    *ran(4, 400),
]
MARKS = [
    line
    for job, at_ms, words in (
        (1, 110, ("start", "stop")),
        (2, 210, ("start", "stop")),
        (4, 410, ("start", "given=10", "stop")),
    )
    for n, what in enumerate(words)
    for line in [f"{what} {job} {10 * job} 1 77 {(at_ms + n) * MS}"]
]
STEPS = [StepRow(100 + number, 7, number, "done", False) for number in range(3)]
GOOD = {
    "acts": [Act(290 * MS, "f", "approve", True, "f.1.0")],
    "rows": [FlowRow(7, "f", "succeeded", None, True)],
    "steps": STEPS,
    "changes": CHANGES,
    "marks": MARKS,
    "jobs": [final(job) for job in OF_STEP],
}


def found(**changed):
    """Return what is wrong with a changed run."""
    values = GOOD | changed
    flows = {name: values.pop(name) for name in ("acts", "rows", "steps")}
    calls = [call for _, call in DRAWN.calls()]
    accounts = Accounts(
        shared=False,
        blows=[],
        calls=[Call(50 * MS, call, "stored", 0, True) for call in calls],
        lives=[],
        stored_attempts=[],
        permits_left=[],
        litter=[],
        broken=[],
        flows=Flows(drawn={"f": DRAWN}, **flows),
        **values,
    )
    own = [one for rule in RULES for one in rule(accounts)]
    return own + violations(accounts.history())


def rules(**changed):
    """Return the rules that a changed run breaks."""
    return {one.rule for one in found(**changed)}


def without(job):
    """Return what a run has of all jobs but one."""
    changes = [change for change in CHANGES if change.job != job]
    marks = [line for line in MARKS if line.split()[1] != str(job)]
    jobs = [one for one in GOOD["jobs"] if one.job != job]
    return {"changes": changes, "marks": marks, "jobs": jobs}


def test_a_good_run_breaks_nothing():
    assert found() == []


@pytest.mark.parametrize("job", [1, 3, 4])
def test_a_flow_is_there_with_all_of_its_members(job):
    """I1: none of them may be missing."""
    assert "I1" in rules(**without(job))


def test_a_flow_that_nobody_has_asked_for_is_invented():
    """I2: so is one that is there twice, and a member in another step than its own."""
    more = [*GOOD["rows"], FlowRow(8, "g", "open", None, False)]
    assert "I2" in rules(rows=more)
    twice = [*GOOD["rows"], FlowRow(8, "f", "open", None, False)]
    assert "I2" in rules(rows=twice)
    jobs = [*GOOD["jobs"][:3], final(4, step=100)]
    assert "I2" in rules(jobs=jobs)


def test_what_a_member_adds_is_there_once_it_has_succeeded():
    """I28: and not if it has not."""
    assert "I28" in rules(**without(2))
    dead = [final(1, state="dead"), *GOOD["jobs"][1:]]
    assert any("what it adds" in one.text for one in found(jobs=dead))


def test_no_member_begins_before_what_it_waits_for():
    """I28: here before what was added to the step before it has ended."""
    early = [one._replace(at_ms=160) if one[:3] == (400, 400, 4) else one
             for one in CHANGES]  # fmt: skip
    assert any("begins early" in one.text for one in found(changes=early))


def test_no_member_of_a_step_that_was_to_run_is_canceled():
    """I28: as long as nothing of the flow has failed, and nobody cancels it."""
    canceled = change(2, 200, "runnable", "canceled")
    changes = [one for one in CHANGES if one.job != 2] + [
        change(2, 149, None, "runnable"),
        canceled,
    ]
    changed = {
        "changes": changes,
        "marks": [line for line in MARKS if line.split()[1] != "2"],
        "jobs": [
            final(2, state="canceled") if one.job == 2 else one for one in GOOD["jobs"]
        ],
        "rows": [FlowRow(7, "f", "failed", None, True)],
        "steps": [STEPS[0]._replace(failed=True), *STEPS[1:]],
    }
    assert any("was to run" in one.text for one in found(**changed))


def test_every_flow_ends():
    """I28: with all of its steps."""
    assert "I28" in rules(rows=[FlowRow(7, "f", "open", None, False)])
    assert "I28" in rules(steps=[*STEPS[:2], STEPS[2]._replace(state="closed")])


def test_what_nobody_has_approved_or_canceled_is_neither():
    """I28: and what somebody has approved is."""
    assert "I28" in rules(acts=[])
    assert "I28" in rules(rows=[FlowRow(7, "f", "canceled", "cancel", True)])
    timed_out = [*GOOD["jobs"][:2], final(3, state="canceled"), final(4)]
    assert any("it was approved" in one.text for one in found(jobs=timed_out))


def test_a_member_gets_the_results_of_the_steps_before_it():
    """I28: each, in order; an attempt that was killed may not have seen all of them."""
    other = [line.replace("given=10", "given=20") for line in MARKS]
    assert "I28" in rules(marks=other)
    none = [line for line in MARKS if "given" not in line]
    assert "I28" in rules(marks=none)
    killed = [line for line in none if not line.startswith("stop 4")]
    assert not any("was given" in one.text for one in found(marks=killed))


def test_what_is_drawn_is_what_is_stored():
    """Each drawn flow is one, and the client builds the very same of it."""
    pool = JobPool()

    @pool.job("cpu", kind="any")
    def handler(call, lasts_ms, more=None): ...

    class Handlers(dict):
        def __missing__(self, kind):
            return handler

    sorts = set()
    for seed in range(60):
        rng = Random(seed)
        drawn = draw(rng, f"flow-{seed}", (None, "ant"))
        check_flow(drawn.declared)
        sorts |= {step.external for step in drawn.declared.steps}
        flow = FlowProducer(rng, Handlers(), pool).build(drawn)
        built = tuple(node.record() for node in flow._nodes)
        assert built == drawn.declared.steps
    assert sorts == {True, False}
