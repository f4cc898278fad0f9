"""The life of a job: a total table, and one accounting point."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from jobpool.core.jobs.budget import spent_words
from jobpool.core.jobs.job import (
    FINISHED,
    Evidence,
    JobState,
    Lease,
    PastAttempt,
    Throttle,
)
from jobpool.core.jobs.outcome import CHARGES, Outcome
from jobpool.core.rules.lifecycle import (
    TRANSITIONS,
    Ending,
    JobEvent,
    account,
    after,
    hand_back,
    spread_of,
)
from jobpool.core.rules.policy import (
    INTERRUPTIONS_MAX,
    SNOOZES_MAX,
    Policy,
    Rerun,
    RetryRule,
)
from jobpool.core.rules.quotas.throttle import THROTTLED_MAX_S, THROTTLES_MAX
from jobpool.errors import JobpoolBug

NOW_MS = 1_000_000_000_000


def lease(**fields: object) -> Lease:
    """Return a lease of a first attempt, changed as asked."""
    base = {
        "id": 1,
        "token": 7 << 20,
        "kind": "k",
        "pool": "cpu",
        "attempt": 1,
        "payload": b"{}",
    }
    return Lease(**(base | fields))  # type: ignore[arg-type]


def past(outcome: Outcome, count: int, *, rule: str | None = None, age_ms: int = 1000):
    """Return *count* equal earlier attempts."""
    return tuple(PastAttempt(outcome, rule, NOW_MS - age_ms) for _ in range(count))


@pytest.mark.parametrize(
    ("state", "event"), list(itertools.product(JobState, JobEvent))
)
def test_every_state_meets_every_event(state: JobState, event: JobEvent) -> None:
    """The table has a cell for every state and event, and `after` obeys it."""
    following = TRANSITIONS[state][event]
    if following is None:
        with pytest.raises(JobpoolBug, match=state.value):
            after(state, event)
    else:
        assert following == after(state, event)


@pytest.mark.parametrize("state", FINISHED)
def test_a_finished_job_moves_only_by_an_operator(state: JobState) -> None:
    """Only cancel and revive lead out of a finished state."""
    leaving = {event for event, to in TRANSITIONS[state].items() if to is not None}
    assert leaving <= {JobEvent.REVIVE, JobEvent.CANCEL}


def test_only_a_lease_leads_to_leased() -> None:
    """No event but LEASE, from RUNNABLE alone, grants a job."""
    ways = [
        (state, event)
        for state, cells in TRANSITIONS.items()
        for event, to in cells.items()
        if to is JobState.LEASED
    ]
    assert ways == [(JobState.RUNNABLE, JobEvent.LEASE)]


@pytest.mark.parametrize("outcome", list(Outcome))
def test_every_outcome_has_a_charge_and_a_verdict(outcome: Outcome) -> None:
    """No outcome lacks a charge, and each leads to some next state."""
    settlement = account(lease(), Policy(), Ending(outcome=outcome), now_ms=NOW_MS)
    assert CHARGES[outcome] == settlement.charge
    assert settlement.state is not JobState.LEASED


CASES = [
    # outcome, counters and history before, policy, expected state, words in the reason
    (Outcome.SUCCEEDED, {}, Policy(), "succeeded", ""),
    (Outcome.CANCELED, {}, Policy(), "canceled", ""),
    (Outcome.FAILED, {}, Policy(), "pending", ""),
    (Outcome.TIMED_OUT, {}, Policy(), "pending", ""),
    (Outcome.STALLED, {}, Policy(), "pending", ""),
    (Outcome.CRASHED, {}, Policy(), "pending", ""),
    (Outcome.OUT_OF_MEMORY, {}, Policy(), "pending", ""),
    (Outcome.INTERRUPTED, {}, Policy(), "pending", ""),
    (Outcome.LOST, {}, Policy(), "pending", ""),
    (
        Outcome.FAILED,
        {"history": past(Outcome.FAILED, 4)},
        Policy(),
        "dead",
        "failure 5 of 5",
    ),
    (
        Outcome.TIMED_OUT,
        {"history": past(Outcome.TIMED_OUT, 99)},
        Policy(max_attempts=100),
        "dead",
        "failure 100 of 100",
    ),
    (
        Outcome.CRASHED,
        {"history": past(Outcome.CRASHED, 2)},
        Policy(),
        "quarantined",
        "crash 3 of 3",
    ),
    (
        Outcome.OUT_OF_MEMORY,
        {"history": past(Outcome.CRASHED, 2)},
        Policy(),
        "quarantined",
        "crash 3 of 3",
    ),
    (
        Outcome.CRASHED,
        {"history": past(Outcome.CRASHED, 4, age_ms=73 * 3600 * 1000)},
        Policy(),
        "dead",
        "failure 5 of 5",
    ),
    (
        Outcome.CRASHED,
        {"history": past(Outcome.CRASHED, 1, age_ms=73 * 3600 * 1000)},
        Policy(max_crashes=2),
        "pending",
        "",
    ),
    (
        Outcome.TIMED_OUT,
        {"history": past(Outcome.CRASHED, 2)},
        Policy(),
        "pending",
        "",
    ),
    (Outcome.LOST, {"recoveries": 4}, Policy(), "quarantined", "lost 5 times"),
    (Outcome.LOST, {"recoveries": 3}, Policy(), "pending", ""),
    (
        Outcome.INTERRUPTED,
        {"interruptions": INTERRUPTIONS_MAX - 1},
        Policy(),
        "dead",
        "interrupted 20 times",
    ),
    (
        Outcome.INTERRUPTED,
        {"history": past(Outcome.FAILED, 4)},
        Policy(),
        "pending",
        "",
    ),
    (
        Outcome.FAILED,
        {"history": past(Outcome.INTERRUPTED, 10)},
        Policy(),
        "pending",
        "",
    ),
    (Outcome.FAILED, {"max_attempts": 1}, Policy(), "dead", "failure 1 of 1"),
]


@pytest.mark.parametrize(("outcome", "before", "policy", "state", "words"), CASES)
def test_the_accounting_table(
    outcome: Outcome, before: dict[str, object], policy: Policy, state: str, words: str
) -> None:
    """Each outcome spends its own budget, and only a spent budget ends a job."""
    settlement = account(
        lease(**before), policy, Ending(outcome=outcome), now_ms=NOW_MS
    )
    assert state == settlement.state.value
    assert words in (settlement.evidence.reason or "")


UNKNOWN_ENDS = [outcome for outcome, charge in CHARGES.items() if charge.end_unknown]


@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_job_that_must_not_rerun_is_dead_when_its_end_is_unknown(
    outcome: Outcome,
) -> None:
    """At most once: a job whose attempt's end is unknown is dead, with the reason."""
    policy = Policy(rerun=Rerun.NEVER)
    settlement = account(lease(), policy, Ending(outcome=outcome), now_ms=NOW_MS)
    if outcome in UNKNOWN_ENDS:
        assert settlement.state is JobState.DEAD
        assert "rerun" in (settlement.evidence.reason or "")
    else:
        assert settlement.state is not JobState.DEAD


COUNTS: list[tuple[Outcome, dict[str, object], Policy, str]] = [
    (Outcome.FAILED, {}, Policy(), "failure 1 of 5"),
    (Outcome.FAILED, {"max_attempts": 1}, Policy(), "failure 1 of 1"),
    (Outcome.CRASHED, {}, Policy(), "failure 1 of 5, crash 1 of 3"),
    (
        Outcome.CRASHED,
        {"history": past(Outcome.TIMED_OUT, 2), "attempt": 3},
        Policy(),
        "failure 3 of 5, crash 1 of 3",
    ),
    (
        Outcome.FAILED,
        {"history": past(Outcome.INTERRUPTED, 7), "attempt": 8},
        Policy(),
        "failure 1 of 5",
    ),
    (Outcome.INTERRUPTED, {"interruptions": 2}, Policy(), "interruption 3 of 20"),
    (Outcome.LOST, {"recoveries": 1}, Policy(), "recovery 2 of 5"),
    (Outcome.CANCELED, {}, Policy(), ""),
    (
        Outcome.TIMED_OUT,
        {"history": past(Outcome.TIMED_OUT, 5, rule="timed_out"), "attempt": 6},
        Policy(retry={"timed_out": RetryRule(max_attempts=6)}),
        "failure 6 of 6 under timed_out",
    ),
    (
        Outcome.TIMED_OUT,
        {"history": past(Outcome.TIMED_OUT, 2, rule="timed_out"), "attempt": 3},
        Policy(retry={"timed_out": RetryRule(delays_s=(1.0,))}),
        "failure 3 of 5",
    ),
    (Outcome.FAILED, {"attempt": 6}, Policy(), "failure 1 of 5 (counters reset)"),
]


@pytest.mark.parametrize(("outcome", "before", "policy", "words"), COUNTS)
def test_each_budget_is_counted_separately(
    outcome: Outcome, before: dict[str, object], policy: Policy, words: str
) -> None:
    """The reason names the budget that was charged, never the number of attempts."""
    of = lease(**before)
    settlement = account(of, policy, Ending(outcome=outcome), now_ms=NOW_MS)
    assert spent_words(settlement.spent, reset=of.was_revived) == words
    ended = [one for one in settlement.spent if one.is_used_up]
    if settlement.state is JobState.DEAD:
        assert str(ended[0]) in (settlement.evidence.reason or "")


def test_give_up_is_dead_at_once() -> None:
    """A handler that gives up is believed, whatever is left of its budget."""
    ending = Ending(outcome=Outcome.FAILED, give_up=True)
    settlement = account(lease(), Policy(), ending, now_ms=NOW_MS)
    assert settlement.state is JobState.DEAD


def test_retry_later_waits_as_asked_and_spends_an_attempt() -> None:
    """The handler's own delay is used; the budget still bounds it."""
    ending = Ending(outcome=Outcome.FAILED, retry_in_s=7.5)
    settlement = account(lease(), Policy(), ending, now_ms=NOW_MS)
    assert (settlement.state, settlement.delay_ms) == (JobState.PENDING, 7500)
    spent = lease(history=past(Outcome.FAILED, 4))
    assert account(spent, Policy(), ending, now_ms=NOW_MS).state is JobState.DEAD


def test_a_rule_of_never_ends_the_job() -> None:
    """An error whose class or base class has the rule "never" is not tried again."""
    policy = Policy(retry={"LookupError": RetryRule(never=True)})
    ending = Ending(
        outcome=Outcome.FAILED,
        error_classes=("builtins.KeyError", "builtins.LookupError"),
    )
    settlement = account(lease(), policy, ending, now_ms=NOW_MS)
    assert settlement.state is JobState.DEAD
    assert settlement.rule == "LookupError"


def test_a_rule_has_a_budget_and_delays_of_its_own() -> None:
    """Failures under a rule with a budget do not spend the job's, nor the reverse."""
    rule = RetryRule(delays_s=(1.0, 2.0), max_attempts=3)
    policy = Policy(max_attempts=2, retry={"shop.VendorDown": rule})
    ending = Ending(outcome=Outcome.FAILED, error_classes=("shop.VendorDown",))
    first = account(lease(), policy, ending, now_ms=NOW_MS)
    assert (first.state, first.delay_ms) == (JobState.PENDING, 1000)
    second = lease(history=past(Outcome.FAILED, 1, rule="shop.VendorDown"))
    assert account(second, policy, ending, now_ms=NOW_MS).delay_ms == 2000
    third = lease(history=past(Outcome.FAILED, 2, rule="shop.VendorDown"))
    assert account(third, policy, ending, now_ms=NOW_MS).state is JobState.DEAD
    other = Ending(outcome=Outcome.FAILED, error_classes=("builtins.ValueError",))
    assert account(third, policy, other, now_ms=NOW_MS).state is JobState.PENDING


def test_a_rule_for_a_time_retries_however_often_it_fails() -> None:
    """Until so long after the first failure under it; that spends no attempt."""
    rule = RetryRule(delays_s=(60.0,), for_s=7200)
    policy = Policy(max_attempts=2, retry={"shop.NotYet": rule})
    ending = Ending(outcome=Outcome.FAILED, error_classes=("shop.NotYet",))
    many = past(Outcome.FAILED, 900, rule="shop.NotYet")
    first_ms = min(one.finished_at_ms for one in many)
    again = lease(history=many)
    settled = account(again, policy, ending, now_ms=first_ms + 7_199_000)
    assert (settled.state, settled.delay_ms) == (JobState.PENDING, 60_000)
    last = account(again, policy, ending, now_ms=first_ms + 7_200_000)
    assert last.state is JobState.DEAD
    assert last.evidence.reason == "failed with shop.NotYet for 2h00m"
    other = Ending(outcome=Outcome.FAILED, error_classes=("builtins.ValueError",))
    assert account(again, policy, other, now_ms=NOW_MS).state is JobState.PENDING


def test_a_rule_may_be_named_for_an_outcome() -> None:
    """A death has no exception: its outcome's name finds its delays and budget."""
    rule = RetryRule(delays_s=(1.0,), max_attempts=2)
    policy = Policy(retry={"timed_out": rule})
    ending = Ending(outcome=Outcome.TIMED_OUT)
    first = account(lease(), policy, ending, now_ms=NOW_MS)
    assert (first.state, first.delay_ms) == (JobState.PENDING, 1000)
    second = lease(history=past(Outcome.TIMED_OUT, 1, rule="timed_out"))
    assert account(second, policy, ending, now_ms=NOW_MS).state is JobState.DEAD


def test_a_crash_waits_at_least_a_minute() -> None:
    """After a crash the next attempt waits for a minute or more."""
    ending = Ending(outcome=Outcome.CRASHED)
    settlement = account(lease(), Policy(), ending, now_ms=NOW_MS)
    assert settlement.delay_ms >= 60_000


def test_interrupted_and_lost_jobs_run_again_at_once() -> None:
    """The end was not the job's doing, so it costs no time either."""
    for outcome in (Outcome.INTERRUPTED, Outcome.LOST):
        ending = Ending(outcome=outcome)
        assert account(lease(), Policy(), ending, now_ms=NOW_MS).delay_ms == 0


def test_hand_back_charges_nothing() -> None:
    """An attempt that never began leaves no outcome and no charge."""
    settlement = hand_back(lease())
    assert settlement.state is JobState.RUNNABLE
    assert settlement.outcome is None
    assert settlement.charge == CHARGES[Outcome.SUCCEEDED]


def test_the_reason_joins_verdict_and_evidence() -> None:
    """The stored reason says what happened and what follows."""
    ending = Ending(
        outcome=Outcome.CRASHED, evidence=Evidence(reason="killed by SIGSEGV")
    )
    before = lease(history=past(Outcome.CRASHED, 2))
    settlement = account(before, Policy(), ending, now_ms=NOW_MS)
    assert settlement.evidence.reason == "killed by SIGSEGV; crash 3 of 3"


def test_jitter_is_bounded_and_spread() -> None:
    """The token alone determines a wait within its jitter, over the whole range."""
    spreads = [spread_of(token << 20) for token in range(1, 2000)]
    assert min(spreads) < -0.9
    assert max(spreads) > 0.9
    assert all(-1 <= spread < 1 for spread in spreads)


WEEK_MS = 7 * 86_400_000
NOT_YET = Ending(
    outcome=Outcome.FAILED, snooze_s=300.0, evidence=Evidence(reason="not yet: busy")
)


@pytest.mark.parametrize("outcome_before", [None, *Outcome])
def test_a_snooze_costs_nothing(outcome_before: Outcome | None) -> None:
    """Whatever came before it, whatever the policy: the job is called again."""
    history = past(outcome_before, 4) if outcome_before else ()
    held = lease(attempt=5, history=history, failures=4, interruptions=19)
    strict = Policy(
        max_attempts=1, rerun=Rerun.NEVER, retry={"X": RetryRule(never=True)}
    )
    ending = msgspec.structs.replace(NOT_YET, error_classes=("X",))
    settlement = account(held, strict, ending, now_ms=NOW_MS)
    assert settlement.state is JobState.PENDING
    assert (settlement.snoozed, settlement.outcome) == (True, None)
    assert not any(settlement.charge)
    assert settlement.delay_ms == 300_000
    assert settlement.evidence.reason == "not yet: busy"


@pytest.mark.parametrize("suspect", [False, True])
def test_a_snooze_clears_no_suspect(suspect: bool) -> None:
    """It has proved nothing."""
    settlement = account(lease(suspect=suspect), Policy(), NOT_YET, now_ms=NOW_MS)
    assert settlement.suspect is None


@pytest.mark.parametrize(
    ("asked_s", "delay_ms"), [(0.0, 1000), (0.2, 1000), (9.0, 9000)]
)
def test_a_snooze_takes_at_least_a_second(asked_s: float, delay_ms: int) -> None:
    """So that its limit is not used up at once."""
    ending = msgspec.structs.replace(NOT_YET, snooze_s=asked_s)
    assert account(lease(), Policy(), ending, now_ms=NOW_MS).delay_ms == delay_ms


@pytest.mark.parametrize(
    ("snoozes", "since_ms", "said"),
    [
        (SNOOZES_MAX - 2, NOW_MS - WEEK_MS + 1, ""),
        (SNOOZES_MAX - 1, NOW_MS, "snoozed 1,000 times in a row"),
        (1, NOW_MS - WEEK_MS, "snoozed for 7d00h"),
        (0, None, ""),
    ],
)
def test_snoozes_have_a_limit_of_their_own(
    snoozes: int, since_ms: int | None, said: str
) -> None:
    """With the last one the job is dead, with its attempt and reason in its history."""
    held = lease(snoozes=snoozes, snoozed_since_ms=since_ms)
    settlement = account(held, Policy(), NOT_YET, now_ms=NOW_MS)
    assert settlement.snoozed == (not said)
    if said:
        assert settlement.state is JobState.DEAD
        assert settlement.outcome is Outcome.FAILED
        assert settlement.charge == CHARGES[Outcome.FAILED]
        assert settlement.evidence.reason == f"not yet: busy; {said}"


THROTTLED = Ending(
    outcome=Outcome.FAILED,
    evidence=Evidence(reason="throttled by stripe"),
    error_classes=("jobpool.errors.Throttled", "jobpool.errors.Snooze"),
    snooze_s=30.0,
    throttled=("stripe", "acme"),
)
BLOCK = Throttle("stripe", "acme", 30_000)


def test_a_throttled_job_snoozes_and_keeps_everybody_from_the_bucket() -> None:
    """Nothing is charged; it and all others come back when they were told to."""
    settled = account(lease(), Policy(), THROTTLED, now_ms=NOW_MS)
    assert settled.snoozed
    assert settled.outcome is None
    assert (settled.delay_ms, settled.throttle) == (30_000, BLOCK)
    assert settled.spent == ()


@pytest.mark.parametrize(
    ("before", "says"),
    [
        ({"throttles": THROTTLES_MAX - 1}, ""),
        (
            {"throttles": THROTTLES_MAX, "throttled_since_ms": NOW_MS - 1},
            f"throttled {THROTTLES_MAX + 1} times in a row",
        ),
        (
            {
                "throttles": 2,
                "throttled_since_ms": NOW_MS - round(THROTTLED_MAX_S * 1000) + 1,
            },
            "",
        ),
        (
            {
                "throttles": 2,
                "throttled_since_ms": NOW_MS - round(THROTTLED_MAX_S * 1000),
            },
            "throttled for 24h00m",
        ),
    ],
)
def test_a_job_that_is_throttled_too_often_or_too_long_fails(before, says) -> None:
    """That spends an attempt, and the bucket is closed to everybody all the same."""
    settled = account(lease(**before), Policy(), THROTTLED, now_ms=NOW_MS)
    assert settled.throttle == BLOCK
    assert settled.delay_ms == 30_000
    assert settled.snoozed == (not says)
    if says:
        assert settled.outcome is Outcome.FAILED
        assert settled.charge.failure
        assert settled.state is JobState.PENDING
        assert settled.evidence.reason == f"throttled by stripe; {says}"


def test_a_throttled_job_without_an_attempt_left_is_dead() -> None:
    """And its death, too, tells everybody to wait."""
    spent = lease(
        throttles=THROTTLES_MAX, history=past(Outcome.FAILED, Policy().max_attempts - 1)
    )
    settled = account(spent, Policy(), THROTTLED, now_ms=NOW_MS)
    assert settled.state is JobState.DEAD
    assert settled.throttle == BLOCK


def test_waiting_for_permits_is_not_being_throttled() -> None:
    """A job may have waited often before it is throttled once."""
    waited = lease(snoozes=100, snoozed_since_ms=NOW_MS - 6 * 86_400_000)
    assert account(waited, Policy(), THROTTLED, now_ms=NOW_MS).snoozed


def test_what_is_handed_back_gives_back_what_a_rate_has_counted() -> None:
    """Its attempt never began."""
    assert hand_back(lease()).unbegun
    assert not account(
        lease(), Policy(), Ending(outcome=Outcome.FAILED), now_ms=NOW_MS
    ).unbegun
