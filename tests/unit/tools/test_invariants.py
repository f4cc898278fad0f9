"""The checker of histories: each promise that is broken on purpose is named."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from support.machine.deaths import STRIKES_MAX
from support.store.history import (
    Budgets,
    Called,
    Ended,
    FinalJob,
    Gone,
    Granted,
    History,
    Operated,
    Record,
    RunBegan,
    RunEnded,
    Settled,
    Started,
    Struck,
)
from support.store.invariants import CHECKED_BY, Violation, violations


def called(**fields: Any) -> Called:
    return Called(**({"at_s": 0.0, "call": "c", "answer": "stored", "job": 1} | fields))


def granted(token: int = 1, **fields: Any) -> Granted:
    facts = {"at_s": 1.0, "run": "a", "job": 1, "token": token, "attempt": 1}
    return Granted(**(facts | fields))


def started(token: int = 1, **fields: Any) -> Started:
    facts = {"at_s": 2.0, "run": "a", "host": "h", "job": 1, "child": "x"}
    return Started(**(facts | {"token": token, "attempt": 1} | fields))


def ended(token: int = 1, cause: str = "done_ok", **fields: Any) -> Ended:
    return Ended(**({"at_s": 3.0, "job": 1, "token": token, "cause": cause} | fields))


def settled(token: int = 1, outcome: str | None = "succeeded", **f: Any) -> Settled:
    facts = {"at_s": 4.0, "by": "a", "job": 1, "token": token, "receipt": "accepted"}
    state = {"state": "succeeded", "changed": True, "holder": "a"}
    return Settled(**(facts | state | {"outcome": outcome} | f))


def final(**fields: Any) -> FinalJob:
    facts = {"job": 1, "kind": "k", "call": "c", "state": "succeeded", "attempt": 1}
    spent = dict.fromkeys(("failures", "crashes", "interruptions", "recoveries"), 0)
    return FinalJob(**(facts | spent | fields))


GOOD: tuple[Record, ...] = (called(), granted(), started(), ended(), settled())
BUDGETS = Budgets(
    max_attempts=2,
    max_crashes=2,
    max_lost=2,
    timeout_s=10.0,
    heartbeat_timeout_s=5.0,
)


def broken(
    *records: Record, jobs: tuple[FinalJob, ...] = (final(),), **facts: Any
) -> set[str]:
    """Return which promises a history breaks."""
    return {found.rule for found in _found(records, jobs, facts)}


def texts(*records: Record, jobs: tuple[FinalJob, ...] = ()) -> str:
    """Return the complaints about a history as text."""
    return "; ".join(found.text for found in _found(records, jobs, {}))


def _found(
    records: tuple[Record, ...], jobs: tuple[FinalJob, ...], facts: dict[str, Any]
) -> list[Violation]:
    history = History(
        **({"shared": False, "budgets": {"k": BUDGETS}} | facts),
        records=list(records),
        jobs=list(jobs),
    )
    return violations(history)


def test_a_correct_life_breaks_nothing() -> None:
    """Enqueued, leased, begun, done, settled."""
    assert broken(*GOOD) == set()


@pytest.mark.parametrize(
    ("rule", "records", "jobs"),
    [
        ("I1", (called(),), ()),
        ("I2", (), (final(),)),
        ("I2", (called(answer="refused"),), (final(),)),
        ("I2", GOOD, (final(), final(job=2))),
        ("I3", (*GOOD, granted(2, attempt=2)), (final(),)),
        ("I4", (*GOOD[:2], settled(), granted()), (final(),)),
        ("I4", (called(), granted(2), granted(1, attempt=2)), (final(),)),
        ("I4", (called(), granted(1), granted(2, attempt=3)), (final(),)),
        ("I5", (*GOOD[:2], granted(2, attempt=2)), (final(),)),
        ("I5", (*GOOD, settled()), (final(),)),
        ("I5", (*GOOD, settled(receipt="stale")), (final(),)),
        ("I5", (called(), granted(), settled(receipt="stale")), (final(),)),
        ("I6", (*GOOD[:3], started(2)), (final(),)),
        ("I6", (*GOOD[:4], settled(by="b")), (final(),)),
        ("I7", (*GOOD[:4], settled(outcome="crashed")), (final(),)),
        ("I7", (*GOOD[:2], settled()), (final(),)),
        ("I7", (*GOOD[:4], settled(outcome=None, state="runnable")), (final(),)),
        ("I7", GOOD, (final(crashes=1),)),
        ("I8", (called(), *[started(n) for n in range(25)]), (final(),)),
        ("I9", (called(),), (final(state="runnable"),)),
        ("I10", (called(), started(), ended(at_s=20.0)), (final(),)),
    ],
)
def test_a_broken_promise_is_named(
    rule: str, records: tuple[Record, ...], jobs: tuple[FinalJob, ...]
) -> None:
    """Whatever else such a history breaks."""
    assert rule in broken(*records, jobs=jobs)


LOST = {"outcome": "lost", "state": "pending", "by": "b"}
DIES = RunEnded(at_s=3.0, run="a", how="killed")
STRIKES = Struck(at_s=3.0, job=1, token=1, host="h")


@pytest.mark.parametrize(("outcome", "past_s"), [("timed_out", 12.0), ("stalled", 7.0)])
def test_an_attempt_past_its_limit_may_be_charged_for_it_whatever_ended_it(
    outcome: str, past_s: float
) -> None:
    """I7: a supervisor may be stopped between its verdict and its kill."""
    late = settled(outcome=outcome, state="pending")
    for at_s, is_just in ((past_s - 0.1, False), (past_s, True)):
        fenced = ended(cause="fence", at_s=at_s)
        text = texts(*GOOD[:3], fenced, late, jobs=(final(),))
        assert ("ended by fence" not in text) == is_just


def test_every_loss_must_be_charged() -> None:
    """I8: by some job."""
    assert "I8" in broken(*GOOD[:3], settled(costs="nothing", **LOST))
    assert "I8" not in broken(*GOOD[:3], settled(**LOST))


def test_a_recovery_is_charged_only_to_a_job_that_ran_alone() -> None:
    """I7.

    Beside neither its own supervisor's jobs nor those of one that died with it.
    """
    begins = RunBegan(at_s=0.0, run="a", host="h")
    other = RunBegan(at_s=0.0, run="c", host="h")
    pays = settled(costs="a recovery", holder="a", **LOST)
    beside = started(2, job=2)
    elsewhere = started(2, job=2, run="c")
    too = RunEnded(at_s=3.0, run="c", how="killed")
    paid = "paid for a death beside [2]"
    assert paid not in texts(begins, started(), DIES, pays)
    assert paid in texts(begins, started(), beside, DIES, pays)
    assert paid not in texts(begins, started(), beside, ended(2, job=2), DIES, pays)
    assert paid not in texts(begins, other, started(), elsewhere, DIES, pays)
    assert paid in texts(begins, other, started(), elsewhere, DIES, too, pays)


def test_no_job_is_charged_for_anothers_kill() -> None:
    """I7: neither with a recovery nor a quarantine.

    Its own interruptions may end it.
    """
    begins = RunBegan(at_s=0.0, run="a", host="h")
    before = (begins, started(), started(2, job=2), STRIKES, DIES)
    pays = settled(2, job=2, costs="a recovery", holder="a", **LOST)
    assert "paid for a strike of job 1" in texts(*before, pays)
    expired = msgspec.structs.replace(pays, at_s=DIES.at_s - 0.5, presumed=True)
    alone = (begins, started(2, job=2), expired, started(), STRIKES, DIES)
    assert "paid for" not in texts(*alone), "what came after its expiry"
    beside = (begins, started(), started(2, job=2), expired, STRIKES, DIES)
    assert "paid for a death beside [1]" in texts(*beside)
    taken = msgspec.structs.replace(expired, presumed=False)
    alive = (begins, started(2, job=2), taken, started(), STRIKES, DIES)
    assert "paid for a strike of job 1" in texts(*alive), "its lease had not expired"
    aside = settled(2, job=2, holder="a", **(LOST | {"state": "quarantined"}))
    assert "what others had done" in texts(*before, aside)
    itself = settled(1, job=1, holder="a", **(LOST | {"state": "quarantined"}))
    assert "what others had done" not in texts(*before, itself)


def test_a_kind_that_keeps_killing_is_soon_set_aside() -> None:
    """I8: where nothing else goes wrong."""
    many = [STRIKES] * (STRIKES_MAX + 1)
    assert "I8" in broken(*many, calm=True)
    assert "I8" not in broken(*many)
    assert "I8" not in broken(*many[1:], calm=True)


def test_a_living_attempt_keeps_its_lease() -> None:
    """I6, with records in order: a settled attempt has ended, and never begins."""
    early = (*GOOD[:3], settled(), ended())
    late = (*GOOD[:2], settled(outcome=None, state="runnable"), started())
    left = (*GOOD[:3], ended(guilt=("left",)), settled(), Gone(at_s=5, job=1, token=1))
    for records in (early, late, left):
        assert "I6" in broken(*records, ordered=True)
        assert "I6" not in broken(*records)
    assert "I6" not in broken(*GOOD, ordered=True)
    assert "I6" not in broken(*left[:4], left[5], left[4], ordered=True)


def test_a_completion_is_the_only_end() -> None:
    """I5: it counts only under its own token, however its attempt ends."""
    wrote = settled(by_itself=True)
    crashed = settled(outcome="crashed", receipt="completed", changed=False)
    dies = ended(cause="itself")
    refused = settled(by_itself=True, receipt="superseded", changed=False)
    assert broken(*GOOD[:3], wrote, dies, crashed, ordered=True) == set()
    assert "I5" in broken(*GOOD[:3], dies, crashed)
    assert "I5" in broken(*GOOD[:3], wrote, dies, settled(outcome="crashed"))
    assert "I5" in broken(*GOOD[:3], refused)
    assert "I5" in broken(*GOOD[:2], settled(outcome=None, state="runnable"), wrote)


def test_losses_may_use_up_interruptions() -> None:
    """I7: after a loss, an interruption may be the last.

    Without one it is too early.
    """
    budgets = {"k": msgspec.structs.replace(BUDGETS, max_interruptions=2)}
    lost = (granted(), started(), ended(cause="orphaned"))
    back = settled(outcome="lost", state="pending")
    last = settled(2, outcome="interrupted", state="dead")
    end = (granted(2, attempt=2), started(2), ended(2, cause="supervisor"), last)
    jobs = (final(state="dead", interruptions=2, attempts=((1, "lost"), (2, "i"))),)
    assert broken(called(), *lost, back, *end, jobs=jobs, budgets=budgets) == set()
    alone = (final(state="dead", interruptions=1, attempts=((2, "i"),)),)
    assert "I7" in broken(called(), *end, jobs=alone, budgets=budgets)


def test_nothing_begins_after_a_confirmed_cancel() -> None:
    """I15, until the job is revived."""
    act = {"at_s": 0.5, "job": 1, "before": "runnable", "after": "canceled"}
    cancel = Operated(what="cancel", **act)
    revive = Operated(what="revive", **(act | {"after": "runnable"}))
    assert "I15" in broken(called(), cancel, granted())
    assert "I15" not in broken(called(), cancel, revive, granted())


def test_leftovers_and_exceptions_are_named() -> None:
    """I12 and I19: leftovers and uncaught exceptions."""
    assert broken(*GOOD, litter=["a process"]) == {"I12"}
    assert broken(*GOOD, broken=["a traceback"]) == {"I19"}


def test_refused_settlements_are_counted() -> None:
    """I5: the store's own count equals that of the history."""
    assert broken(*GOOD, stale=1) == {"I5"}


def test_several_hosts_may_overlap_only_when_excused() -> None:
    """I6: on another host, and only if a clock or the kernel is to blame."""
    other = (*GOOD[:3], started(2, host="elsewhere"))
    assert "I6" in broken(*other, shared=True)
    assert "I6" not in broken(*other, shared=True, excused=True)
    assert "I6" in broken(*GOOD[:3], started(2), shared=True, excused=True)


def test_a_job_taken_over_may_return_to_its_first_host() -> None:
    """I6: while the kernel cannot end a process there; not if its own host took it."""
    hosts = {"a": "h", "b": "h", "c": "elsewhere"}
    runs = [RunBegan(at_s=0.0, run=run, host=host) for run, host in hosts.items()]

    gone = RunEnded(at_s=3.0, run="a", how="killed")

    def taken(*, by: str = "c", receipt: str = "accepted", gone: Any = (gone,)) -> bool:
        lost = settled(
            by=by,
            outcome="lost",
            state="pending",
            presumed=True,
            store_ms=1,
            receipt=receipt,
        )
        again = (granted(2, run="b"), started(2, run="b"))
        happened = (*runs, *GOOD[:3], *gone, lost, *again)
        return "I6" not in broken(*happened, shared=True, excused=True)

    assert taken()
    assert not taken(by="b")
    assert not taken(by="unknown")
    assert not taken(receipt="stale")
    assert not taken(gone=())


def test_a_lease_is_taken_over_from_the_dead_and_the_expired() -> None:
    """I6: a living run keeps what it holds until its lease expires."""
    taken = settled(
        by="b", outcome="lost", state="pending", presumed=True, holder_until_ms=9
    )
    late = settled(
        by="b",
        outcome="lost",
        state="pending",
        presumed=True,
        holder_until_ms=5,
        store_ms=6,
    )
    jobs = (final(state="dead", recoveries=1, attempts=((1, "lost"),)),)
    begun = (called(), granted(), started())
    gone = RunEnded(at_s=3.0, run="a", how="killed")
    assert "I6" in broken(*begun, taken, jobs=jobs, shared=True)
    assert "I6" not in broken(*begun, gone, taken, jobs=jobs, shared=True)
    assert "I6" not in broken(*begun, late, jobs=jobs, shared=True)
    assert "I6" in broken(*begun, late, jobs=jobs)


def test_every_invariant_has_a_layer() -> None:
    """There are twenty-eight, and none that nothing checks."""
    assert [f"I{n}" for n in range(1, 29)] == list(CHECKED_BY)
    assert all(CHECKED_BY.values())
