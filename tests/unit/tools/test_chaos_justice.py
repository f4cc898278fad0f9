"""The check of a chaos run can fail at each rule, and passes a good run.

The good run: job 1 just succeeds. Job 2's child is killed by the nemesis, job 3 is lost
with its supervisor, job 4 is poison, job 5 is canceled in time.
"""

import dataclasses
import json
from itertools import cycle

import pytest

from chaos.accounts import Accounts, Final, Tick
from chaos.audit import Change
from chaos.crew import Life
from chaos.justice import findings
from chaos.nemesis import Blow
from chaos.producing import Call

MS = 1_000_000


def change(seq, job, before, after, *, outcome=None, slot=None):
    """Return a row of the audit; before and after are state, token, run, attempt."""
    old = (None,) * 5 if before is None else (*before, 0)
    return Change(seq, seq * 100, job, *old, *after, 0, outcome, slot)


def lives(seq, job, token, run, attempt, *, outcome, state="pending", slot="cpu/0"):
    """Return the grant of a lease and its end 100 ms later."""
    end = (state, None, None, attempt)
    return [
        change(seq, job, ("runnable", None, None, attempt - 1), grant := (
            "leased", token, run, attempt)),
        change(seq + 1, job, grant, end, outcome=outcome, slot=slot),
    ]  # fmt: skip


def made(seq, job):
    return change(seq, job, None, ("runnable", None, None, 0))


def due(seq, job, attempt):
    """Return the row of a job that becomes due again."""
    return change(
        seq, job, ("pending", None, None, attempt), ("runnable", None, None, attempt)
    )


def marks(job, token, attempt, from_ms, *, action="stop", ms=50):
    return [
        f"start {job} {token} {attempt} 77 {from_ms * MS}",
        f"tick {job} {token} {attempt} 77 {(from_ms + ms // 2) * MS}",
        *(
            [f"{action} {job} {token} {attempt} 77 {(from_ms + ms) * MS}"]
            if action
            else []
        ),
    ]


def final(
    job, kind, state, attempt, *, failures=0, crashes=0, interruptions=0, recoveries=0,
    result=None,
):  # fmt: skip
    payload = json.dumps({"call": f"c{job}", "lasts_ms": 5}).encode()
    counts = (failures, crashes, interruptions, recoveries, None)
    return Final(job, kind, state, attempt, *counts, payload, result)


def good(**changed):
    """Return the accounts of a good run, with the given changes."""
    values = {
        "shared": False,
        "changes": [
            *(made(seq, job) for seq, job in enumerate((1, 2, 3, 4, 5), 1)),
            *lives(10, 1, 11, "a", 1, outcome="succeeded", state="succeeded"),
            *lives(20, 2, 12, "a", 1, outcome="crashed", slot="cpu/1"),
            due(22, 2, 1),
            *lives(23, 2, 22, "a", 2, outcome="succeeded", state="succeeded"),
            *lives(30, 3, 23, "b", 1, outcome="lost", slot=None),
            due(32, 3, 1),
            *lives(33, 3, 33, "a", 2, outcome="succeeded", state="succeeded"),
            *lives(40, 4, 34, "a", 1, outcome="crashed"),
            due(42, 4, 1),
            *lives(43, 4, 44, "a", 2, outcome="crashed"),
            due(45, 4, 2),
            *lives(46, 4, 54, "a", 3, outcome="crashed", state="quarantined"),
            change(50, 5, ("runnable", None, None, 0), ("canceled", None, None, 0)),
        ],
        "marks": [
            *marks(1, 11, 1, 1010),
            *marks(2, 12, 1, 2010, action=""),
            *marks(2, 22, 2, 2310),
            *marks(3, 23, 1, 3010, action=""),
            *marks(3, 33, 2, 3310),
            *marks(4, 34, 1, 4010, action="die"),
            *marks(4, 44, 2, 4310, action="die"),
            *marks(4, 54, 3, 4610, action="die"),
        ],
        "blows": [
            Blow("child killed", 2050 * MS, 2051 * MS, "a", "cpu/1", 77),
            Blow("supervisor killed", 3050 * MS, 3051 * MS, "b", None, 66),
        ],
        "calls": [
            *(
                Call(job * 100 * MS, f"c{job}", "stored", job, True)
                for job in range(1, 6)
            ),
            Call(5001 * MS, "c5", "canceled", 5, False),
        ],
        "lives": [
            Life("s0", "a", 0, 9000 * MS, "drained"),
            Life("s1", "b", 0, 3050 * MS, "killed"),
        ],
        "jobs": [
            final(1, "steady", "succeeded", 1, result=b"11"),
            final(2, "steady", "succeeded", 2, failures=1, crashes=1, result=b"22"),
            final(3, "steady", "succeeded", 2, recoveries=1, result=b"33"),
            final(4, "segfault", "quarantined", 3, failures=3, crashes=3),
            final(5, "steady", "canceled", 0),
        ],
        "stored_attempts": [
            (2, 12, "crashed"), (3, 23, "lost"),
            (4, 34, "crashed"), (4, 44, "crashed"), (4, 54, "crashed"),
        ],
        "permits_left": [],
        "litter": [],
        "broken": [],
    }  # fmt: skip
    return Accounts(**(values | changed))


def broken(**changed):
    """Return the rules that a changed run breaks."""
    return {violation.rule for violation in findings(good(**changed))}


def rows(name):
    """Return a list of the good run, to be changed."""
    return list(getattr(good(), name))


def replaced(name, old, **values):
    """Return a list of the good run with values of one of its rows changed."""
    return [row._replace(**values) if row == old else row for row in rows(name)]


def test_a_good_run_breaks_nothing():
    """Deaths, losses, poison and cancellation are no violations."""
    assert findings(good()) == []


def test_an_acknowledged_job_that_is_gone_is_lost():
    """I1."""
    assert "I1" in broken(jobs=rows("jobs")[1:])


def test_a_job_without_a_call_is_invented():
    """I2: so is one whose only call was refused."""
    assert "I2" in broken(calls=rows("calls")[1:])
    first = rows("calls")[0]
    assert "I2" in broken(calls=replaced("calls", first, answer="refused"))


def test_a_job_ends_once():
    """I3: whatever leases it after its end."""
    again = lives(60, 1, 99, "a", 2, outcome="succeeded", state="succeeded")
    assert "I3" in broken(changes=rows("changes") + again)


def test_a_token_begins_once_and_only_granted_tokens_begin():
    """I4: reported by the handlers alone."""
    assert broken(marks=rows("marks") + marks(1, 11, 1, 1012)) == {"I4"}
    assert "I4" in broken(marks=rows("marks") + marks(1, 98, 1, 1012))


def test_no_attempt_begins_after_its_lease():
    """I5: a lease that was taken back must not start."""
    late = [line for line in rows("marks") if " 23 " not in line]
    assert "I5" in broken(marks=late + marks(3, 23, 1, 3290, action=""))


def test_a_result_belongs_to_the_lease_in_force():
    """I5: an older attempt's result must not be the job's."""
    old = rows("jobs")[2]
    assert broken(jobs=replaced("jobs", old, result=b"23")) == {"I5"}


def test_a_success_needs_a_handler_that_ended():
    """I5: no exit code and no frame replaces it."""
    unsaid = [line for line in rows("marks") if "stop 1 " not in line]
    assert "I5" in broken(marks=unsaid)


def test_attempts_of_a_job_do_not_overlap():
    """I6: the earlier one's process still writes marks."""
    alive = f"tick 3 23 1 77 {3350 * MS}"
    assert "I6" in broken(marks=[*rows("marks"), alive])


def test_a_living_supervisors_job_is_not_taken_over():
    """I6, I7: it was not killed."""
    kept = [life for life in rows("lives") if life.run != "b"]
    assert {"I6", "I7"} <= broken(lives=kept)


def test_an_unexplained_crash_is_a_false_charge():
    """I7: nothing killed that child, and one death explains only one crash."""
    assert broken(blows=rows("blows")[1:]) == {"I7"}
    other = rows("blows")[0]._replace(slot="cpu/2")
    assert broken(blows=[other, *rows("blows")[1:]]) == {"I7"}


def test_two_deaths_in_a_slot_explain_two_crashes_that_are_stored_at_once():
    """I7: a store outage may delay both ends, but must not mix up the deaths."""
    more = [
        *(made(seq, job) for seq, job in ((6, 6), (7, 7))),
        *lives(70, 6, 61, "a", 1, outcome="crashed"),
        *lives(72, 7, 71, "a", 1, outcome="crashed"),
        *(due(seq, job, 1) for seq, job in ((80, 6), (81, 7))),
        *lives(82, 6, 62, "a", 2, outcome="succeeded", state="succeeded"),
        *lives(84, 7, 72, "a", 2, outcome="succeeded", state="succeeded"),
    ]
    late = [
        row._replace(at_ms=7350) if row.old_token in {61, 71} else row for row in more
    ]
    changed = {
        "changes": rows("changes") + late,
        "marks": [
            *rows("marks"),
            *marks(6, 61, 1, 7010, action=""),
            *marks(7, 71, 1, 7210, action=""),
            *marks(6, 62, 2, 8210),
            *marks(7, 72, 2, 8410),
        ],
        "calls": [
            *rows("calls"),
            *(Call(job * 100 * MS, f"c{job}", "stored", job, True) for job in (6, 7)),
        ],
        "jobs": [
            *rows("jobs"),
            final(6, "steady", "succeeded", 2, failures=1, crashes=1, result=b"62"),
            final(7, "steady", "succeeded", 2, failures=1, crashes=1, result=b"72"),
        ],
        "stored_attempts": [
            *rows("stored_attempts"), (6, 61, "crashed"), (7, 71, "crashed"),
        ],
    }  # fmt: skip
    deaths = [
        Blow("child killed", at * MS, (at + 1) * MS, "a", "cpu/0", 77)
        for at in (7060, 7260)
    ]
    assert not broken(blows=rows("blows") + deaths, **changed)
    assert broken(blows=rows("blows") + deaths[:1], **changed) == {"I7"}


@pytest.mark.parametrize("outcome", ["failed", "timed_out", "stalled", "interrupted"])
def test_an_outcome_must_match_the_handlers_action(outcome):
    """I7: it raised nothing, did not hang, and was not stopped."""
    old = next(row for row in rows("changes") if row.outcome == "lost")
    assert "I7" in broken(changes=replaced("changes", old, outcome=outcome))


def hogs(*ends, stopped=(7000, 7950)):
    """Return what changes when a hog, job 6, ends in these ways unnoticed.

    Args:
        ends: its attempts' actions and outcomes; the last one ends the job.
        stopped: from when until when its supervisor was, in milliseconds.
    """
    changes, said, stored = [made(6, 6)], [], []
    for number, (action, outcome) in enumerate(ends, 1):
        seq, token = 67 + 3 * number, 60 + number
        is_last = number == len(ends)
        state = LAST[outcome] if is_last else "pending"
        changes += lives(seq, 6, token, "a", number, outcome=outcome, state=state)
        changes += [] if is_last else [due(seq + 2, 6, number)]
        said += marks(6, token, number, 100 * seq + 10, action=action)
        stored.append((6, token, outcome))
    crashes = sum(outcome == "out_of_memory" for _action, outcome in ends)
    job = final(
        6, "hog", LAST[ends[-1][1]], len(ends), failures=len(ends), crashes=crashes
    )
    stop = Blow("supervisor stopped", stopped[0] * MS, stopped[1] * MS, "a", None, 55)
    return {
        "changes": rows("changes") + changes,
        "marks": rows("marks") + said,
        "jobs": [*rows("jobs"), job],
        "stored_attempts": rows("stored_attempts") + stored,
        "calls": [*rows("calls"), Call(600 * MS, "c6", "stored", 6, True)],
        "blows": [*rows("blows"), stop],
    }


LAST = {"out_of_memory": "quarantined", "failed": "dead"}
KILLED, BURST = ("hog", "out_of_memory"), ("burst", "failed")


def test_a_hog_may_burst_while_its_supervisor_is_stopped():
    """I7, I8: a failure and no crash; three of them leave no attempts to crash in."""
    assert findings(good(**hogs(BURST, KILLED, KILLED, KILLED))) == []
    often = hogs(BURST, BURST, BURST, KILLED, BURST, stopped=(7000, 8500))
    assert findings(good(**often)) == []


@pytest.mark.parametrize("stopped", [(6000, 6990), (7080, 8000)])
def test_a_running_supervisor_lets_no_memory_hog_fail_on_its_own(stopped):
    """I7: before or after the stop, its limit was not enforced."""
    changed = hogs(BURST, KILLED, KILLED, KILLED, stopped=stopped)
    (one,) = findings(good(**changed))
    assert (one.rule, one.job, one.token) == ("I7", 6, 61)


def test_a_stop_of_another_supervisor_excuses_no_burst():
    """I7: that supervisor did not watch the hog."""
    changed = hogs(BURST, KILLED, KILLED, KILLED)
    changed["blows"][-1] = changed["blows"][-1]._replace(run="b")
    assert broken(**changed) == {"I7"}


def test_a_hog_without_a_burst_has_not_failed_while_its_supervisor_was_stopped():
    """I7: the handler's own mark is needed, not only the opportunity."""
    assert broken(**hogs(("hog", "failed"), KILLED, KILLED, KILLED)) == {"I7"}
    assert broken(**hogs(("burst", "crashed"), KILLED, KILLED)) >= {"I7"}


def test_a_hog_that_has_not_burst_often_enough_is_not_dead():
    """I7, I8: with two failures there were three attempts left to crash in."""
    changed = hogs(BURST, BURST, KILLED, KILLED, BURST, stopped=(7000, 7200))
    assert broken(**changed) == {"I7", "I8"}


def test_one_attempt_found_by_two_rules_is_one_violation():
    """Otherwise the figures would count more violations than attempts."""
    changed = hogs(("hog", "failed"), KILLED, KILLED, KILLED)
    (one,) = findings(good(**changed))
    assert "it raised nothing" in one.text
    assert "ended by supervisor, and is failed" in one.text


def test_counters_follow_from_the_settlements():
    """I18, found with I7: a row must not say less than what happened."""
    old = rows("jobs")[1]
    assert broken(jobs=replaced("jobs", old, crashes=0)) == {"I7"}


def test_poison_ends_in_quarantine():
    """I8: and nowhere else."""
    last = rows("changes")[-2]
    assert last.state == "quarantined"
    old = rows("jobs")[3]
    assert "I8" in broken(
        changes=replaced("changes", last, state="dead"),
        jobs=replaced("jobs", old, state="dead"),
    )


def test_every_job_must_end():
    """I9: after the quiet nothing is leased or waits."""
    old = rows("jobs")[4]
    assert "I9" in broken(jobs=replaced("jobs", old, state="runnable"))


def test_nothing_may_outlive_its_end():
    """I12: marks long after the end, and everything else that is left."""
    assert "I12" in broken(marks=[*rows("marks"), f"tick 1 11 1 78 {9000 * MS}"])
    assert broken(litter=["process 7 is left"]) == {"I12"}


def test_nothing_is_leased_after_a_cancellation():
    """I15: by the answer to its producer, and by the audit."""
    again = lives(60, 5, 99, "a", 1, outcome="canceled", state="canceled")
    assert "I15" in broken(changes=rows("changes") + again)


def test_a_supervisor_ends_only_when_told():
    """I19: unless it was harmed before it had any job."""
    old = rows("lives")[0]
    assert broken(lives=replaced("lives", old, how="70")) == {"I19"}
    assert broken(broken=["s0: Traceback"]) == {"I19"}
    starting = Life("s1", "c", 5000 * MS, 5500 * MS, "3")
    assert broken(lives=[*rows("lives"), starting]) == {"I19"}
    harm = Blow("zygote killed", 5300 * MS, 5300 * MS)
    assert not broken(lives=[*rows("lives"), starting], blows=[*rows("blows"), harm])


def test_every_field_is_checked():
    """Ignoring a witness's word would silently weaken the check."""
    fields = {field.name for field in dataclasses.fields(Accounts) if field.init}
    assert fields >= {"changes", "marks", "blows", "calls", "lives", "jobs"}


@pytest.mark.parametrize(("asked", "rules"), [(1, set()), (0, {"I7"})])
def test_a_child_may_be_killed_for_a_cancel_before_its_handlers_first_line(
    asked, rules
):
    """I7: it had begun all the same; without a cancel this is a violation."""
    grant, end = lives(50, 5, 55, "a", 1, outcome="canceled", state="canceled")
    changed = {
        "changes": [*rows("changes")[:-1], grant, end._replace(old_cancel=asked)],
        "jobs": replaced("jobs", rows("jobs")[-1], attempt=1),
        "stored_attempts": [*rows("stored_attempts"), (5, 55, "canceled")],
    }
    assert broken(**changed) == rules


@pytest.mark.parametrize(
    ("ticks", "is_broken"),
    [
        ([(1000, 1), (2000, 2)], False),
        ([(1000, 1), (3000, 2)], True),
        ([(1000, 1), (1000, 2)], True),
        ([(1000, 1), (2000, None)], True),
        ([(1000, 1), (2000, 1)], True),
    ],
)
def test_each_tick_comes_once_and_has_a_job(ticks, is_broken):
    """I16: none is missing or twice there, none is without a job or shares one."""
    rows = [Tick(nominal_ms, 0, "done", job) for nominal_ms, job in ticks]
    assert ("I16" in broken(ticks=rows)) == is_broken


def interrupted(*blows, shared=False, jobs=(6,), slots=("cpu/0",), begun=(), seq=60):
    """Return what changes when jobs are interrupted at one time.

    Args:
        blows: what the nemesis does besides.
        shared: several hosts share the store.
        jobs: each is interrupted in its first attempt, and succeeds in its second.
        slots: of their first attempts, in turn.
        begun: those whose first attempt has written marks.
        seq: of the grant of the first attempts.
    """
    changes, said, calls, finals, stored = [], [], [], [], []
    for job, slot in zip(jobs, cycle(slots), strict=False):
        token, other = 10 * job + 1, 10 * job + 2
        end = {"outcome": "succeeded", "state": "succeeded", "slot": f"cpu/{job}"}
        changes += [
            made(seq - 1, job),
            *lives(seq, job, token, "a", 1, outcome="interrupted", slot=slot),
            due(seq + 2, job, 1),
            *lives(seq + 3, job, other, "a", 2, **end),
        ]
        if job in begun:
            said += marks(job, token, 1, 100 * seq + 10, action="")
        said += marks(job, other, 2, 100 * seq + 310)
        calls.append(Call(100 * (seq - 1) * MS, f"c{job}", "stored", job, True))
        right = {"interruptions": 1, "result": str(other).encode()}
        finals.append(final(job, "steady", "succeeded", 2, **right))
        stored.append((job, token, "interrupted"))
    return {
        "shared": shared,
        "changes": rows("changes") + changes,
        "marks": rows("marks") + said,
        "calls": rows("calls") + calls,
        "jobs": rows("jobs") + finals,
        "stored_attempts": rows("stored_attempts") + stored,
        "blows": [*rows("blows"), *blows],
    }


def killed(at_ms, slot="cpu/0"):
    return Blow("child killed", at_ms * MS, (at_ms + 1) * MS, "a", slot, 77)


def away(from_ms, until_ms):
    return Blow("black hole", from_ms * MS, until_ms * MS)


def test_a_child_may_be_killed_between_its_ticket_and_its_mark():
    """I7: it is interrupted and not charged, and no handler can tell."""
    assert not broken(**interrupted(killed(6050)))
    assert broken(**interrupted()) == {"I7"}
    assert broken(**interrupted(killed(6050, "cpu/1"))) == {"I7"}
    assert broken(**interrupted(killed(6150))) == {"I7"}


def test_a_killed_child_that_has_left_marks_is_not_interrupted():
    """I7: it had begun beyond doubt, and it has crashed."""
    assert broken(**interrupted(killed(6050), begun=(6,))) == {"I7"}


def test_one_death_explains_one_interruption():
    """I7: what was sent ahead goes back."""
    both = {"jobs": (6, 7)}
    assert broken(**interrupted(killed(6050), **both)) == {"I7"}
    assert not broken(**interrupted(killed(6050), killed(6060), **both))


def test_a_fence_interrupts_an_attempt_before_its_first_mark():
    """I7: but one in each slot, and none where the store has one host."""
    fence = away(6050, 6080)
    assert not broken(**interrupted(fence, shared=True))
    assert broken(**interrupted(fence)) == {"I7"}
    both = {"shared": True, "jobs": (6, 7)}
    assert not broken(**interrupted(fence, slots=("cpu/0", "io/0"), **both))
    assert not broken(**interrupted(fence, killed(6050), **both))
    for begun in (), (7,):
        assert broken(**interrupted(fence, begun=begun, **both)) == {"I7"}


@pytest.mark.parametrize("begun", [(), (6,)])
def test_a_child_that_is_killed_soon_after_a_fence_is_interrupted(begun):
    """I7: nobody knows who did it; without its death there is nothing to explain."""
    fence = away(0, 900)
    changed = {"shared": True, "begun": begun}
    assert not broken(**interrupted(fence, killed(6050), **changed))
    assert broken(**interrupted(away(0, 5400), **changed)) == {"I7"}


def test_a_child_that_is_killed_long_after_a_fence_has_crashed():
    """I7: the time counts from when its supervisor was granted what it then ran."""
    fence, begun = away(0, 900), {"shared": True, "begun": (6,)}
    assert broken(**interrupted(fence, killed(6650), seq=66, **begun)) == {"I7"}
    assert not broken(**interrupted(away(0, 1900), killed(6650), seq=66, **begun))
    assert broken(**interrupted(fence, killed(6050), begun=(6,))) == {"I7"}
    after = interrupted(fence, killed(6450), seq=64, **begun)
    held = ("leased", 8, "a", 1)
    after["changes"] += [
        change(9, 5, ("runnable", None, None, 0), held),
        change(10, 5, held, ("runnable", None, None, 0)),
    ]
    assert not broken(**after)


def test_no_permit_is_left():
    """I24: once all supervisors have ended."""
    assert broken(permits_left=["(1, 11, 'a')"]) == {"I24"}
