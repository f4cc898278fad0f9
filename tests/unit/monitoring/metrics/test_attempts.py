"""A supervisor's own metrics: what its events say, and 0 before the first."""

import pytest

from jobpool.core.events.figures import AttemptsSucceeded, SupervisorFigures
from jobpool.core.events.flow import KindResumed, KindSlowed
from jobpool.core.events.jobs import JobDead, JobEnded, JobOutput, JobQuarantined
from jobpool.core.events.schedules import TicksMissed
from jobpool.core.events.supervisor import RunReclaimed, StoreBack, StoreTrouble
from jobpool.core.jobs.job import JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.circuit_breaker import BreakerState
from jobpool.core.rules.run_report import (
    HostReport,
    PoolReport,
    RunReport,
    StoreReport,
)
from jobpool.monitoring.metrics import catalogue
from jobpool.monitoring.metrics.attempts import AttemptMetrics

REPORT = RunReport(
    pools={"cpu": PoolReport(size=4, busy=3, wanted=6, holds="memory")},
    host=HostReport(cpu_busy=0.5, cpu_pressure=25.0, available_bytes=2**30),
    store=StoreReport(commit_p50_ms=2.0, commit_p99_ms=9.0, connections=7),
)


def figures(kinds=("shop.pay",), **more):
    given = {"report": REPORT, "kills": {}, "since_lease_s": 1.5, **more}
    return SupervisorFigures(at_ms=0, kinds={"cpu": kinds}, **given)


def succeeded(kind="shop.pay", runs=(0.02, 3.0), **more):
    given = {
        "waits_s": [0.1] * len(runs),
        "peaks_bytes": [2**25] * len(runs),
        "attempts": [1] * len(runs),
        **more,
    }
    return AttemptsSucceeded(at_ms=0, kind=kind, pool="cpu", durations_s=runs, **given)


def ended(outcome=Outcome.TIMED_OUT, state=JobState.PENDING, **more):
    given = {"slot": "cpu/1", "duration_s": 30.0, "peak_rss_bytes": 2**26, **more}
    return JobEnded(
        at_ms=0, id=1, kind="shop.pay", outcome=outcome, state=state, **given
    )


def samples(metrics):
    """Return all values, each by its name with its labels' values."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in metrics.collect()
        for sample in family.samples
    }


def test_series_of_known_kinds_are_there_with_0():
    """A rate over a series that appears with its first failure misses that one."""
    metrics = AttemptMetrics()
    metrics.observe(figures())
    found = samples(metrics)
    for outcome in Outcome:
        assert found["jobpool_attempts_total", "shop.pay", "cpu", outcome] == 0
    assert found["jobpool_dead_total", "shop.pay"] == 0
    assert found["jobpool_attempt_run_seconds_count", "shop.pay", "cpu"] == 0
    assert found["jobpool_kills_total", "memory"] == 0


def test_successes_are_counted_by_the_batch():
    metrics = AttemptMetrics()
    metrics.observe(figures())
    metrics.observe(succeeded())
    metrics.observe(succeeded(runs=(0.5,), attempts=[3]))
    found = samples(metrics)
    place = ("shop.pay", "cpu")
    assert found["jobpool_attempts_total", *place, "succeeded"] == 3
    run = "jobpool_attempt_run_seconds"
    assert found[f"{run}_count", *place] == 3
    assert found[f"{run}_sum", *place] == pytest.approx(3.52)
    assert found[f"{run}_bucket", *place, "0.025"] == 1
    assert found[f"{run}_bucket", *place, "0.5"] == 2  # an edge belongs to its bucket
    assert found[f"{run}_bucket", *place, "+Inf"] == 3
    assert found["jobpool_attempts_per_success_bucket", "shop.pay", "2.0"] == 2


def test_many_successes_are_counted_without_a_scrape(monkeypatch):
    """Nobody may ever scrape: what is put aside is bounded."""
    monkeypatch.setattr("jobpool.monitoring.metrics.attempts._ASIDE_MAX", 10)
    metrics = AttemptMetrics()
    for _ in range(25):
        metrics.observe(succeeded())
        assert len(metrics._aside) < 10
    assert (
        samples(metrics)["jobpool_attempts_total", "shop.pay", "cpu", "succeeded"] == 50
    )


def test_other_ends_are_counted_by_outcome():
    metrics = AttemptMetrics()
    metrics.observe(figures())
    metrics.observe(ended())
    metrics.observe(ended(Outcome.CRASHED, JobState.QUARANTINED))
    metrics.observe(ended(Outcome.LOST, slot=None, duration_s=None))
    metrics.observe(JobDead(at_ms=0, id=1, kind="shop.pay"))
    metrics.observe(JobQuarantined(at_ms=0, id=1, kind="shop.pay"))
    found = samples(metrics)
    for outcome in ("timed_out", "crashed", "lost"):
        assert found["jobpool_attempts_total", "shop.pay", "cpu", outcome] == 1
    assert found["jobpool_retries_total", "shop.pay"] == 2
    assert found["jobpool_dead_total", "shop.pay"] == 1
    assert found["jobpool_quarantined_total", "shop.pay"] == 1
    assert found["jobpool_attempt_run_seconds_count", "shop.pay", "cpu"] == 2


def test_figures_are_in_base_units():
    metrics = AttemptMetrics()
    metrics.observe(figures(kills={"memory": 4}))
    found = samples(metrics)
    assert found["jobpool_slots", "cpu"] == 4
    assert found["jobpool_slots_busy", "cpu"] == 3
    assert found["jobpool_slots_wanted", "cpu"] == 6
    assert found["jobpool_slots_held", "cpu"] == 1
    assert found["jobpool_kills_total", "memory"] == 4
    assert found["jobpool_last_lease_seconds",] == 1.5
    assert found["jobpool_store_commit_seconds", "0.99"] == pytest.approx(0.009)
    assert found["jobpool_store_connections",] == 7
    assert found["jobpool_host_pressure_ratio", "cpu"] == 0.25
    assert ("jobpool_store_lock_waits",) not in found  # this store does not tell


def test_states_are_of_now():
    metrics = AttemptMetrics()
    metrics.observe(figures())
    slowed = {"kind": "shop.pay", "crashes": 5, "again_in_s": 1.0}
    metrics.observe(KindSlowed(at_ms=0, state=BreakerState.OPEN, **slowed))
    metrics.observe(StoreTrouble(at_ms=0, error="away", again_in_s=1.0))
    found = samples(metrics)
    assert found["jobpool_kind_breaker_state", "shop.pay"] == 2
    assert found["jobpool_store_up",] == 0
    metrics.observe(KindResumed(at_ms=0, kind="shop.pay", reason="a success"))
    metrics.observe(StoreBack(at_ms=0, away_s=3.0))
    metrics.observe(figures())
    found = samples(metrics)
    assert found["jobpool_kind_breaker_state", "shop.pay"] == 0
    assert found["jobpool_store_up",] == 1


def test_what_dead_runs_and_missed_ticks_cost_is_counted():
    metrics = AttemptMetrics()
    run = {"run_id": "r", "host": "a", "pid": 1, "killed": 0}
    metrics.observe(RunReclaimed(at_ms=0, handed_back=3, lost=2, **run))
    metrics.observe(TicksMissed(at_ms=0, schedule="nightly", missed=2, late_s=90.0))
    found = samples(metrics)
    assert found["jobpool_leases_reclaimed_total", "lost"] == 2
    assert found["jobpool_leases_reclaimed_total", "handed_back"] == 3
    assert found["jobpool_ticks_missed_total", "nightly"] == 2
    assert found["jobpool_tick_late_seconds", "nightly"] == 90


def test_too_many_kinds_are_one_series(monkeypatch):
    """A producer that invents kinds does not fill Prometheus."""
    monkeypatch.setattr(catalogue, "KINDS_MAX", 3)
    metrics = AttemptMetrics()
    for number in range(10):
        metrics.observe(succeeded(f"kind-{number}", runs=(1.0,)))
    found = samples(metrics)
    total = "jobpool_attempts_total"
    assert sum(key[0] == total for key in found) == 4
    assert found[total, "other", "cpu", "succeeded"] == 7


def test_it_hears_what_it_counts_and_no_single_success():
    """With thousands of them a second, each would cost more than all the rest."""
    metrics = AttemptMetrics()
    assert metrics.hears(AttemptsSucceeded)
    assert metrics.hears(JobEnded)
    assert not metrics.hears(JobOutput)
