"""Settlements: once, under the token, with their cost and evidence."""

import msgspec
import pytest

from jobpool.core.jobs.job import Evidence, JobState, Progress, Settlement
from jobpool.core.jobs.outcome import CHARGES, Outcome
from jobpool.core.rules.admission import Admission
from jobpool.core.rules.policy import Policy, RetryRule
from jobpool.errors import UsageError
from jobpool.store.records.jobs import Receipt
from jobpool.store.records.operating import Filter
from support.store.storing import (
    begin_run,
    counters,
    ended,
    handed_back,
    lease,
    lease_one,
    new_job,
    started,
    succeeded,
)

_replace = msgspec.structs.replace
EVIDENCE = Evidence(
    reason="killed at 512MiB",
    error_class="shop.Bad",
    error="no such cat",
    traceback="Traceback…",
    signal=9,
    exit_code=3,
    peak_rss_bytes=2**29,
    cpu_s=1.5,
    duration_s=2.5,
    output="said this",
    stack="was here",
    slot="cpu/1",
    memory_trail='{"limit_bytes":512,"points":[[1,2],[3,4]]}',
)


@pytest.fixture
def granted(store):
    store.enqueue([new_job()])
    return lease_one(store)


@pytest.mark.parametrize(
    ("result", "stored"),
    [(b'{"a":[1]}', b'{"a":[1]}'), (b"null", b"null"), (None, b"null"), (b"", b"")],
)
def test_a_success_keeps_its_result(store, granted, clock, result, stored):
    """No result reads as null; the figures are the attempt's."""
    clock.advance(3)
    evidence = {"duration_s": 2.5, "cpu_s": 1.0, "peak_rss_bytes": 7, "slot": "cpu/0"}
    assert store.settle([succeeded(granted, result, **evidence)]) == [True]
    job = store.get(granted.id)
    assert (job.state, job.outcome, job.result) == ("succeeded", "succeeded", stored)
    assert (job.duration_s, job.cpu_s, job.peak_rss_bytes) == (2.5, 1.0, 7)
    assert (job.slot, job.finished_at_ms) == ("cpu/0", clock.utc_ms())
    assert (job.supervisor, job.lease_until_ms) == (None, None)
    assert counters(job) == (0, 0, 0, 0)
    assert store.attempts(granted.id) == []


def test_a_large_result_is_whole_however_it_is_written(store, granted):
    """In parts ahead of its end, in stores that have parts.

    They are invisible before.
    """
    end = succeeded(granted, b'"' + b"xy" * 2**18 + b'"')
    while store.store_part(end):
        assert store.get(granted.id).result is None
    assert store.settle([end]) == [Receipt.ACCEPTED]
    assert store.get(granted.id).result == end.result


def test_an_unfinished_job_has_no_result(store, granted):
    """None, not null."""
    assert store.get(granted.id).result is None


@pytest.mark.parametrize("outcome", [o for o in Outcome if o is not Outcome.SUCCEEDED])
def test_every_other_outcome_leaves_an_attempt(store, granted, clock, outcome):
    """With all its evidence, and its cost on the job."""
    store.begin_attempts([started(granted, "cpu/1")])
    started_ms = clock.utc_ms()
    clock.advance(4)
    policy = Policy(max_attempts=9, max_crashes=9, max_lost=9)
    settlement = ended(granted, outcome, policy=policy, evidence=EVIDENCE)
    assert store.settle([settlement]) == [True]
    (attempt,) = store.attempts(granted.id)
    for field in Evidence.__struct_fields__:
        assert getattr(attempt, field) == getattr(EVIDENCE, field), field
    assert (attempt.attempt, attempt.token) == (1, granted.token)
    assert (attempt.outcome, attempt.supervisor) == (outcome, "run-1")
    assert (attempt.started_at_ms, attempt.finished_at_ms) == (
        started_ms,
        clock.utc_ms(),
    )
    job = store.get(granted.id)
    charge = CHARGES[outcome]
    assert counters(job) == (
        charge.failure,
        charge.crash,
        charge.interruption,
        charge.recovery,
    )
    assert (job.outcome, job.reason) == (outcome, EVIDENCE.reason)
    assert (job.error_class, job.error) == ("shop.Bad", "no such cat")
    assert (job.peak_rss_bytes, job.cpu_s, job.duration_s) == (2**29, 1.5, 2.5)
    wanted = "canceled" if outcome is Outcome.CANCELED else "pending"
    assert (job.state, job.attempt) == (wanted, 1)
    assert (job.finished_at_ms is None) == (wanted == "pending")


@pytest.mark.parametrize(
    ("own", "kept"), [("v1", "v1"), (None, "v2")], ids=["its_child's", "its_run's"]
)
def test_an_attempt_has_the_version_that_ran_it(store, granted, own, kept):
    """Its child may be older than what its run has loaded since; else the run's."""
    begin_run(store, app_version="v2")
    settlement = msgspec.structs.replace(
        ended(granted, Outcome.FAILED), app_version=own
    )
    assert store.settle([settlement]) == [True]
    (attempt,) = store.attempts(granted.id)
    assert attempt.app_version == kept


def test_a_retry_waits_from_the_settlement_on(store, granted, clock):
    """By the store's clock, not from the attempt's beginning."""
    clock.advance(100)
    settlement = ended(granted)
    store.settle([settlement])
    job = store.get(granted.id)
    assert settlement.delay_ms >= 24_000
    assert job.run_at_ms == clock.utc_ms() + settlement.delay_ms
    assert job.shown_state == "retryable"
    clock.advance(settlement.delay_ms / 1000 - 0.001)
    assert lease(store) == ()
    clock.advance(0.001)
    assert lease_one(store).attempt == 2


def test_the_rule_of_an_attempt_is_in_its_history(store, granted, clock):
    """So that its own budget can be counted."""
    policy = Policy(retry={"shop.Bad": RetryRule(delays_s=(0.0,))})
    store.settle([ended(granted, policy=policy, error_classes=("shop.Bad",))])
    assert [past.rule for past in lease_one(store).history] == ["shop.Bad"]
    assert [shown.rule for shown in store.attempts(granted.id)] == ["shop.Bad"]


def test_a_lease_handed_back_leaves_no_trace(store, granted):
    """The attempt never began: it is not counted, and the next one has its number."""
    assert store.settle([handed_back(granted)]) == [True]
    job = store.get(granted.id)
    assert (job.state, job.attempt, job.outcome) == ("runnable", 0, None)
    assert counters(job) == (0, 0, 0, 0)
    assert store.attempts(granted.id) == []
    assert lease_one(store).attempt == 1


def test_a_hand_back_keeps_what_is_known_of_the_last_attempt(store, granted, clock):
    """The figures are still those of the attempt that did run."""
    store.settle([ended(granted, evidence=EVIDENCE)])
    clock.advance(3600)
    store.settle([handed_back(lease_one(store))])
    job = store.get(granted.id)
    assert (job.outcome, job.reason, job.error) == (
        "failed",
        EVIDENCE.reason,
        EVIDENCE.error,
    )
    assert (job.attempt, job.failures, job.duration_s) == (1, 1, 2.5)


def test_a_superseded_token_changes_nothing(store, granted, clock):
    """Neither a late success nor a late failure; each counts as stale."""
    store.settle([handed_back(granted)])
    newer = lease_one(store)
    before = store.get(granted.id)
    assert store.settle([succeeded(granted)]) == [False]
    assert store.settle([ended(granted, evidence=EVIDENCE)]) == [False]
    assert store.get(granted.id) == before
    assert store.attempts(granted.id) == []
    assert store.settle([succeeded(newer)]) == [True]
    assert store.describe()["stale_settlements"] == "2"


def test_a_lease_is_settled_once(store, granted):
    """The second time it is stale, also within one call."""
    good, late = succeeded(granted, b"1"), succeeded(granted, b"2")
    assert store.settle([good, late]) == [True, False]
    assert store.settle([good]) == [False]
    assert store.get(granted.id).result == b"1"


def test_of_an_old_and_a_new_token_in_one_call_only_the_new_one_counts(store, granted):
    """Whichever comes first."""
    store.settle([handed_back(granted)])
    newer = lease_one(store)
    answers = store.settle([succeeded(granted, b"1"), succeeded(newer, b"2")])
    assert answers == [False, True]
    assert store.get(granted.id).result == b"2"


def test_an_unknown_job_is_stale(store):
    """Pruned, or never there."""
    ghost = Settlement(id=999, token=1, state=JobState.SUCCEEDED)
    assert store.settle([ghost]) == [False]


def test_each_settlement_of_a_mixed_batch_is_handled_alone(store):
    """Successes, failures, hand-backs and stale ones side by side."""
    store.enqueue([new_job(payload=b"%d" % i) for i in range(400)])
    leases = lease(store, limit=400)
    settlements, wanted = [], []
    for place, granted in enumerate(leases):
        match place % 4:
            case 0:
                settlements.append(succeeded(granted, b"%d" % place))
            case 1:
                settlements.append(ended(granted))
            case 2:
                settlements.append(handed_back(granted))
            case 3:
                stale = msgspec.structs.replace(granted, token=granted.token + 1)
                settlements.append(succeeded(stale))
        wanted.append(place % 4 != 3)
    assert store.settle(settlements) == wanted
    states = [store.get(granted.id).state for granted in leases]
    assert states == ["succeeded", "pending", "runnable", "leased"] * 100
    assert store.get(leases[8].id).result == b"8"


def test_a_requested_cancel_ends_a_job_that_would_wait(store, granted):
    """A retry and a hand-back become canceled; a success stays a success."""
    store.enqueue([new_job(), new_job()])
    second, third = lease(store)
    assert store.cancel([granted.id, second.id, third.id]) == 3
    answers = store.settle([ended(granted), handed_back(second), succeeded(third)])
    assert answers == [True, True, True]
    jobs = [store.get(one.id) for one in (granted, second, third)]
    assert [job.state for job in jobs] == ["canceled", "canceled", "succeeded"]
    assert all(job.finished_at_ms and not job.cancel_requested for job in jobs)


def test_a_hook_is_stored_with_the_settlement_or_not_at_all(store, granted):
    """Its job is there exactly if the settlement was accepted."""
    hook = new_job("jobpool:on_dead", "io", b'{"job":1}')
    dead = msgspec.structs.replace(
        ended(granted, give_up=True), followup=hook, state=JobState.DEAD
    )
    assert store.settle([dead, dead]) == [True, False]
    (job,) = store.find(Filter(kind="jobpool:on_dead"))
    assert (job.state, job.pool, store.payload(job.id)) == (
        "runnable",
        "io",
        b'{"job":1}',
    )


def test_a_hook_is_stored_though_the_queue_is_full(store_factory):
    """The settlement must not fail for it."""
    store = store_factory(admission=Admission(depth_max=1))
    begin_run(store)
    store.enqueue([new_job()])
    dead = msgspec.structs.replace(
        ended(lease_one(store), give_up=True), followup=new_job("jobpool:on_dead")
    )
    assert store.settle([dead]) == [True]
    assert store.count(Filter(kind="jobpool:on_dead")) == 1


@pytest.mark.parametrize(
    "text", ["a\0b", "lone \ud800 surrogate", "\x1b[31m", "'; DROP TABLE jobs; --"]
)
def test_hostile_texts_do_not_stop_a_settlement(store, granted, text):
    """What no database can store is replaced; the rest is kept as it is."""
    evidence = Evidence(**dict.fromkeys(("reason", "error", "output", "slot"), text))
    neighbour = new_job()
    store.enqueue([neighbour])
    other = lease_one(store)
    settlements = [ended(granted, evidence=evidence), succeeded(other)]
    assert store.settle(settlements) == [True, True]
    kept = store.get(granted.id).error
    assert kept.replace("\ufffd", "").replace("?", "").startswith(text[:1])
    if text.isprintable():
        assert kept == text


def test_figures_that_json_cannot_hold_are_dropped(store, granted):
    """A NaN duration is no reason to lose a settlement."""
    assert store.settle([succeeded(granted, duration_s=float("nan"))]) == [True]
    assert store.get(granted.id).duration_s is None


def test_progress_and_checkpoint_are_kept_apart(store, granted, clock):
    """None keeps what is stored; of one batch the newest counts."""
    store.record([Progress(granted.id, granted.token, b'"page 1"', b"\xff\0")])
    clock.advance(5)
    store.record(
        [
            Progress(granted.id, granted.token, b"2", None),
            Progress(granted.id, granted.token, b"3", None),
            Progress(granted.id, granted.token, None, None),
        ]
    )
    job = store.get(granted.id)
    assert (job.progress, job.checkpoint) == (b"3", b"\xff\0")
    assert job.last_heartbeat_at_ms == clock.utc_ms()


def test_the_next_attempt_receives_the_checkpoint(store, granted, clock):
    """Through its lease."""
    store.record([Progress(granted.id, granted.token, b"1", b'{"page":3}')])
    store.settle([ended(granted, Outcome.LOST)])
    again = lease_one(store)
    assert again.checkpoint == b'{"page":3}'


def test_stale_beats_and_starts_are_dropped(store, granted):
    """Like a superseded settlement, but without an answer."""
    store.settle([handed_back(granted)])
    lease_one(store)
    before = store.get(granted.id)
    store.record([Progress(granted.id, granted.token, b"1", b"2")])
    store.begin_attempts([started(granted, "cpu/7")])
    assert store.get(granted.id) == before


def test_the_start_of_an_attempt_is_shown(store, granted, clock):
    """The time and the slot."""
    assert store.get(granted.id).started_at_ms is None
    clock.advance(2)
    store.begin_attempts([started(granted, "cpu/3")])
    job = store.get(granted.id)
    assert (job.started_at_ms, job.slot) == (clock.utc_ms(), "cpu/3")


def test_a_start_is_shown_with_its_true_time(store, granted, clock):
    """It is recorded only once the attempt has run for a while."""
    clock.advance(1)
    began_s, began_ms = clock.boottime_s(), clock.utc_ms()
    clock.advance(1.25)
    store.begin_attempts([started(granted, "cpu/3", began_s)])
    assert store.get(granted.id).started_at_ms == began_ms


def test_no_attempt_shows_a_start_before_its_lease(store, granted, clock):
    """Clocks are read one after another, and rounded."""
    leased_ms = clock.utc_ms()
    clock.advance(1)
    store.begin_attempts([started(granted, "cpu/3", clock.boottime_s() - 1.002)])
    assert store.get(granted.id).started_at_ms == leased_ms
    times = {"began_s": clock.boottime_s() - 1.002, "ended_s": clock.boottime_s()}
    store.settle([_replace(succeeded(granted), **times)])
    assert store.get(granted.id).started_at_ms == leased_ms


@pytest.mark.parametrize("noted", [True, False])
@pytest.mark.parametrize(
    "end",
    [
        lambda granted: succeeded(granted, duration_s=2.5),
        lambda granted: _replace(succeeded(granted, duration_s=2.5), suspect=False),
        lambda granted: ended(granted, evidence=EVIDENCE),
        lambda granted: ended(granted, evidence=EVIDENCE, give_up=True),
    ],
    ids=["success", "success of a suspect", "failure", "last failure"],
)
def test_an_end_is_shown_with_its_true_time(store, granted, clock, noted, end):
    """However long its commit took; and its length is its duration."""
    clock.advance(3)
    began_s, began_ms = clock.boottime_s(), clock.utc_ms()
    clock.advance(2.5)
    ended_s, ended_ms = clock.boottime_s(), clock.utc_ms()
    if noted:
        store.begin_attempts([started(granted, "cpu/1", began_s - 0.004)])
    clock.advance(60)
    settlement = _replace(end(granted), began_s=began_s, ended_s=ended_s)
    assert store.settle([settlement]) == [Receipt.ACCEPTED]
    job = store.get(granted.id)
    times = {(job.started_at_ms, job.finished_at_ms or ended_ms)}
    times |= {
        (one.started_at_ms, one.finished_at_ms) for one in store.attempts(granted.id)
    }
    assert times == {(began_ms, ended_ms)}
    if job.state is JobState.PENDING:  # the delay counts from the commit on
        assert job.run_at_ms == clock.utc_ms() + settlement.delay_ms


def test_an_end_that_was_invisible_for_long_is_kept_in_full(store, granted, clock):
    """Its retention counts from about when it could first be seen."""
    began_s, began_ms = clock.boottime_s(), clock.utc_ms()
    clock.advance(2)
    times = {"began_s": began_s, "ended_s": clock.boottime_s()}
    clock.advance(7 * 24 * 3600)
    store.settle([_replace(succeeded(granted), **times)])
    job = store.get(granted.id)
    assert job.started_at_ms == began_ms
    assert job.finished_at_ms == clock.utc_ms() - 60_000


def test_a_success_leaves_nothing_of_the_failure_before_it(store, clock):
    """The history keeps the failure; the job itself has succeeded."""
    store.enqueue([new_job()])
    evidence = Evidence(reason="why", error_class="a.B", error="no")
    first = lease_one(store)
    store.settle([ended(first, evidence=evidence)])
    failed = store.get(first.id)
    assert (failed.error_class, failed.error) == ("a.B", "no")
    assert failed.reason is not None
    clock.advance(3600)
    store.settle([succeeded(lease_one(store))])
    job = store.get(first.id)
    assert (job.reason, job.error_class, job.error) == (None, None, None)
    (attempt,) = store.attempts(first.id)[:1]
    assert (attempt.error_class, attempt.error) == ("a.B", "no")


def test_the_next_attempt_begins_with_nothing_of_the_last_one(store, granted):
    """Its start, slot, heartbeat and progress are its own."""
    store.begin_attempts([started(granted, "cpu/3")])
    store.record([Progress(granted.id, granted.token, b"1", b"2")])
    store.settle([handed_back(granted)])
    again = lease_one(store)
    job = store.get(again.id)
    assert (job.started_at_ms, job.slot) == (None, None)
    assert (job.last_heartbeat_at_ms, job.progress) == (None, None)


def test_a_running_job_shows_its_memory_and_output(store, granted):
    """The latest known values, while it runs; they do not count as heartbeats."""
    assert (store.get(granted.id).rss_bytes, store.output(granted.id)) == (None, None)
    lease_of = granted.id, granted.token, None, None
    store.record([Progress(*lease_of, 2**20, b"one\n")])
    store.record([Progress(*lease_of, 2**21), Progress(*lease_of, output=b"two\xff\0")])
    job = store.get(granted.id)
    assert (job.rss_bytes, store.output(granted.id)) == (2**21, "two\ufffd\ufffd")
    assert (job.last_heartbeat_at_ms, job.progress) == (None, None)
    store.record([Progress(*lease_of, rss_bytes=2**70)])
    assert store.output(granted.id) == "two\ufffd\ufffd"
    store.settle([succeeded(granted)])
    assert (store.get(granted.id).rss_bytes, store.output(granted.id)) == (None, None)
    store.record([Progress(*lease_of, 2**20, b"late")])
    assert (store.get(granted.id).rss_bytes, store.output(granted.id)) == (None, None)
    assert store.output(granted.id + 1) is None


def test_the_next_attempt_shows_nothing_of_the_last_one(store, granted):
    """Neither its output nor its memory."""
    store.record([Progress(granted.id, granted.token, None, None, 2**20, b"first")])
    store.settle([handed_back(granted)])
    assert store.output(granted.id) is None
    again = lease_one(store)
    store.record([Progress(again.id, granted.token, None, None, 2**22, b"late")])
    assert (store.get(again.id).rss_bytes, store.output(again.id)) == (None, None)
    store.record([Progress(again.id, again.token, None, None, 2**21)])
    assert (store.get(again.id).rss_bytes, store.output(again.id)) == (2**21, None)


def test_empty_batches_do_nothing(store):
    """No transaction is made."""
    assert store.settle([]) == []
    store.record([])
    store.begin_attempts([])


def test_a_token_is_valid_only_for_its_own_job(store):
    """With another job's id it is stale, whatever it is used for."""
    store.enqueue([new_job()] * 2)
    first, second = lease(store)
    before = [store.get(one.id) for one in (first, second)]
    wrong = msgspec.structs.replace(first, id=second.id)
    for settlement in (succeeded(wrong), ended(wrong), handed_back(wrong)):
        assert store.settle([settlement]) == [Receipt.STALE]
    store.record([Progress(second.id, first.token, b"1", b"2")])
    store.begin_attempts([started(wrong, "cpu/1")])
    assert [store.get(one.id) for one in (first, second)] == before
    assert len(store.leases_of("run-1")) == 2


def test_a_hook_that_no_store_could_hold_refuses_the_batch(store):
    """Nothing of the batch is settled: it can be settled again without the hook."""
    store.enqueue([new_job()] * 2)
    first, second = lease(store)
    hook = new_job("no name")
    spoilt = msgspec.structs.replace(ended(second), followup=hook)
    with pytest.raises(UsageError, match="kind: expected"):
        store.settle([succeeded(first), spoilt])
    assert len(store.leases_of("run-1")) == 2
    assert store.settle([succeeded(first)]) == [Receipt.ACCEPTED]
