"""The memory watch takes little of the supervisor's time, whatever a child does."""

import pytest

from jobpool.core.config.settings import MIB
from jobpool.core.isolation.cgroups import PROCESSES_COUNTED_MAX
from jobpool.core.jobs.memory_trail import Trail
from jobpool.sandbox.metering.sampling import SAMPLE_MAX_S, together_s
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.processes import memory_watch as watching
from jobpool.supervisor.processes.memory_watch import (
    GROWTH_BYTES,
    IDLE_SAMPLE_S,
    OUTPUT_SHOWN_BYTES,
    Watch,
)
from support.machine.sandbox_rig import pool_of

LIMIT = 512 * MIB
SMALL = 64 * MIB


class Process:
    """A child whose memory, and that of its tree, is what the test says."""

    job_pid = 0
    mark_path = ""
    root = 0
    is_alone = False

    def __init__(self):
        self.cpu_s = 0.0  # unknown
        self.samples = 0
        self.own = self.known = self.confirmed = 0
        self.below = []
        self.nears = []
        self.size = self.begun = 0
        self.report = b""

    def rss_bytes(self):
        return self.own

    def output_bytes(self):
        return len(self.report)

    def output_tail(self, max_bytes):
        return self.report[-max_bytes:]

    def trim_output(self, _keep, _over):
        return False

    def sample(self, _now_s, *, near=False):
        self.samples += 1
        self.nears.append(near)
        return self.known

    def measure(self, _limit, _now_s):
        return self.confirmed

    def forget_costs(self):
        pass


class Size:
    """How many a child's tree has: what the test says."""

    grows = False

    def __init__(self, process):
        self.process = process

    def begin(self):
        self.process.begun += 1

    def sample(self, _now_s, _most, _on_host):
        self.grows = self.process.size > 0
        return self.process.size


@pytest.fixture
def process(monkeypatch):
    made = Process()
    monkeypatch.setattr(watching, "cpu_s", lambda _pid: made.cpu_s)
    monkeypatch.setattr(watching, "trim_marks", lambda _path: None)
    monkeypatch.setattr(watching, "TreeMemory", lambda _pid: made)
    monkeypatch.setattr(watching, "Confirmation", lambda _tree: made)
    monkeypatch.setattr(watching, "TreeSize", lambda _pid: Size(made))
    return made


@pytest.fixture
def reports():
    return []


@pytest.fixture
def watch(process, reports):
    made = Watch(reports.append)
    made.adopt(0, process, pool_of())
    made.begin(cmd.Watch(0, 7, LIMIT, None), 0.0)
    return made


def test_known_descendants_are_sampled_with_their_child(watch, process):
    """However seldom new ones are searched for: their memory is in every figure."""
    process.own = LIMIT - 40 * MIB
    for step in range(1, 20):
        process.known = step * MIB
        watch.sample(watch.next_s())
        assert watch.peak_bytes(0) == process.own + process.known
    assert process.nears == [False, *[True] * 18]


def samples_in(watch, process, span_s):
    """Return how many samples are made in a span of time."""
    before, until_s = process.samples, watch.next_s() + span_s
    for _ in range(int(1000 * span_s)):  # more often than each millisecond: never
        if watch.next_s() > until_s:
            return process.samples - before
        watch.sample(watch.next_s())
    pytest.fail(f"at {watch.next_s()} s it is sampled over and over")


NEAR_LIMIT = LIMIT - 40 * MIB
"""So near that a child is sampled about two hundred times a second."""


@pytest.mark.parametrize("alone", [True, False])
def test_a_child_that_has_not_run_since_is_spared_its_next_sample(
    watch, process, alone
):
    """It cannot have grown; one with descendants might have, by them."""
    process.own, process.cpu_s, process.is_alone = NEAR_LIMIT, 1.0, alone
    made = samples_in(watch, process, 1.0)
    assert (10 <= made <= 13) if alone else made >= 200


def test_a_child_that_has_run_is_sampled_as_soon_as_one_that_never_sleeps(
    watch, process
):
    """Whatever it did in between is seen at the moment it would have been seen."""
    process.own, process.cpu_s, process.is_alone = NEAR_LIMIT, 1.0, True
    watch.sample(watch.next_s())
    watch.sample(watch.next_s())  # spared
    process.own = NEAR_LIMIT + MIB
    process.cpu_s += 1e-6
    asleep_s = watch.next_s()
    watch.sample(asleep_s)
    assert watch.peak_bytes(0) == NEAR_LIMIT + MIB


def test_what_grows_without_its_own_time_is_seen_within_the_longest_pause(
    watch, process
):
    """The kernel may fill its memory, or another process that is not below it."""
    process.own, process.cpu_s, process.is_alone = NEAR_LIMIT, 1.0, True
    watch.sample(watch.next_s())
    began_s = watch.next_s()
    process.own = NEAR_LIMIT + MIB
    for _ in range(100):
        watch.sample(watch.next_s())
        if watch.peak_bytes(0) == process.own:
            break
    assert watch.peak_bytes(0) == process.own
    assert watch.next_s() - began_s <= SAMPLE_MAX_S + 0.02


def test_a_child_whose_time_is_unknown_is_sampled_every_time(watch, process):
    """Where the kernel does not say, nothing is spared."""
    process.own, process.is_alone = NEAR_LIMIT, True
    assert samples_in(watch, process, 0.5) >= 100


def test_children_that_wait_alike_are_sampled_in_the_same_turns():
    """A turn of the loop costs more than a sample; none waits longer than it may."""
    due = {together_s(7 + at / 1000, 0.005 + at / 1e5) for at in range(40)}
    assert len(due) <= 25
    for at in range(1, 1000):
        wait_s = at / 1e4
        assert 7 + wait_s / 2 <= together_s(7.0, wait_s) <= 7 + wait_s


def test_the_recorded_peak_is_the_highest_until_the_end(watch, process, reports):
    """A child over its limit grows until it is gone; it is reported once."""
    process.own = process.confirmed = LIMIT + 1
    watch.sample(watch.next_s())
    assert reports == [inp.OverMemory(0, 7, LIMIT + 1)]
    process.known = LIMIT
    for _ in range(5):
        watch.sample(watch.next_s())
    assert watch.peak_bytes(0) == 2 * LIMIT + 1
    assert len(reports) == 1


def test_a_trail_is_of_one_attempt_and_ends_with_its_growth(watch, process, reports):
    """What a killed child gives back while it dies is no part of it."""
    process.own = 40 * MIB
    watch.sample(watch.next_s())
    process.own = process.confirmed = LIMIT + MIB
    watch.sample(watch.next_s())
    assert len(reports) == 1
    for own in (LIMIT + 2 * MIB, LIMIT, 0):
        process.own = own
        watch.sample(watch.next_s())
    seq, trail = watch.trail(0)
    assert (seq, trail.limit_bytes) == (7, LIMIT)
    sizes = [size for _, size in trail.points]
    assert sizes == [40 * MIB, LIMIT + MIB, LIMIT + 2 * MIB]
    watch.begin(cmd.Watch(0, 8, LIMIT, None), 9.0)
    process.own = process.confirmed = 30 * MIB
    watch.sample(9.125)
    assert watch.trail(0) == (8, Trail(LIMIT, ((125, 30 * MIB),)))


def test_a_child_over_its_limit_is_reported_again_in_its_next_attempt(
    watch, process, reports
):
    """The report may have come when its attempt had ended."""
    process.own = process.confirmed = LIMIT + 1
    watch.sample(watch.next_s())
    watch.begin(cmd.Watch(0, 8, LIMIT, None), 10.0)
    watch.sample(watch.next_s())
    assert [over.seq for over in reports] == [7, 8]


def rest_with(watch, process, own):
    """Let a small job end in a child that has had a big one, and sample it."""
    process.own = process.confirmed = own
    watch.begin(cmd.Watch(0, 8, SMALL, None), 0.5)
    watch.rest(0, LIMIT)
    watch.sample(watch.next_s())


def test_a_small_job_is_not_blamed_for_memory_left_by_a_big_one(
    watch, process, reports
):
    """While idle, the highest limit among its attempts applies to the child."""
    rest_with(watch, process, 2 * SMALL)
    watch.sample(watch.next_s() + IDLE_SAMPLE_S)
    assert reports == []


def test_a_child_that_becomes_idle_with_too_much_memory_is_replaced_without_an_alarm(
    watch, process, reports
):
    """Quick jobs end before they are sampled: nothing has been done since."""
    rest_with(watch, process, LIMIT + MIB)
    assert reports == [inp.Overfull(0)]


def test_an_idle_child_that_grows_beyond_all_limits_is_reported_as_not_idle(
    watch, process, reports
):
    """No job runs that might grow: some handler has reported its own end."""
    rest_with(watch, process, LIMIT - MIB)
    assert reports == []
    process.own = process.confirmed = LIMIT + GROWTH_BYTES
    watch.sample(watch.next_s())
    (report,) = reports
    assert isinstance(report, inp.NotIdle)
    assert "528MiB, 512MiB allowed" in report.activity


def test_a_growing_process_tree_is_sampled_every_50_ms(watch, process, reports):
    """However far its memory is from its limit. Over its number it is reported once."""
    process.size = 300
    watch.sample(began_s := watch.next_s())
    assert watch.next_s() - began_s <= 0.05
    assert reports == []
    process.size = PROCESSES_COUNTED_MAX + 1
    watch.sample(watch.next_s())
    watch.sample(watch.next_s())
    most = PROCESSES_COUNTED_MAX
    assert reports == [inp.OverProcesses(0, 7, most + 1, most)]


def test_each_attempt_is_charged_only_for_its_own_processes(watch, process):
    """What was in its child's tree before does not count as its growth."""
    watch.begin(cmd.Watch(0, 8, LIMIT, None), 1.0)
    assert process.begun == 2


def test_of_a_growing_crowd_the_number_is_checked_first(watch, process):
    """Measuring the memory of thousands takes longer than they take to multiply."""
    process.size = 501
    watch.sample(began_s := watch.next_s())
    assert process.nears == []
    assert watch.next_s() == began_s + 0.05
    process.size = 500
    watch.sample(watch.next_s())
    assert process.nears == [False]


def test_an_idle_child_with_thousands_of_processes_is_reported(watch, process, reports):
    """A handler that has reported its end can go on forking."""
    rest_with(watch, process, SMALL)
    process.size = PROCESSES_COUNTED_MAX + 1
    watch.sample(watch.next_s())
    assert reports == [inp.NotIdle(0, "has 4097 processes and threads")]


def seen(watch, reports, until_s):
    """Sample until then; return what was shown since the last time, and when."""
    found, now_s = [], watch.next_s()
    while now_s <= until_s:
        watch.sample(now_s)
        found += [
            (now_s, one) for one in reports if isinstance(one, inp.AttemptSampled)
        ]
        reports.clear()
        now_s = watch.next_s()
    return found


def test_memory_and_output_are_shown_once_a_second_while_they_change(
    watch, process, reports
):
    """Its output and its memory; nothing for attempts that end sooner."""
    process.own = SMALL
    watch.begin(cmd.Watch(0, 7, LIMIT), 0.0)
    assert seen(watch, reports, 0.9) == []
    ((_at_s, first),) = seen(watch, reports, 3.0)
    assert first == inp.AttemptSampled(0, 7, SMALL, None)
    process.report = b"x" * (OUTPUT_SHOWN_BYTES + 1)
    ((_at_s, wrote),) = seen(watch, reports, 6.0)
    assert wrote == inp.AttemptSampled(0, 7, SMALL, b"x" * OUTPUT_SHOWN_BYTES)
    process.own += SMALL // 50
    assert seen(watch, reports, 9.0) == []
    process.own += SMALL // 2
    ((_at_s, grown),) = seen(watch, reports, 12.0)
    assert (grown.rss_bytes, grown.output) == (process.own, None)


def test_a_flood_is_shown_no_more_often(watch, process, reports):
    """Once a second, and only its tail."""
    process.own = SMALL
    watch.begin(cmd.Watch(0, 7, LIMIT), 0.0)
    times_s = []
    for step in range(100):
        process.report += b"%09d\n" % step * 1000
        times_s += [at_s for at_s, _one in seen(watch, reports, step / 20)]
    assert 3 <= len(times_s) <= 5


def test_the_next_attempt_begins_without_output(watch, process, reports):
    """Its child's capture is empty again, and the attempt's output is its own."""
    process.own, process.report = SMALL, b"one"
    watch.begin(cmd.Watch(0, 7, LIMIT), 0.0)
    assert [one.output for _at_s, one in seen(watch, reports, 2.0)] == [b"one"]
    process.report = b""
    watch.begin(cmd.Watch(0, 8, LIMIT), 2.0)
    process.report = b"two"
    ((at_s, shown),) = seen(watch, reports, 4.0)
    assert (shown.seq, shown.output) == (8, b"two")
    assert at_s >= 3.0
