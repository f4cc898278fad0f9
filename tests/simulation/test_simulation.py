"""Thousands of simulated lives: every promise holds in each, reproducibly."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from jobpool.core.rules.quotas.definition import Need, Quota
from jobpool.core.rules.quotas.rate import Rate
from simulation.draw import draw
from simulation.many import run_many, run_some, sample
from simulation.plan import Fate, Fault, JobPlan, Plan, QuotasPlan
from simulation.planted import planted
from simulation.rare import RARE
from simulation.shrink import shrink, story
from simulation.simulate import run, run_seed
from simulation.store import Link
from support.store.history import Started

ENOUGH = 5
"""Failed seeds: one is shown; a fault that all meet would take hours to be sought."""
EVENTS = 2000
"""A third more than the first lives take on average."""
SHRINKABLE = "run again what must not"


@pytest.mark.timeout(600)
def test_every_promise_holds_in_thousands_of_lives() -> None:
    """No seed breaks an invariant, and together they meet every rare event."""
    seeds, processes = sample(), min(2, os.cpu_count() or 1)
    sums = run_many(seeds, processes=processes, enough=ENOUGH)
    if sums.failed:
        pytest.fail(story(shrink(run_seed(min(sums.failed)))))
    assert sums.seeds == len(seeds)
    assert [name for name in RARE if not sums.sometimes[name]] == []


def test_lives_are_short() -> None:
    """A check that supervisors go on with in hours of quiet would be most of a life."""
    seeds = 30
    assert run_some(range(seeds)).events < seeds * EVENTS


def test_a_seed_is_reproducible() -> None:
    """The same seed gives the same history, byte for byte; another seed another one."""
    digests = [run_seed(seed).digest for seed in (7, 8, 7)]
    assert digests[0] == digests[2] != digests[1]


def test_a_seed_is_reproducible_in_every_process() -> None:
    """Neither another process nor another order of sets changes it."""
    code = (
        "from simulation.simulate import run_seed; "
        "print([run_seed(s).digest for s in (3, 4)])"
    )
    tests = str(Path(__file__).parents[1])
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": tests},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert said == {f"{[run_seed(seed).digest for seed in (3, 4)]}\n"}


def test_a_failure_is_shrunk_and_reported_whole() -> None:
    """It names its seed, drops what does not matter, and gives the job's history."""
    with planted(SHRINKABLE):
        seed = min(run_some(range(40), enough=1).failed)
        result = run_seed(seed)
        small = shrink(result)
    assert len(small.plan.jobs) <= len(result.plan.jobs)
    assert len(small.plan.faults) <= len(result.plan.faults)
    text = story(small)
    assert f"--seed0 {seed} --seeds 1" in text
    assert all(part in text for part in ("Granted(", "Started(", "Settled("))
    assert run(small.plan).found == []


# -- scenarios in which bugs were found -----------------------------------------------


def scenario(*, jobs: tuple[JobPlan, ...] = (), faults: tuple[Fault, ...]) -> Plan:
    """Return a small scenario on one host."""
    return Plan(
        seed=1,
        shared=False,
        supervisors=1,
        hosts=1,
        pools=(("cpu", 2, 2),),
        ttl_s=300.0,
        jobs=jobs,
        faults=faults,
        quiet_at_s=20.0,
    )


def test_a_supervisor_waits_for_a_store_that_is_away_when_it_enters_its_run() -> None:
    """The supervisor waits for it and does not mistake it for another database."""
    away = Fault(at_s=0.1, what="lose", where=0, seconds=2.0, share=1.0)
    result = run(scenario(faults=(away,)))
    assert result.found == []
    assert result.sometimes["a request was lost"] > 0


def test_a_late_report_of_the_last_handler_does_not_end_the_next_attempt() -> None:
    """The next one is not charged a crash."""
    quick = Fate("ok", 0.0004)
    jobs = [
        JobPlan(at_s=1.0, kind="cpu.work", pool="cpu", fates=(quick,))
        for _ in range(16)
    ]
    jobs += [
        JobPlan(at_s=5.0, kind="cpu.work", pool="cpu", fates=(Fate(name, 0.0004),))
        for name in ("twice", "twice", "ok", "ok", "ok", "ok", "ok", "ok")
    ]
    result = run(scenario(jobs=tuple(jobs), faults=()))
    assert result.found == []
    assert result.sometimes["fate twice"] == 2


def test_a_stopped_child_with_jobs_sent_ahead_is_replaced() -> None:
    """It is replaced; the jobs are not sent and recalled forever."""
    quick = (Fate("ok", 0.0004),)
    jobs = [
        JobPlan(at_s=at_s, kind="cpu.work", pool="cpu", fates=quick)
        for at_s in (*(0.2,) * 9, 1.2, 1.2)
    ]
    cut = Fault(at_s=0.95, what="cut", seconds=6.0)
    stops = [Fault(at_s=4.0, what="stop_child", where=n) for n in (0, 1)]
    result = run(scenario(jobs=tuple(jobs), faults=(cut, *stops)))
    assert result.found == []


def test_a_late_report_from_a_supervisor_that_was_cut_off_is_refused() -> None:
    """Its job runs elsewhere by then. If it were accepted, this would be noticed."""
    slow = JobPlan(at_s=1.0, kind="cpu.work", pool="cpu", fates=(Fate("ok", 17.0),))
    plan = msgspec.structs.replace(
        scenario(
            jobs=(slow,) * 4,
            faults=(Fault(at_s=2.0, what="cut", where=0, seconds=14.0),),
        ),
        shared=True,
        supervisors=2,
        hosts=2,
        pools=(("cpu", 4, 4),),
        ttl_s=5.0,
    )
    result = run(plan)
    assert result.found == []
    assert result.sometimes["an end was refused as stale"] > 0
    with planted("settle whatever the token"):
        assert run(plan).found


def test_a_supervisor_that_wakes_up_late_completes_nothing() -> None:
    """Its job runs elsewhere by then. If it were completed, this would be noticed."""
    fates = (Fate("complete", 2.0), Fate("ok", 17.0))
    job = JobPlan(at_s=1.0, kind="cpu.work", pool="cpu", fates=fates)
    plan = msgspec.structs.replace(
        scenario(
            jobs=(job,),
            faults=(Fault(at_s=0.5, what="sleep_at_completion", seconds=8.0),),
        ),
        shared=True,
        supervisors=2,
        hosts=2,
        ttl_s=5.0,
    )
    result = run(plan)
    assert result.found == []
    assert result.sometimes["a completion was superseded"] == 1
    with planted("complete whatever the token"):
        # Not in each: the fence may end it before its commit.
        lives = [run(msgspec.structs.replace(plan, seed=seed)) for seed in range(8)]
    assert "I5" in {found.rule for life in lives for found in life.found}


def test_a_completion_stands_however_its_attempt_ends() -> None:
    """Its end is charged to no job; what was not committed is no success."""
    names = ("complete", "complete_crash", "complete_hang", "complete_fail")
    jobs = [
        JobPlan(at_s=1.0 + n, kind="cpu.work", pool="cpu", fates=(Fate(name, 0.1),))
        for name in (*names, "complete_not")
        for n in range(4)
    ]
    result = run(scenario(jobs=tuple(jobs), faults=()))
    assert result.found == []
    assert result.sometimes["a completion stands whatever became of its attempt"] > 0
    assert result.sometimes["a completion was never committed"] > 0
    with planted("what was never committed is a success"):
        assert "I7" in {found.rule for found in run(result.plan).found}


@pytest.mark.parametrize("trip_s", [0.001, 0.02, 0.15])
def test_jobs_of_a_rate_begin_however_slow_the_store_is(monkeypatch, trip_s):
    """No answer comes in the time that so small a burst allows by itself."""
    monkeypatch.setattr(Link, "_trip_s", lambda _link: trip_s)
    monkeypatch.setattr(Link, "_is_slow_today", lambda _link: True)
    rate = Quota(name="rate", rate=Rate(1.0, 1.0), burst=1)
    quotas = QuotasPlan(quotas=(rate,), needs={"cpu.work": (Need("rate"),)}, caps={})
    job = JobPlan(at_s=1.0, kind="cpu.work", pool="cpu", fates=(Fate("ok", 0.01),))
    plan = msgspec.structs.replace(
        scenario(jobs=(job,) * 5, faults=()), quotas=(quotas,)
    )
    result = run(plan)
    assert result.found == []
    assert len([s for s in result.history.of(Started) if s.at_s < 15.0]) == 5


def test_seeds_give_different_scenarios() -> None:
    """Seeds stand for different scenarios, on both kinds of store."""
    plans = [draw(seed) for seed in range(50)]
    assert {plan.shared for plan in plans} == {True, False}
    assert len({plan.jobs for plan in plans}) == len(plans)
