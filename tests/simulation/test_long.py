"""Lives of days: what short ones cannot show, and that a bug would be noticed."""

from __future__ import annotations

import pytest

from simulation.long import DAY_S, HOUR_S, draw_long, is_long
from simulation.plan import Fate, Fault, JobPlan, Plan
from simulation.planted import planted
from simulation.simulate import Result, run, run_seed

KEPT_S = 6 * HOUR_S


def live(*jobs: JobPlan, faults: tuple[Fault, ...] = (), hosts: int = 1) -> Result:
    """Return the result of some days on one host, or on several."""
    return run(
        Plan(
            seed=1,
            shared=hosts > 1,
            supervisors=hosts,
            hosts=hosts,
            pools=(("cpu", 1, 1),),
            ttl_s=HOUR_S,
            jobs=jobs,
            faults=faults,
            quiet_at_s=3 * DAY_S,
            timeout_s=KEPT_S,
            checks_s=HOUR_S,
            kept_s=KEPT_S,
        )
    )


def job(*fates: Fate, again_s: tuple[float, ...] = ()) -> JobPlan:
    """Return a job under a key, with attempts enough."""
    return JobPlan(
        at_s=HOUR_S,
        kind="cpu.work",
        pool="cpu",
        fates=fates,
        key="k",
        max_attempts=20,
        again_s=again_s,
    )


OK, CRASH, NO = Fate("ok", 2.0), Fate("crash", 2.0), Fate("give_up", 2.0)
TWO_DAYS = Fate("later", 2.0, 2 * DAY_S)


def test_crashes_of_another_week_are_not_counted() -> None:
    """Three within 72 hours lead to quarantine.

    The same number over eight days does not.
    """
    apart = job(CRASH, TWO_DAYS, TWO_DAYS, CRASH, TWO_DAYS, TWO_DAYS, CRASH, OK)
    far, near = live(apart), live(job(CRASH, CRASH, CRASH, OK))
    assert far.found == near.found == []
    assert far.history.jobs[0].state == "succeeded"
    assert near.history.jobs[0].state == "quarantined"
    assert far.sometimes["crashes were too far apart to count together"] == 1


def test_a_finished_job_is_deleted_in_time_and_its_key_is_free() -> None:
    """Requested again it is the same job, and a new one once that is deleted."""
    again_s = (2 * HOUR_S, 2 * DAY_S)
    result = live(job(OK, again_s=again_s))
    assert result.found == []
    assert len(result.history.jobs) == 2
    assert result.sometimes["a key or unique text was known"] == 1
    assert result.sometimes["a job was deleted"] >= 1


def test_a_supervisor_that_was_gone_for_days_has_lost_its_run() -> None:
    """Others end it; the supervisor ends when it wakes up, and another one begins."""
    gone = Fault(at_s=HOUR_S, what="sleep_host", where=0, seconds=2 * DAY_S)
    result = live(job(OK), faults=(gone,), hosts=2)
    assert result.found == []
    assert result.sometimes["a run that was gone for a day was ended"] > 0
    assert result.sometimes["a supervisor was started again"] > 0


def test_jobs_that_fell_due_while_no_supervisor_ran_are_done_afterwards() -> None:
    """And no running job is lost."""
    away = Fault(at_s=1.5 * HOUR_S, what="away", seconds=2 * DAY_S)
    result = live(job(Fate("ok", 4 * HOUR_S)), faults=(away,))
    assert result.found == []
    assert [one.state for one in result.history.jobs] == ["succeeded"]
    assert result.history.jobs[0].interruptions == 1


@pytest.mark.parametrize(
    ("bug", "rule", "life"),
    [
        (
            "crashes are never forgotten",
            "I7",
            job(CRASH, TWO_DAYS, TWO_DAYS, CRASH, TWO_DAYS, TWO_DAYS, CRASH, OK),
        ),
        ("dead letters go with the rest", "I1", job(NO)),
        ("nothing is deleted", "I14", job(OK)),
        (
            "keys are forgotten in an hour",
            "I2",
            job(OK, again_s=(3 * HOUR_S, 4.5 * HOUR_S)),
        ),
    ],
)
def test_a_bug_that_only_time_shows_is_seen(bug: str, rule: str, life: JobPlan) -> None:
    """The same life without the bug breaks nothing."""
    assert live(life).found == []
    with planted(bug):
        assert rule in {found.rule for found in live(life).found}


def test_one_seed_in_fifty_stands_for_days() -> None:
    """It is reproducible as well, and costs no more than some dozen short ones."""
    seeds = [seed for seed in range(1000) if is_long(seed)]
    assert len(seeds) == 20
    assert all(draw_long(seed).quiet_at_s > 3 * DAY_S for seed in seeds)
    assert run_seed(seeds[0]).digest == run_seed(seeds[0]).digest
