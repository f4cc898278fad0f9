"""The soft memory limit: which one applies, when it is passed, and what is told."""

from typing import ClassVar

import msgspec
import pytest

from jobpool.core.config.readers import soft_size
from jobpool.core.config.settings import MIB
from jobpool.core.events.jobs import MemorySoftPassed
from jobpool.core.rules.limits import Limits, PoolLimits, resolve
from jobpool.errors import ConfigError
from jobpool.sandbox.metering.sampling import together_s
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.processes import memory_watch as watching
from jobpool.supervisor.processes.memory_watch import Watch
from support.configuring import build, toml
from support.machine.sandbox_rig import pool_of
from support.machine.world import World

HARD = 512 * MIB
SOFT = 400 * MIB
POOL = PoolLimits(timeout_s=60, memory_bytes=HARD)


def effective(pool=None, configured=None, declared=None, memory=HARD):
    """Resolve limits of which these name a soft one."""
    return resolve(
        configured=Limits(memory_soft=configured),
        job=Limits(),
        declared=Limits(memory_soft=declared),
        pool=msgspec.structs.replace(POOL, memory_soft=pool, memory_bytes=memory),
    )


@pytest.mark.parametrize(
    ("named", "soft_bytes", "raises"),
    [
        ({}, None, False),
        ({"pool": SOFT}, SOFT, False),
        ({"pool": 0.5}, HARD // 2, False),
        ({"pool": 0.9, "declared": 0.5}, HARD // 2, True),
        ({"declared": 0.5, "configured": SOFT}, SOFT, True),
        ({"configured": SOFT}, SOFT, False),
        ({"pool": HARD}, None, False),
        ({"declared": SOFT, "memory": SOFT}, None, True),
    ],
)
def test_the_first_soft_limit_counts_and_only_the_decorator_consents(
    named, soft_bytes, raises
):
    """A handler that never named one is never interrupted.

    One not below the hard one is dropped.
    """
    limits = effective(**named)
    assert limits.memory_soft_bytes == soft_bytes
    assert limits.memory_soft_raises is raises


@pytest.mark.parametrize(
    ("value", "expected"),
    [("400MiB", SOFT), (0.8, 0.8), ("0.8", 0.8), (".5", 0.5), (SOFT, SOFT)],
)
def test_a_soft_limit_is_a_size_or_a_share(value, expected):
    """As text too: variables and flags have nothing else."""
    assert soft_size(value, "memory_soft") == expected


@pytest.mark.parametrize(
    "value", [1.5, 0.0, "0.0", ".000", float("nan"), -0.5, True, "much", [1]]
)
def test_any_other_soft_limit_is_refused(value):
    """The option is named."""
    with pytest.raises(ConfigError, match="memory_soft"):
        soft_size(value, "memory_soft")


def test_pools_and_kinds_can_set_a_soft_limit():
    """One that is not below the hard limit is refused, if both were set explicitly."""
    text = "[pools.cpu]\nmemory_soft = 0.5\n[kinds.a]\nmemory_soft = '1MiB'"
    configuration = build(files=toml(text))
    cpu, io = configuration.settings.pools
    assert (cpu.limits.memory_soft, io.limits.memory_soft) == (0.5, None)
    assert configuration.settings.kinds["a"].limits.memory_soft == MIB
    assert configuration.values["pools.cpu.memory_soft"].shown == "0.5"
    text = "[pools.cpu]\nmemory = '1GiB'\nmemory_soft = '1GiB'"
    with pytest.raises(ConfigError, match=r"memory_soft 1GiB .* is not below memory"):
        build(files=toml(text))


class Process:
    """A child whose memory is what the test says."""

    job_pid: ClassVar[int] = 0
    mark_path: ClassVar[str] = "/nowhere"
    rss: ClassVar[int] = 0
    confirmed: ClassVar[int | None] = None
    asked: ClassVar[list[int]] = []

    def rss_bytes(self):
        return self.rss

    def sample(self, _now_s, *, near=False):
        return 0

    def forget_costs(self):
        pass

    def trim_output(self, _keep, _over):
        return False

    def measure(self, limit, _now_s):
        self.asked.append(limit)
        return self.rss if self.confirmed is None else self.confirmed


@pytest.fixture
def process(monkeypatch):
    made = Process()
    made.asked = []
    monkeypatch.setattr(watching, "TreeMemory", lambda _pid: made)
    monkeypatch.setattr(watching, "Confirmation", lambda _tree: made)
    return made


@pytest.fixture
def reports():
    return []


@pytest.fixture
def watch(process, reports):
    made = Watch(reports.append)
    made.adopt(0, process, pool_of())
    made.begin(cmd.Watch(0, 7, HARD, SOFT), 0.0)
    return made


def test_the_next_sample_is_timed_by_the_nearest_limit(watch, process, reports):
    """A soft limit that is noticed late is of no use."""
    process.rss = SOFT - 8 * MIB
    watch.sample(watch.next_s())
    began = watch.next_s()
    process.rss = SOFT + MIB
    watch.sample(began)
    assert reports == [inp.OverMemory(0, 7, SOFT + MIB, soft=True)]
    wait_s = (HARD - SOFT - MIB) / (8 << 30)
    assert watch.next_s() == pytest.approx(together_s(began, wait_s))


def test_a_passed_soft_limit_is_reported_again_but_seldom(watch, process, reports):
    """A signal can be lost; and confirming is not free."""
    process.rss = SOFT + MIB
    now = watch.next_s()
    for _ in range(50):
        watch.sample(now)
        now = watch.next_s()
    assert 2 <= len(reports) <= 50 * 0.0139 / 0.05 + 2
    assert len(process.asked) == len(reports)


def test_memory_that_is_only_shared_or_mapped_does_not_count(watch, process, reports):
    """As for the hard limit, the figure is confirmed."""
    process.rss, process.confirmed = SOFT + MIB, SOFT
    watch.sample(watch.next_s())
    assert reports == []
    assert process.asked == [SOFT]


def test_the_hard_limit_comes_first(watch, process, reports):
    """Over both, only the hard limit is reported."""
    process.rss = HARD + 1
    watch.sample(watch.next_s())
    assert reports == [inp.OverMemory(0, 7, HARD + 1)]


def running(declared):
    """Return a world in which a job runs, and its sequence number."""
    world = World()
    (spec,) = world.report.handlers
    spec = msgspec.structs.replace(spec, limits=Limits(memory_soft=declared))
    world.report = msgspec.structs.replace(world.report, handlers=(spec,))
    world.up()
    world.job()
    world.notify()
    return world, world.machine.slots[0].queue[0].seq


def test_a_passed_soft_limit_is_sent_to_the_child_and_logged():
    """The log once per attempt, with the figures; the child until it has responded."""
    world, seq = running(SOFT)
    (frame,) = world.sent[0]
    assert frame.memory_soft_bytes == SOFT
    for _ in range(2):
        world.step(inp.OverMemory(0, seq, SOFT + MIB, soft=True))
        assert world.took(cmd.SoftMemory) == [cmd.SoftMemory(0)]
        world.commands.clear()
    (event,) = [e for e in world.said if isinstance(e, MemorySoftPassed)]
    assert (event.rss_bytes, event.soft_bytes, event.memory_bytes, event.raised) == (
        SOFT + MIB,
        SOFT,
        HARD,
        True,
    )


def test_a_soft_limit_report_of_an_earlier_attempt_is_ignored():
    """As with the hard limit."""
    world, seq = running(SOFT)
    world.step(inp.OverMemory(0, seq - 1, SOFT + MIB, soft=True))
    assert not world.took(cmd.SoftMemory)
    assert not [e for e in world.said if isinstance(e, MemorySoftPassed)]
