"""The defaults where nothing is set."""

import importlib
import inspect
import logging
import pkgutil

import msgspec
import pytest

import jobpool.core
import jobpool.store.records
from jobpool.core.config import settings
from jobpool.core.events.event import Level
from jobpool.core.isolation import cgroups
from jobpool.core.jobs import job
from jobpool.core.jobs.outcome import CHARGES, Charge, Outcome
from jobpool.core.rules import circuit_breaker, lifecycle, limits, policy, suspects

MODULES = [
    *(
        found.name
        for found in pkgutil.walk_packages(jobpool.core.__path__, "jobpool.core.")
        if not found.ispkg
    ),
    *(
        f"jobpool.store.records.{found.name}"
        for found in pkgutil.iter_modules(jobpool.store.records.__path__)
    ),
]
MIB = 1_048_576

SAID = {
    "Command": {"result_bytes": 65536},
    "SupervisorStopped": {"how": "drained"},
    "Run": {"format": 4},
    "NewFlow": {"failure": "fail"},
    "Proposal": {"verdict": "unknown"},
    "Lockdown": {"network": True, "enclosure": "none"},
    "Policy": {
        "max_attempts": 5,
        "max_crashes": 3,
        "crash_window_s": 259_200.0,
        "max_lost": 5,
        "unknown_for_s": 600.0,
        "rerun": "always",
    },
    "PoolSettings": {
        "fair": "none",
        "recycle_jobs": 10_000,
        "recycle_age_s": 3600.0,
        "recycle_growth_bytes": 128 * MIB,
        "drain_s": 25.0,
        "preload": True,
        "sandbox": "standard",
        "network": True,
        "idle_shrink_s": 60.0,
        "scale_on": "cpu",
        "age_target_s": 10.0,
        "output_max_bytes": MIB,
        "keep_output": "failed",
        "breaker_after": 5,
    },
    "AlertSettings": {
        "store_s": 60,
        "no_supervisor_s": 120,
        "oldest_age_s": 600,
        "depth": 100,
        "dead": 1,
        "quarantined": 1,
        "failure_rate": 3,
        "ratio": 0.1,
        "missed_ticks_s": 300,
        "stuck_flows_s": 3600,
    },
    "Retention": {
        "succeeded_s": 7 * 86_400,
        "canceled_s": 7 * 86_400,
        "dead_s": 180 * 86_400,
        "audit_s": 365 * 86_400,
        "outputs_bytes": 256 * MIB,
    },
    "ClientSettings": {
        "payload_max_bytes": MIB,
        "result_max_bytes": MIB,
    },
    "Settings": {
        "payload_max_bytes": MIB,
        "result_max_bytes": MIB,
        "memory_admission": "observed",
        "app_timeout_s": 60.0,
        "traces_sample": 1.0,
        "lease_ttl_s": 60.0,
        "unknown_for_s": 600.0,
        "probation_s": 10.0,
    },
    "HandlerSpec": {"schema": b"{}"},
    "Published": {"is_newest": True},
    "quotas.rules.Published": {},
    "Quota": {"wait_s": 5.0, "throttle_max_s": 900.0, "source": "code"},
    "BreakerRule": {
        "failures": 0.5,
        "window_s": 60.0,
        "requests": 20,
        "pause_s": 30.0,
    },
    "Breaker": {"state": "closed"},
    "RetryBudget": {"ratio": 0.2},
    "KindRule": {"weight": 1.0},
    "Share": {"weight": 1.0},
    "LaneState": {"jobs": 2**62},
    "Need": {"cost": 1},
    "PermitAsk": {"cost": 1},
    "Rule": {"tz": "UTC"},
    "schedules.policy.Policy": {
        "missed": "one",
        "catchup_window_s": 86_400,
        "catchup_max": 1000,
        "overlap": "skip",
    },
    "Option": {"show": str},
    "Debounce": {"on_conflict": "keep", "postpone_max_ms": 60_000},
    "Admission": {"depth_max": 10_000_000, "on_full": "refuse"},
}


def records_of(module):
    """Return the records that a module defines: structs and named tuples."""
    return [
        found
        for found in vars(importlib.import_module(module)).values()
        if inspect.isclass(found)
        and found.__module__ == module
        and (issubclass(found, msgspec.Struct) or hasattr(found, "_field_defaults"))
    ]


def names_of(record):
    """Return a record's name, alone and with its module: two may bear the same one."""
    name = record.__name__
    return name, f"{record.__module__}.{name}".removeprefix("jobpool.core.rules.")


def defaults_of(record):
    """Return a record's defaults other than empty values."""
    if issubclass(record, msgspec.Struct):
        fields = msgspec.structs.fields(record)
        found = {one.name: one.default for one in fields}
    else:
        found = record._field_defaults
    return {
        name: default
        for name, default in found.items()
        if default is not msgspec.NODEFAULT
        and default
        and not isinstance(default, msgspec.Struct | Charge)
    }


@pytest.mark.parametrize("module", MODULES)
def test_a_record_has_no_unlisted_default(module):
    """Counters, times and flags begin empty; all other defaults are listed here."""
    for record in records_of(module):
        name, full = names_of(record)
        said = SAID[full] if full in SAID else SAID.get(name, {})
        assert defaults_of(record) == said, record


def test_every_listed_default_belongs_to_a_record():
    """A listed name without a record means nothing; every module is searched."""
    assert "jobpool.core.rules.policy" in MODULES
    records = [one for module in MODULES for one in records_of(module)]
    assert SAID.keys() <= {name for one in records for name in names_of(one)}


CHARGED = {
    Outcome.SUCCEEDED: "",
    Outcome.FAILED: "failure",
    Outcome.TIMED_OUT: "failure end_unknown",
    Outcome.STALLED: "failure end_unknown",
    Outcome.OUT_OF_MEMORY: "failure crash end_unknown",
    Outcome.CRASHED: "failure crash end_unknown",
    Outcome.INTERRUPTED: "interruption end_unknown",
    Outcome.LOST: "recovery end_unknown",
    Outcome.CANCELED: "",
}


def test_each_outcome_has_its_charge():
    """Which budget an end is charged to is a promise."""
    words = {
        outcome: " ".join(name for name in Charge._fields if getattr(charge, name))
        for outcome, charge in CHARGES.items()
    }
    assert words == CHARGED


def test_levels_are_those_of_logging():
    """So that a log collector sorts our events among its own."""
    for level in Level:
        assert level == getattr(logging, level.name)


def test_pools_have_default_limits_for_their_kind_of_work():
    """By the work that they are for; any other pool has the larger one's."""
    assert dict(settings.DEFAULT_TIMEOUT_S) == {"cpu": 600, "io": 120}
    gib = 1024 * MIB
    assert dict(settings.DEFAULT_MEMORY_BYTES) == {"cpu": gib, "io": gib // 2}
    others = settings.OTHER_TIMEOUT_S, settings.OTHER_MEMORY_BYTES
    assert others == (600, gib)
    assert (settings.DEFAULT_IO_SLOTS, settings.MEMORY_BUDGET_SHARE) == (16, 0.8)
    assert settings.LEASE_TTL_MIN_S == 5


@pytest.mark.parametrize(
    ("nth", "wait_s"), [(1, 30), (2, 120), (3, 480), (4, 1920), (5, 3600), (99, 3600)]
)
def test_the_waits_between_attempts(nth, wait_s):
    """30 s, four times as long each time, an hour at most; a fifth either way."""
    found = [policy.backoff_s(nth, spread) for spread in (-2, -1, 0, 1, 2)]
    wanted = [wait_s * part for part in (0.8, 0.8, 1, 1.2, 1.2)]
    assert found == pytest.approx(wanted)


def test_a_wait_after_a_crash_is_at_least_a_minute():
    """Before the first two attempts; a rule's own delay is taken as it is."""
    wait = {"nth": 1, "under_rule": 1, "spread": 0}
    assert policy.retry_delay_s(None, crashed=True, **wait) == 60
    assert policy.retry_delay_s(None, crashed=False, **wait) == 30
    rule = policy.RetryRule(delays_s=(1, 2))
    waits = [
        policy.retry_delay_s(rule, crashed=True, nth=9, under_rule=n, spread=1)
        for n in (1, 2, 3)
    ]
    assert waits == [1, 2, 2]
    assert policy.INTERRUPTIONS_MAX == 20


def paused(crashes):
    """Return how long a kind waits after so many different jobs crashed in a row."""
    kind = circuit_breaker.Breaker("a", 5)
    for number in range(crashes):
        kind.crash(number, None, 0.0)
    return kind.state.value, kind.pause_s()


def test_the_pauses_of_a_kind_that_crashes():
    """From a second to a minute, then from five minutes to an hour."""
    found = [paused(crashes) for crashes in (4, 5, 6, 10, 11, 19, 20, 21, 23, 24, 200)]
    assert found == [
        ("closed", 0),
        ("slowed", 1),
        ("slowed", 2),
        ("slowed", 32),
        ("slowed", 60),
        ("slowed", 60),
        ("open", 300),
        ("open", 600),
        ("open", 2400),
        ("open", 3600),
        ("open", 3600),
    ]


def test_the_windows_of_suspicion():
    """Deaths that close together are no coincidence.

    A job that runs so long alone is cleared.
    """
    assert (suspects.DEATHS_WITHIN_S, suspects.PROBATION_S) == (600, 10)


def test_growth_of_memory_is_bounded():
    """Sixteen times per step, and fifty steps: every maximum is reached by then."""
    assert (limits.GROWTH_MAX, limits.GROWTH_STEPS_MAX) == (16, 50)
    pool = limits.PoolLimits(timeout_s=1, memory_bytes=1, memory_max_bytes=10**18)
    grown = [
        limits.resolve(
            configured=limits.Limits(memory_growth=2),
            job=limits.Limits(),
            declared=limits.Limits(),
            pool=pool,
            ran_out=times,
        ).memory_bytes
        for times in (0, 1, 49, 50, 51)
    ]
    assert grown == [1, 2, 2**49, 2**50, 2**50]


@pytest.mark.parametrize(
    ("soft", "effective"), [(9.5, 9.5), (10.0, None), (10.5, None), (None, None)]
)
def test_a_soft_time_limit_that_is_not_below_the_hard_one_is_dropped(soft, effective):
    """The hard one comes first."""
    found = limits.resolve(
        configured=limits.Limits(),
        job=limits.Limits(),
        declared=limits.Limits(soft_timeout_s=soft),
        pool=limits.PoolLimits(timeout_s=10.0, memory_bytes=1),
    )
    assert found.soft_timeout_s == effective


def test_a_job_that_waits_for_another_attempt_is_called_retryable():
    """Any other is called by its state."""
    fields = dict.fromkeys(one.name for one in msgspec.structs.fields(job.Job))
    shown = {
        (state, attempt): job.Job(
            **{**fields, "state": state, "attempt": attempt}
        ).shown_state
        for state in job.JobState
        for attempt in (0, 1)
    }
    wanted = {key: key[0].value for key in shown}
    assert shown == wanted | {(job.JobState.PENDING, 1): "retryable"}


def test_the_bounds_of_a_jobs_priority_and_times():
    """16 bits of priority; times up to the end of year 9999."""
    assert (job.PRIORITY_MIN, job.PRIORITY_MAX) == (-32768, 32767)
    assert job.TIME_MAX_MS == 253_402_300_799_000


def test_the_jitter_of_a_token_never_changes():
    """A replay in years to come makes the same choices; neighbours differ widely."""
    found = [lifecycle.spread_of(token) for token in (0, 1, 2, 3, 2**40 + 1)]
    assert found == pytest.approx(
        [-1, 0.236067977, -0.527864046, 0.708203932, 0.236068]
    )
    assert all(-1 <= lifecycle.spread_of(token) < 1 for token in range(1000))


@pytest.mark.parametrize(
    "outcome", [one for one in Outcome if one.value != "succeeded"]
)
@pytest.mark.parametrize("spent", [0, 4, 19])
def test_only_a_job_that_is_tried_again_has_a_delay(outcome, spent):
    """Final states have no delay; a delay belongs to a state that waits."""
    past = job.PastAttempt(outcome, None, 0)
    lease = job.Lease(
        id=1,
        token=7,
        kind="a",
        pool="cpu",
        attempt=spent + 1,
        payload=b"",
        interruptions=spent,
        recoveries=spent,
        history=(past,) * spent,
    )
    for never in (False, True):
        rules = {outcome.value: policy.RetryRule(never=True)} if never else {}
        for give_up in (False, True):
            for rerun in policy.Rerun:
                ending = lifecycle.Ending(outcome=outcome, give_up=give_up)
                rule = policy.Policy(rerun=rerun, retry=rules)
                made = lifecycle.account(lease, rule, ending, now_ms=0)
                waits = made.state is job.JobState.PENDING and CHARGES[outcome].failure
                assert bool(made.delay_ms) == waits


@pytest.mark.parametrize(
    ("limit_mib", "most_mib"), [(1, 33), (320, 352), (330, 363), (1000, 1100)]
)
def test_a_cgroups_limit_leaves_room_for_the_memory_watch(limit_mib, most_mib):
    """A tenth more, and at least 32 MiB."""
    assert cgroups.memory_max_bytes(limit_mib * MIB) == most_mib * MIB


def test_a_cgroup_limits_processes():
    """Where nothing else is set; each control is described in its own words."""
    assert cgroups.PROCESSES_MAX == 1024
    assert set(cgroups.EFFECTS) == set(cgroups.Control)
    assert len(set(cgroups.EFFECTS.values())) == len(cgroups.Control)
