"""The store thread: what may wait, what is written, and what an answer means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from jobpool.core.event_lines import human_line
from jobpool.core.events import supervisor as ev
from jobpool.core.events.jobs import JobCompleted
from jobpool.core.jobs.flow import (
    AskedFlow,
    NewFlow,
    NewStep,
)
from jobpool.core.jobs.job import JobState, NewJob, Progress, Settlement
from jobpool.core.jobs.outcome import Outcome
from jobpool.errors import (
    KeyConflict,
    OutcomeUnknown,
    StoreRefused,
    StoreUnavailable,
    StoreWentBack,
)
from jobpool.sandbox.protocol.messages import FRAME_MAX_BYTES
from jobpool.sandbox.runs.marks import MARK, MARK_BYTES
from jobpool.store.records.jobs import Receipt
from jobpool.store.statements.parameters import newest_beats
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.state.backpressure import SMALL_BYTES
from jobpool.supervisor.machine.state.pool import HELD_MAX
from jobpool.supervisor.storage import thread
from jobpool.supervisor.storage.inbox import FULL_BATCH, Inbox
from jobpool.supervisor.storage.outbox import (
    HURRIED_TURN_BYTES,
    LARGE_MAX,
    QUIET_S,
    TURN_BYTES,
)
from jobpool.supervisor.storage.thread import RUSH_S
from jobpool.supervisor.storage.trouble import Trouble
from support.machine.store_rig import PATIENCE_S, Rig, leased
from support.store.storing import ManualClock
from support.waiting import wait_until


def test_heartbeats_that_pile_up_are_merged() -> None:
    """During an outage each lease keeps one heartbeat, with its newest values."""
    beats = [
        Progress(1, 10, b"0.1", b"a"),
        Progress(2, 20, b"0.5", None),
        Progress(1, 10, b"0.2", None),
        Progress(1, 10, None, b"b"),
    ]
    assert newest_beats(beats) == [
        Progress(1, 10, b"0.2", b"b"),
        Progress(2, 20, b"0.5", None),
    ]


def settlements(count: int) -> list[Settlement]:
    """Return settlements of so many jobs."""
    return [Settlement(id=n, token=n, state=JobState.SUCCEEDED) for n in range(count)]


def test_only_settlements_wait_to_be_batched() -> None:
    """Leases, answers and chores are waited for; a full batch is large enough."""
    assert Inbox(settlements=settlements(3)).can_wait
    assert not Inbox(settlements=settlements(FULL_BATCH)).can_wait
    assert not Inbox(settlements=settlements(3), lease=cmd.Lease({"cpu": 1})).can_wait
    assert not Inbox(settlements=settlements(3), chores=[lambda _store: ()]).can_wait


def test_an_empty_inbox_is_false() -> None:
    """The thread sleeps only when nothing at all was left."""
    assert not Inbox()
    assert Inbox(lease=cmd.Lease({}))
    assert Inbox(starts=[(1, 1, "cpu/0")])


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.thread.close(PATIENCE_S)
    assert not rig.thread.is_alive()
    assert rig.store.closed


def test_the_store_is_tidied_after_the_answer(rig: Rig) -> None:
    """A caller that waits for an end or a lease does not wait for tidying too."""
    answered: list[int] = []
    rig.store.tidy = lambda waited_for: answered.append(len(rig.of(inp.Settled)))
    rig.settle(1)
    rig.wait_settled(1)
    wait_until(lambda: answered, PATIENCE_S, "tidied")
    assert answered[0] == 1


def test_a_held_job_waits_in_the_outbox_while_others_go_on(rig: Rig) -> None:
    """LATER is retried until it is written; only what is written is counted."""
    rig.store.receipts[1] = [Receipt.LATER, Receipt.LATER, Receipt.ACCEPTED]
    rig.settle(1, 2)
    assert rig.wait_settled(1)[0] == inp.Settled(1)
    rig.settle(3)
    events = rig.wait_settled(3)
    assert sum(event.count for event in events) == 3
    assert [s.token for s in rig.store.settled].count(1) == 3
    assert not rig.of(ev.StaleSettlement)


def test_ends_in_quick_succession_are_written_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A commit costs as much for one.

    An end that comes alone, or is waited for, goes at once.
    """
    monkeypatch.setattr(thread, "LINGER_S", 1000 * PATIENCE_S)
    clock = ManualClock()
    rig = Rig(clock)
    rig.settle(1)
    rig.wait_settled(1)
    clock.advance(RUSH_S)
    rig.settle(2)
    rig.wait_settled(2)
    rig.settle(3)
    rig.settle(4)
    rig.thread.leave([cmd.Lease({"cpu": 1})])
    assert [said.count for said in rig.wait_settled(4)] == [1, 1, 2]
    rig.thread.close(PATIENCE_S)


@pytest.mark.parametrize("many", [FULL_BATCH, FULL_BATCH + 1])
def test_a_full_batch_does_not_wait(monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    """However its ends came: single ones wake no thread, the last one does."""
    monkeypatch.setattr(thread, "LINGER_S", 1000 * PATIENCE_S)
    rig = Rig(ManualClock())
    rig.settle(1)
    rig.wait_settled(1)
    rig.settle(*range(2, FULL_BATCH + 1))
    assert len(rig.store.settled) == 1
    rig.settle(*range(FULL_BATCH + 1, many + 2))
    rig.wait_settled(FULL_BATCH + 1)
    rig.thread.close(PATIENCE_S)


def test_large_ends_are_written_after_small_ones_and_a_few_at_a_time() -> None:
    """Small ends and lease requests do not wait for large ends."""
    clock = ManualClock()
    rig = Rig(clock)
    with rig.thread._changed:
        rig.settle(1, 2, 3, result=b"x" * (TURN_BYTES // 2))
        rig.settle(4, result=b"x" * SMALL_BYTES)
        rig.settle(5)
    assert [said.count for said in rig.wait_settled(5)] == [2, 1, 1, 1]
    assert [one.token for one in rig.store.settled] == [4, 5, 1, 2, 3]
    rig.thread.close(PATIENCE_S)


def test_without_small_ends_large_ones_are_written_together() -> None:
    """Then they delay nothing; an end that is only retried is no small end."""
    clock = ManualClock()
    rig = Rig(clock)
    rig.store.receipts[1] = [Receipt.LATER, Receipt.ACCEPTED]
    rig.settle(1)
    wait_until(lambda: rig.thread._outbox._later_s, PATIENCE_S, "tried")
    clock.advance(2 * QUIET_S)
    rig.wait_settled(1)
    with rig.thread._changed:
        rig.settle(2, 3, 4, result=b"x" * (TURN_BYTES // 2))
    assert [said.count for said in rig.wait_settled(4)] == [1, 2, 1]
    rig.thread.close(PATIENCE_S)


def test_beside_small_ends_a_few_slightly_large_ones_are_written_together() -> None:
    """A commit for each would take longer than all of them together."""
    clock = ManualClock()
    rig = Rig(clock)
    count = HURRIED_TURN_BYTES // (SMALL_BYTES + 1)
    with rig.thread._changed:
        rig.settle(*range(1, count + 2), result=b"x" * (SMALL_BYTES + 1))
        rig.settle(count + 2)
    said = rig.wait_settled(count + 2)
    assert [one.count for one in said] == [1, count, 1]
    rig.thread.close(PATIENCE_S)


def test_beside_small_ends_a_large_one_is_written_in_parts() -> None:
    """Between parts, newer requests get their turn; its end is settled last."""
    rig = Rig(ManualClock())
    rig.store.parts_left = 2
    settled_before: list[int] = []
    store_part = rig.store.store_part

    def note(settlement: Settlement) -> bool:
        settled_before.append(len(rig.store.settled))
        rig.settle(10 + len(settled_before))
        return store_part(settlement)

    rig.store.store_part = note
    with rig.thread._changed:
        rig.settle(1)
        rig.settle(2, result=b"x" * (SMALL_BYTES + 1))
    rig.wait_settled(5)
    assert rig.store.parts == [2, 2]
    assert settled_before == [1, 2, 3]
    assert [s.token for s in rig.store.settled] == [1, 11, 12, 2, 13]
    rig.thread.close(PATIENCE_S)


def test_without_small_ends_a_large_one_stays_whole() -> None:
    """The turns between its parts would be of no use."""
    clock = ManualClock()
    rig = Rig(clock)
    rig.store.parts_left = 1
    clock.advance(2 * QUIET_S)
    rig.settle(1, result=b"x" * (SMALL_BYTES + 1))
    rig.wait_settled(1)
    assert rig.store.parts == []
    rig.thread.close(PATIENCE_S)


def test_a_part_that_could_not_be_stored_is_stored_again() -> None:
    """The store is left alone for a while; then the end is written as usual."""
    rig = Rig(ManualClock())
    store_part, failures = rig.store.store_part, [StoreUnavailable("the disk is full")]

    def fail_once(settlement: Settlement) -> bool:
        if failures:
            raise failures.pop()
        return store_part(settlement)

    rig.store.store_part, rig.store.parts_left = fail_once, 1
    with rig.thread._changed:
        rig.settle(1)
        rig.settle(2, result=b"x" * (SMALL_BYTES + 1))
    rig.wait_settled(2)
    assert rig.store.parts == [2]
    assert len(rig.of(ev.StoreTrouble)) == len(rig.of(ev.StoreBack)) == 1
    rig.thread.close(PATIENCE_S)


def test_answered_large_ends_are_reported(rig: Rig) -> None:
    """Their pools wait for that, but not for one that another transaction holds."""
    rig.store.receipts = {
        1: [Receipt.STALE],
        2: [Receipt.LATER, Receipt.ACCEPTED],
        3: [Receipt.COMPLETED],
    }
    with rig.thread._changed:
        rig.settle(1, 2, 3, 4, result=b"x" * TURN_BYTES)
        rig.settle(5)
    settled = [token for said in rig.wait_settled(5) for token in said.large]
    assert sorted(settled) == [1, 2, 2, 3, 4]
    assert [said.count for said in rig.of(inp.Settled)] == [1, 1, 0, 1, 1, 1]


def test_a_row_that_was_set_aside_is_reported(rig: Rig) -> None:
    """Once, with the next operation."""
    rig.store.spoilt = ["job 7 was set aside"]
    rig.settle(1)
    rig.settle(2)
    rig.wait_settled(2)
    alarm = rig.wait_for(ev.Alarm)
    assert isinstance(alarm, ev.Alarm)
    assert alarm.text == "job 7 was set aside"
    assert len(rig.of(ev.Alarm)) == 1


def test_the_store_is_told_that_a_caller_waits(rig: Rig) -> None:
    """Its deferred work comes later, if possible."""
    waited: list[bool] = []
    settle = rig.store.settle

    def settle_slowly(settlements: Sequence[Settlement]) -> list[Receipt]:
        if not rig.store.settled:
            rig.settle(2)
        return settle(settlements)

    def tidy(*, waited_for: bool) -> None:
        waited.append(waited_for)

    rig.store.settle, rig.store.tidy = settle_slowly, tidy
    rig.settle(1)
    rig.wait_settled(2)
    wait_until(lambda: len(waited) > 1, PATIENCE_S, "tidied twice")
    assert waited == [True, False]


def test_an_end_larger_than_a_turn_is_written(rig: Rig) -> None:
    """It has a turn of its own."""
    rig.settle(1, 2, result=b"x" * (TURN_BYTES + 1))
    assert [said.count for said in rig.wait_settled(2)] == [1, 1]


def test_too_many_large_ends_are_not_deferred() -> None:
    """No lease is granted beside them.

    A slot could begin more jobs than it has marks.
    """
    rig = Rig()
    count = LARGE_MAX + 1
    with rig.thread._changed:
        rig.settle(*range(1, count + 1), result=b"x" * (SMALL_BYTES + 1))
        rig.settle(count + 1)
        rig.thread.leave([cmd.Lease({"cpu": 1})])
    rig.wait_for(inp.Granted)
    first = next(one for one in rig.posted if not isinstance(one, inp.Tick))
    assert isinstance(first, inp.Settled)
    assert first.count == count + 1
    rig.thread.close(PATIENCE_S)


def test_a_slots_marks_hold_all_unsettled_tokens() -> None:
    """A forgotten token counts as never begun when everything is killed."""
    running = 1
    assert running + HELD_MAX + LARGE_MAX < MARK_BYTES // MARK.size


def test_all_large_ends_are_written_at_the_end() -> None:
    """A close leaves none behind, however many turns they take."""
    rig = Rig()
    with rig.thread._changed:
        rig.settle(*range(1, 6), result=b"x" * TURN_BYTES)
        rig.thread._closing = True
    rig.thread.close(PATIENCE_S)
    assert [said.count for said in rig.of(inp.Settled)] == [5]


def test_large_ends_wait_while_the_store_is_away(rig: Rig) -> None:
    """An end that was not sent is not in doubt: its stale receipt is reported."""
    rig.store.failures = [OutcomeUnknown("the answer was lost")]
    rig.store.receipts = {1: [Receipt.ACCEPTED, Receipt.STALE], 2: [Receipt.STALE]}
    with rig.thread._changed:
        rig.settle(1)
        rig.settle(2, result=b"x" * TURN_BYTES)
    rig.wait_settled(2)
    assert [one.token for one in rig.store.settled] == [1, 1, 2]
    assert [event.token for event in rig.of(ev.StaleSettlement)] == [2]


def test_a_held_end_is_tried_once_more_at_the_close() -> None:
    """A close does not wait for another's transaction, nor for the next retry."""
    rig = Rig()
    rig.store.receipts[1] = [Receipt.LATER] * 1000
    rig.settle(1)
    wait_until(lambda: rig.store.settled, PATIENCE_S, "a try")
    rig.thread.close(PATIENCE_S)
    assert not rig.thread.is_alive()


def test_a_stale_settlement_leaves_the_outbox_and_is_reported(rig: Rig) -> None:
    """A superseded token is refused, counted and named."""
    rig.store.receipts[1] = [Receipt.STALE]
    rig.settle(1, 2)
    assert rig.wait_settled(2) == [inp.Settled(2, stale=(1,))]
    assert rig.wait_for(ev.StaleSettlement).token == 1


def test_a_completion_that_stands_is_reported_with_an_unsuccessful_end(
    rig: Rig,
) -> None:
    """The log says that the attempt crashed, so it must say that its job succeeded."""
    rig.store.receipts[1] = [Receipt.COMPLETED]
    rig.settle(1, state=JobState.PENDING, outcome=Outcome.CRASHED)
    assert rig.wait_settled(1) == [inp.Settled(1, completed=(1,))]
    event = rig.wait_for(JobCompleted)
    assert (event.id, event.outcome) == (1, Outcome.CRASHED)
    assert "completed by its own transaction" in human_line(event)


def test_a_claimed_completion_is_reported_to_the_loop(rig: Rig) -> None:
    """The loop, which has held back its message, learns whether it stands."""
    claim = {"state": JobState.PENDING, "outcome": Outcome.FAILED, "completed": True}
    rig.store.receipts[1] = [Receipt.COMPLETED]
    rig.settle(1, 2, **claim)
    events = rig.wait_settled(2)
    assert [token for e in events for token in e.completed] == [1]
    assert [token for e in events for token in e.unfinished] == [2]
    assert not rig.of(JobCompleted)


def test_an_unknown_outcome_is_sent_again_and_is_not_stale(rig: Rig) -> None:
    """A settlement that was written by the lost commit is not superseded."""
    rig.store.failures = [OutcomeUnknown("cut while committing")]
    rig.store.receipts[1] = [Receipt.ACCEPTED, Receipt.STALE]
    rig.settle(1)
    rig.wait_settled(1)
    assert rig.wait_for(ev.StoreTrouble)
    assert not rig.of(ev.StaleSettlement)


def test_an_unknown_outcome_is_reported_to_every_requester(rig: Rig) -> None:
    """A handler's enqueue and a lease request both get OutcomeUnknown."""
    rig.store.failures = [OutcomeUnknown("cut while committing")]
    rig.thread.leave([cmd.Enqueue(0, 1, 7, []), cmd.Lease({"cpu": 1})])
    assert rig.wait_for(inp.Stored).answer.error_class == "OutcomeUnknown"
    assert rig.wait_for(inp.GrantFailed)


def test_leases_of_a_lost_answer_are_handed_back(rig: Rig) -> None:
    """Granted by a commit whose answer was lost, they would wait forever."""
    rig.store.grants = [leased(1)]
    rig.thread.leave([cmd.Lease({"cpu": 1})])
    rig.wait_for(inp.Granted)
    rig.store.failures = [OutcomeUnknown("cut while committing")]
    rig.store.grants = [leased(2)]
    rig.thread.leave([cmd.Lease({"cpu": 1})])
    rig.wait_for(inp.GrantFailed)
    assert not rig.store.settled
    rig.store.grants = [leased(3)]
    rig.thread.leave([cmd.Lease({"cpu": 1})])
    wait_until(lambda: rig.store.settled, PATIENCE_S, "a lease handed back")
    assert [(s.token, s.state) for s in rig.store.settled] == [(2, JobState.RUNNABLE)]
    assert [lease.token for lease in rig.store.held] == [1, 3]


def test_a_held_lease_of_a_lost_answer_is_handed_back_later(rig: Rig) -> None:
    """A lease of a lost answer that cannot be handed back yet is handed back later."""
    rig.store.failures = [OutcomeUnknown("cut while committing")]
    rig.store.grants = [leased(2)]
    rig.store.receipts[2] = [Receipt.LATER, Receipt.ACCEPTED]
    rig.thread.leave([cmd.Lease({"cpu": 1})])
    rig.wait_for(inp.GrantFailed)
    for count in (1, 2):
        rig.thread.leave([cmd.Lease({"cpu": 1})])
        wait_until(lambda n=count: len(rig.store.settled) == n, PATIENCE_S, "a try")
    rig.thread.leave([cmd.Lease({"cpu": 1})])
    wait_until(lambda: len(rig.of(inp.Granted)) == 3, PATIENCE_S, "the last grant")
    assert [s.token for s in rig.store.settled] == [2, 2]


def test_a_key_held_by_another_transaction_delays_no_end(rig: Rig) -> None:
    """Jobs with a key are stored after the commit, one by one, and fail alone."""
    rig.store.refused = StoreUnavailable("somebody holds that key")
    keyed = NewJob(kind="k", pool="cpu", payload=b"{}", key="order-7")
    rig.thread.leave([cmd.Enqueue(0, 1, 7, [keyed])])
    rig.settle(1)
    rig.wait_settled(1)
    assert rig.wait_for(inp.Stored).answer.error_class == "StoreUnavailable"
    assert not rig.of(ev.StoreTrouble)


@pytest.mark.parametrize("may_read", [False, True])
def test_a_handler_that_may_not_read_is_not_shown_who_holds_its_key(
    rig: Rig, *, may_read: bool
) -> None:
    """Not even encoded: it learns that the key is held, and by which job."""
    held = (5, b'"encoded:AAA="', "fernet", b'"encoded:BBB="')
    rig.store.refused = KeyConflict("held", 5, [held])
    keyed = NewJob(kind="k", pool="cpu", payload=held[3], key="order-7", codec="fernet")
    rig.thread.leave([cmd.Enqueue(0, 1, 7, [keyed], may_read=may_read)])
    answer = rig.wait_for(inp.Stored).answer
    assert (answer.error_class, answer.job_id) == ("KeyConflict", 5)
    assert answer.encoded == ([held] if may_read else [])


@pytest.mark.parametrize("shared", [False, True])
def test_a_handlers_flow_delays_no_end_and_fails_alone(
    rig: Rig, *, shared: bool
) -> None:
    """It is a transaction of its own, also in a file that nobody else writes."""
    rig.thread.shared = shared
    flow = NewFlow(name="f", steps=(NewStep(number=0, name="s"),))
    job = NewJob(kind="k", pool="cpu", payload=b"{}")
    ask = cmd.Enqueue(0, 1, 7, [job], flow=AskedFlow(flow, (0,)))
    for refused in (StoreUnavailable("somebody else stores it"), None):
        rig.store.refused = refused
        rig.thread.leave([ask])
        rig.settle(1)
        answers = 1 if refused else 2
        wait_until(
            lambda n=answers: len(rig.of(inp.Stored)) == n, PATIENCE_S, "an answer"
        )
    failed, stored = (one.answer for one in rig.of(inp.Stored))
    assert (failed.error_class, failed.flow) == ("StoreUnavailable", None)
    assert (stored.enqueued, stored.flow.id) == ([], 1)
    assert rig.store.flows == [(flow, [(0, job)])]
    wait_until(lambda: len(rig.store.settled) == 2, PATIENCE_S, "both ends")
    wait_until(lambda: rig.store.wakes == 2, PATIENCE_S, "others are woken")
    assert not rig.of(ev.StoreTrouble)


def test_reading_a_job_too_long_to_be_sent_is_refused(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop, which would send it, never gets it."""
    endless = "x" * (FRAME_MAX_BYTES + 1)
    monkeypatch.setattr(rig.store, "get", lambda _id: endless, raising=False)
    rig.thread.leave([cmd.Enqueue(0, 1, 7, [], 5)])
    answer = rig.wait_for(inp.Stored).answer
    assert (answer.found, answer.error_class) == (None, "UsageError")
    assert "job 5 cannot be read in a handler" in answer.error


def test_a_refusal_of_the_store_is_kept_as_the_reason(rig: Rig) -> None:
    """The command ends with its exit code, not as if all were well."""
    rig.store.failures = [StoreRefused("this queue has moved")]
    rig.settle(1)
    rig.wait_for(inp.Stop)
    assert str(rig.thread.refusal) == "this queue has moved"


def test_a_shared_store_is_never_left_alone_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Results are written soon after the store's return; time passes by pauses."""
    clock = ManualClock()
    rig = Rig(clock)
    monkeypatch.setattr(rig.thread, "rest", clock.advance)
    rig.store.failures = [StoreUnavailable("away")] * 8
    rig.settle(1)
    rig.wait_settled(1)
    assert rig.of(ev.StoreBack)[0].away_s < 8 * 0.5 + 1.0
    trouble = Trouble(rig.thread._post, rig.thread._clock)
    pauses_s = [trouble.next_pause_s(is_shared=True) for _ in range(20)]
    assert 0.25 < pauses_s[-1] <= max(pauses_s) <= 0.5
    rig.thread.close(PATIENCE_S)


def test_a_store_that_went_back_gets_nothing_more(rig: Rig) -> None:
    """What waits and what comes later is answered as if it were superseded."""
    rig.thread.known.restores = 0
    rig.store.failures = [StoreUnavailable("restarting")]
    rig.store.gone = StoreWentBack("the store went back in time")
    rig.settle(1)
    rig.wait_settled(1)
    written = len(rig.store.settled)
    rig.settle(2)
    rig.thread.leave([cmd.Lease({"cpu": 1}), cmd.Enqueue(0, 1, 7, [])])
    assert rig.wait_for(inp.Stored).answer.error_class == "StoreWentBack"
    rig.wait_for(inp.GrantFailed)
    assert [one.stale for one in rig.wait_settled(2)] == [(1,), (2,)]
    chores: list[object] = []
    rig.thread.chore(chores.append)
    rig.thread.close(PATIENCE_S)
    assert (len(rig.store.settled), chores) == (written, [])
    assert rig.of(inp.Stop) == [inp.Stop("the store went back in time")]
    assert [one.error for one in rig.of(ev.StoreWentBack)] == [str(rig.store.gone)]
    assert rig.thread.refusal is rig.store.gone


def test_only_after_trouble_is_the_store_compared(rig: Rig) -> None:
    """Renewals do it all the time; a commit costs nothing more."""
    rig.thread.known.restores = 0
    rig.settle(1)
    rig.wait_settled(1)
    assert rig.store.confirmed == 0
    rig.store.failures = [StoreUnavailable("restarting")]
    rig.settle(2)
    rig.wait_settled(2)
    assert rig.store.confirmed == 1
    rig.settle(3)
    rig.wait_settled(3)
    assert rig.store.confirmed == 1


def test_a_run_that_is_not_entered_yet_is_not_looked_for(rig: Rig) -> None:
    """The store does not know it, and need not."""
    rig.store.gone = StoreWentBack("unknown run")
    rig.store.failures = [StoreUnavailable("starting")]
    rig.settle(1)
    rig.wait_settled(1)
    assert not rig.of(ev.StoreWentBack)


def test_grants_whose_commit_is_known_must_stay_in_the_store(rig: Rig) -> None:
    """One that was rolled back need not."""
    rig.store.grants = [leased(5)]
    rig.store.failures = [StoreUnavailable("full")]
    rig.thread.leave([cmd.Lease({"cpu": 1})])
    rig.wait_for(inp.GrantFailed)
    assert rig.thread.known.token == 0
    rig.store.grants = [leased(7)]
    rig.thread.leave([cmd.Lease({"cpu": 1})])
    rig.wait_for(inp.Granted)
    assert rig.thread.known.token == 7
