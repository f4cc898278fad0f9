"""Steps of a schedule: case by case, and in arbitrary histories against a naive one."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobpool.core.jobs.job import JobState
from jobpool.core.rules.schedules.plan import plan
from jobpool.core.rules.schedules.policy import (
    BUFFER_MAX,
    Missed,
    Overlap,
    Policy,
)
from jobpool.core.rules.schedules.rule import Rule, jitter_of
from jobpool.core.rules.schedules.schedule import (
    FOREVER_MS,
    OpenTick,
    Progress,
    ScheduleState,
    TickState,
)
from jobpool.errors import ConfigError
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
).filter(lambda one: not (one.retry_over_tick and one.overlap is Overlap.CANCEL_OTHER))
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


HOUR_MS = 60 * MINUTE_MS
HOURLY = Rule(every_ms=HOUR_MS)
RUNS = OpenTick(START_MS, Progress.RUNNING, 1)
RETRIES = OpenTick(START_MS, Progress.RETRYING, 1)
ENDED = OpenTick(START_MS, Progress.ENDED, 1)
DEAD = OpenTick(START_MS, Progress.DEAD, 1)
FILLS = OpenTick(START_MS - HOUR_MS, Progress.RUNNING, 2, is_backfilled=True)
TO_FILL = OpenTick(START_MS - HOUR_MS, Progress.BUFFERED, None, is_backfilled=True)
WAITS = OpenTick(START_MS + 1, Progress.BUFFERED)
DUE_MS = START_MS + HOUR_MS


def state(*ticks, rule=HOURLY, policy=None, **changed):
    """Return a schedule whose tick at START_MS was the last one."""
    return ScheduleState(
        name="report",
        rule=rule,
        policy=policy or Policy(),
        since_ms=changed.pop("since_ms", START_MS - 48 * HOUR_MS),
        last_ms=changed.pop("last_ms", START_MS),
        ticks=ticks,
        **changed,
    )


def told(found):
    """Return what a plan does to ticks and jobs, without what is empty."""
    new = {tick.nominal_ms - START_MS: str(tick.state) for tick in found.write}
    begun = [nominal_ms - START_MS for nominal_ms in found.start]
    skipped = [nominal_ms - START_MS for nominal_ms in found.skip]
    parts = {"new": new, "begun": begun, "skipped": skipped, "cancel": [*found.cancel]}
    return {name: part for name, part in parts.items() if part}


NEW, AT_DUE = "new", HOUR_MS


@pytest.mark.parametrize(
    ("overlap", "ticks", "expected"),
    [
        ("skip", [ENDED], {NEW: {AT_DUE: "open"}}),
        ("skip", [RUNS], {NEW: {AT_DUE: "skipped"}}),
        ("skip", [RETRIES], {NEW: {AT_DUE: "open"}, "cancel": [1]}),
        ("skip", [FILLS], {NEW: {AT_DUE: "buffered"}}),
        ("skip", [FILLS, WAITS], {NEW: {AT_DUE: "skipped"}}),
        ("buffer_one", [RUNS], {NEW: {AT_DUE: "buffered"}}),
        ("buffer_one", [RUNS, WAITS], {NEW: {AT_DUE: "skipped"}}),
        # What waits comes first, also before a retry of what ran before it.
        ("buffer_one", [ENDED, WAITS], {NEW: {AT_DUE: "buffered"}, "begun": [1]}),
        (
            "buffer_one",
            [RETRIES, WAITS],
            {NEW: {AT_DUE: "buffered"}, "begun": [1], "cancel": [1]},
        ),
        ("buffer_all", [RUNS, WAITS], {NEW: {AT_DUE: "buffered"}}),
        ("buffer_all", [RETRIES, WAITS], {NEW: {AT_DUE: "buffered"}}),
        ("cancel_other", [RUNS], {NEW: {AT_DUE: "buffered"}, "cancel": [1]}),
        ("cancel_other", [RETRIES], {NEW: {AT_DUE: "open"}, "cancel": [1]}),
        (
            "cancel_other",
            [RUNS, WAITS],
            {NEW: {AT_DUE: "buffered"}, "skipped": [1], "cancel": [1]},
        ),
        # What would have begun in this step is not begun.
        ("cancel_other", [ENDED, WAITS], {NEW: {AT_DUE: "open"}, "skipped": [1]}),
        ("cancel_other", [FILLS], {NEW: {AT_DUE: "buffered"}}),
        ("allow_all", [RUNS, FILLS], {NEW: {AT_DUE: "open"}}),
        ("buffer_all", [WAITS, RUNS, ENDED], {NEW: {AT_DUE: "buffered"}}),
        # After a change of the policy.
        ("skip", [RETRIES, FILLS], {NEW: {AT_DUE: "skipped"}}),
        ("allow_all", [RETRIES, WAITS], {NEW: {AT_DUE: "open"}, "begun": [1]}),
        # Back-filled ticks wait for one another, and give way.
        ("skip", [ENDED, TO_FILL], {NEW: {AT_DUE: "open"}}),
        ("allow_all", [TO_FILL], {NEW: {AT_DUE: "open"}, "begun": [-HOUR_MS]}),
    ],
)
def test_a_tick_beside_others(overlap, ticks, expected):
    found = plan(state(*ticks, policy=Policy(overlap=Overlap(overlap))), DUE_MS)
    assert told(found) == expected
    assert found.done == ((START_MS,) if ENDED in ticks else ())
    assert found.next_due_ms == DUE_MS + HOUR_MS


def test_the_oldest_begins_first():
    """Among those that wait, and among those that are backfilled."""
    later = OpenTick(START_MS + 2, Progress.BUFFERED)
    policy = Policy(overlap=Overlap.BUFFER_ALL, missed=Missed.ALL)
    assert plan(state(later, WAITS, policy=policy), DUE_MS - 1).start == (START_MS + 1,)
    to_fill = OpenTick(DUE_MS + 1, Progress.BUFFERED, None, is_backfilled=True)
    found = plan(state(to_fill, policy=policy), DUE_MS + 61 * SECOND_MS)
    assert told(found) == {NEW: {AT_DUE: "open"}}


def test_the_newest_of_a_step_is_kept_where_it_takes_the_others_place():
    rule = Rule(every_ms=20 * SECOND_MS)
    policy = Policy(overlap=Overlap.CANCEL_OTHER)
    found = plan(state(RUNS, WAITS, rule=rule, policy=policy), START_MS + MINUTE_MS)
    assert told(found) == {
        NEW: {20_000: "skipped", 40_000: "skipped", 60_000: "buffered"},
        "skipped": [1],
        "cancel": [1],
    }


def test_a_step_has_a_limit():
    """The rest is due at once, and goes on where it ended."""
    policy = Policy(missed=Missed.ALL)
    now_ms = START_MS + 5 * HOUR_MS
    found = plan(state(policy=policy), now_ms, limit=2)
    assert told(found) == {NEW: {HOUR_MS: "open", 2 * HOUR_MS: "buffered"}}
    assert (found.more, found.next_due_ms) == (True, now_ms)
    rest = plan(state(policy=policy, last_ms=found.last_ms), now_ms, limit=3)
    assert [tick.nominal_ms - START_MS for tick in rest.write] == [
        n * HOUR_MS for n in (3, 4, 5)
    ]
    assert (rest.more, rest.next_due_ms) == (False, now_ms + HOUR_MS)


def test_the_line_has_an_end():
    """But no backfilled tick is skipped for it."""
    policy = Policy(overlap=Overlap.BUFFER_ALL)
    line = [OpenTick(START_MS + n, Progress.BUFFERED) for n in range(1, BUFFER_MAX)]
    assert told(plan(state(RUNS, TO_FILL, *line, policy=policy), DUE_MS)) == {
        NEW: {AT_DUE: "buffered"}
    }
    assert told(plan(state(RUNS, TO_FILL, *line, WAITS, policy=policy), DUE_MS)) == {
        NEW: {AT_DUE: "skipped"}
    }


def test_a_retry_is_kept_over_a_tick_on_request():
    policy = Policy(retry_over_tick=True)
    assert told(plan(state(RETRIES, policy=policy), DUE_MS)) == {
        NEW: {AT_DUE: "skipped"}
    }


def test_nothing_is_due_before_its_time():
    """Also with jitter, which moves when a tick is due and not its nominal time."""
    rule = Rule(every_ms=HOUR_MS, jitter_ms=MINUTE_MS)
    due_ms = DUE_MS + jitter_of(rule, "report")
    early = plan(state(rule=rule), due_ms - 1)
    assert (early.write, early.next_due_ms, early.last_ms) == ((), due_ms, START_MS)
    assert told(plan(state(rule=rule), due_ms)) == {NEW: {AT_DUE: "open"}}


@pytest.mark.parametrize("seconds", [60, 61])
@pytest.mark.parametrize("missed", Missed)
def test_a_tick_is_missed_after_a_minute(missed, seconds):
    """One that could be stored within it is on time: no host was away."""
    policy = Policy(missed=missed)
    found = plan(state(policy=policy), DUE_MS + seconds * SECOND_MS)
    if seconds == 61 and missed is Missed.SKIP:
        assert (found.write, found.missed) == ((), 1)
    else:
        (tick,) = found.write
        assert (tick.nominal_ms, tick.state) == (DUE_MS, TickState.OPEN)
        assert tick.is_backfilled == (seconds == 61 and missed is Missed.ALL)
        assert found.missed == 0


@pytest.mark.parametrize(
    ("missed", "most", "first", "gone"),
    [
        ("all", 1000, 41, 40),
        ("all", 3, 48, 47),
        ("one", 1000, 50, 49),
        ("skip", 9, 51, 50),
    ],
)
def test_what_was_missed_is_caught_up_with_within_bounds(missed, most, first, gone):
    """Of fifty hours away, ten may be caught up with, or fewer."""
    policy = Policy(missed=Missed(missed), catchup_window_s=10 * 3600, catchup_max=most)
    after_ms = START_MS + 50 * HOUR_MS + 2 * MINUTE_MS
    found = plan(state(policy=policy), after_ms)
    hours = [(tick.nominal_ms - START_MS) // HOUR_MS for tick in found.write]
    assert (hours, found.missed) == ([*range(first, 51)], gone)
    assert found.next_due_ms == START_MS + 51 * HOUR_MS
    states = [tick.state for tick in found.write]
    assert states == [TickState.OPEN, *[TickState.BUFFERED] * 20][: len(hours)]


def test_what_is_caught_up_with_begins_after_what_is_due_now():
    """Missed hours wait behind this hour's tick, which came in time."""
    policy = Policy(missed=Missed.ALL)
    found = plan(state(policy=policy), START_MS + 3 * HOUR_MS)
    assert told(found)[NEW] == {
        HOUR_MS: "buffered",
        2 * HOUR_MS: "buffered",
        3 * HOUR_MS: "open",
    }
    assert found.waits


def test_a_clock_that_was_ahead_silences_nobody():
    """What it has written is later than now: it is ignored, and nothing is repeated."""
    year_ms = 365 * 24 * HOUR_MS
    ahead = state(last_ms=START_MS + year_ms, policy=Policy(missed=Missed.ALL))
    back = plan(ahead, DUE_MS - 1)
    assert (back.write, back.missed, back.next_due_ms) == ((), 0, DUE_MS)
    assert back.last_ms < DUE_MS
    assert told(plan(ahead, DUE_MS)) == {NEW: {AT_DUE: "open"}}
    after = msgspec.structs.replace(ahead, last_ms=back.last_ms)
    assert told(plan(after, DUE_MS)) == {NEW: {AT_DUE: "open"}}
    made_ahead = state(since_ms=START_MS + year_ms, last_ms=None)
    assert plan(made_ahead, DUE_MS).next_due_ms <= DUE_MS + HOUR_MS
    chews = Rule(every_ms=HOUR_MS, from_end=True)
    ended_ahead = state(rule=chews, last_end_ms=START_MS + year_ms)
    assert told(plan(ended_ahead, DUE_MS)) == {NEW: {AT_DUE: "open"}}


@pytest.mark.parametrize("last_ms", [None, START_MS + 1000])
@pytest.mark.parametrize("ahead_s", [1, 12, 60])
def test_a_clock_that_was_set_back_a_little_waits_for_the_beginning(ahead_s, last_ms):
    """It will be there soon: no tick comes before the schedule was declared."""
    now_ms = START_MS - ahead_s * 1000
    rule, policy = Rule(every_ms=1000), Policy(overlap=Overlap.ALLOW_ALL)
    new = state(rule=rule, policy=policy, since_ms=START_MS, last_ms=last_ms)
    found = plan(new, now_ms)
    assert (found.write, found.missed) == ((), 0)
    assert found.next_due_ms == START_MS + 1000
    after = msgspec.structs.replace(new, last_ms=found.last_ms)
    assert told(plan(after, START_MS + 2000)) == {NEW: {1000: "open", 2000: "open"}}


@pytest.mark.parametrize("missed", Missed)
def test_what_a_clock_far_ahead_has_declared_has_no_past(missed):
    """It has ticks from now on: it was not declared before, and has missed none."""
    year_ms = 365 * 24 * HOUR_MS
    rule = Rule(every_ms=1000)
    policy = Policy(missed=missed, overlap=Overlap.ALLOW_ALL)
    new = state(rule=rule, policy=policy, since_ms=START_MS + year_ms, last_ms=None)
    found = plan(new, START_MS)
    assert (found.write, found.missed) == ((), 0)
    assert START_MS < found.next_due_ms <= START_MS + 1000
    after = msgspec.structs.replace(new, last_ms=found.last_ms)
    assert told(plan(after, START_MS + 2000)) == {NEW: {1000: "open", 2000: "open"}}


def test_a_pause_has_no_ticks():
    """Neither late nor missed; those from its end on are due as ever."""
    ends_ms = START_MS + 5 * HOUR_MS
    paused = state(ENDED, paused_until_ms=ends_ms, policy=Policy(missed=Missed.ALL))
    found = plan(paused, ends_ms - 1)
    assert (found.write, found.missed, found.done) == ((), 0, (START_MS,))
    assert (found.last_ms, found.next_due_ms) == (START_MS, ends_ms)
    assert told(plan(paused, ends_ms)) == {NEW: {5 * HOUR_MS: "open"}}
    for_ever = state(TO_FILL, paused_until_ms=FOREVER_MS)
    found = plan(for_ever, ends_ms)
    assert (told(found), found.next_due_ms, found.waits) == ({}, None, False)


@pytest.mark.parametrize("pauses", [True, False])
def test_a_dead_job_pauses_its_schedule_on_request(pauses):
    """Also one that is paused for some time already."""
    policy = Policy(pause_on_dead=pauses)
    for until_ms in (None, DUE_MS + 1):
        found = plan(state(DEAD, policy=policy, paused_until_ms=until_ms), DUE_MS)
        assert found.pause == pauses
        assert found.done == (START_MS,)
        if pauses:
            assert (told(found), found.next_due_ms) == ({}, None)
    assert plan(state(RUNS, policy=policy), START_MS + 1).waits == pauses


def test_a_period_from_the_end_begins_when_the_last_job_has_ended():
    rule = Rule(every_ms=HOUR_MS, from_end=True)
    running = plan(state(RUNS, rule=rule), DUE_MS + 9 * HOUR_MS)
    assert (told(running), running.next_due_ms, running.waits) == ({}, None, True)
    end_ms = START_MS + 90 * MINUTE_MS
    ended = plan(state(ENDED, rule=rule, last_end_ms=end_ms), end_ms)
    assert (told(ended), ended.done) == ({}, (START_MS,))
    assert ended.next_due_ms == end_ms + HOUR_MS
    late = plan(state(rule=rule, last_end_ms=end_ms), end_ms + 48 * HOUR_MS)
    assert told(late) == {NEW: {150 * MINUTE_MS: "open"}}  # late, but never missed
    assert (late.last_ms, late.next_due_ms) == (end_ms + HOUR_MS, None)
    pause_ms = START_MS + 9 * HOUR_MS
    paused = state(rule=rule, last_end_ms=end_ms, paused_until_ms=pause_ms)
    assert told(plan(paused, pause_ms)) == {NEW: {9 * HOUR_MS: "open"}}
    gone = plan(state(rule=rule), DUE_MS)  # its end is not known any more
    assert told(gone) == {NEW: {HOUR_MS: "open"}}


def test_after_its_end_a_schedule_is_silent():
    rule = Rule(every_ms=HOUR_MS, ends_ms=DUE_MS)
    found = plan(state(rule=rule), DUE_MS)
    assert (told(found), found.next_due_ms) == ({NEW: {AT_DUE: "open"}}, None)


def test_a_new_rule_has_no_past():
    """At ten, "at two" becomes "at nine": today's nine o'clock was not missed."""
    rule = Rule(cron="0 * * * *")
    changed_ms = START_MS + 30 * HOUR_MS + 1
    found = plan(state(rule=rule, since_ms=changed_ms), changed_ms)
    assert (found.write, found.missed, found.next_due_ms) == (
        (),
        0,
        START_MS + 31 * HOUR_MS,
    )


@pytest.mark.parametrize(
    "rule",
    [
        Rule(every_ms=-5),
        Rule(every_ms=0),
        Rule(),
        Rule(from_end=True),
        Rule(cron="x"),
        Rule(cron="@daily", tz="Mars"),
    ],
)
def test_what_was_changed_by_hand_is_an_error_and_no_endless_step(rule):
    with pytest.raises(ConfigError):
        plan(state(rule=rule), DUE_MS)
    odd = Policy(catchup_max=-1, catchup_window_s=-(10**9), missed=Missed.ALL)
    assert plan(state(policy=odd), DUE_MS + 50 * HOUR_MS).missed == 50
