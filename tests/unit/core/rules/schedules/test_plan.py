"""Steps of a schedule, in arbitrary histories, against a naive reckoning of each."""

from hypothesis import given
from hypothesis import strategies as st

from jobpool.core.jobs.job import JobState
from jobpool.core.rules.schedules.policy import Missed, Overlap, Policy
from jobpool.core.rules.schedules.rule import Rule
from jobpool.core.rules.schedules.schedule import TickState
from support.schedules.world import SECOND_MS, World

START_MS = 1_800_000_000_000
MINUTE_MS = 60 * SECOND_MS

POLICIES = st.builds(
    Policy,
    missed=st.sampled_from(Missed),
    catchup_window_s=st.sampled_from([60, 600, 86_400]),
    catchup_max=st.sampled_from([1, 3, 1000]),
    overlap=st.sampled_from(Overlap),
    retry_over_tick=st.booleans(),
)
RULES = st.builds(
    Rule,
    every_ms=st.sampled_from([1, 7, 30, 60, 200]).map(lambda s: s * SECOND_MS),
    jitter_ms=st.sampled_from([0, 0, 900]),
)
EVENTS = st.one_of(
    st.tuples(st.just("pass"), st.sampled_from([1, 20, 61, 200, 1000, 4000])),
    st.tuples(st.just("lease"), st.integers(0, 3)),
    st.tuples(st.just("end"), st.integers(0, 3)),
    st.tuples(st.just("fail"), st.integers(0, 3)),
    st.tuples(st.just("die"), st.integers(0, 3)),
    st.tuples(st.just("backfill"), st.integers(1, 100)),
)


def happen(world, event, number):
    """Let something happen to a world."""
    jobs = world.unfinished()
    job = jobs[number % len(jobs)] if jobs else None
    match event:
        case "pass":
            world.now_ms += number * SECOND_MS
        case "backfill":
            world.backfill(world.since_ms - number * world.rule.every_ms)
        case "lease" if job:
            job.state = JobState.LEASED
        case "end" if job:
            world.end(job)
        case "fail" if job:
            world.fail(job)
        case "die" if job:
            world.end(job, JobState.DEAD)


@given(POLICIES, RULES, st.lists(EVENTS, max_size=30), st.integers(1, 5))
def test_each_time_is_dealt_with_once(policy, rule, events, limit):
    """Whatever happens between steps; and nothing waits for ever."""
    world = World(policy, rule, START_MS)
    for event, number in events:
        happen(world, event, number)
        world.step(limit if number == 20 else 10_000)
    while world.last is None or world.last.more:
        world.step(limit)
    world.check_account()
    rest = list(world.ticks)
    while (jobs := world.unfinished()) or world.last.waits:
        for job in jobs:
            world.end(job)
        world.step()
    assert not [at for at in rest if world.ticks[at][0] is TickState.BUFFERED]
