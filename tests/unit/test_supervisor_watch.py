"""The memory watch takes little of the supervisor's time, whatever a child is."""

import pytest

from jobpool.core.settings import MIB
from jobpool.supervisor import watch as watching
from jobpool.supervisor import watchmessages as wm
from jobpool.supervisor.watch import DEAR_FACTOR, DEAR_S, Watch

LIMIT = 512 * MIB


class Process:
    """A child whose memory is what the test says, and what it takes to measure it."""

    job_pid = 0
    mark_path = ""

    def __init__(self):
        self.own = self.below = 0
        self.confirmed = 0
        self.cost_s = self.spent_s = 0.0
        self.walks = self.confirms = 0

    def rss_bytes(self):
        return self.own

    def tree_rss_bytes(self):
        self.walks += 1
        self.spent_s += self.cost_s
        return self.below

    def confirm_over(self, _limit):
        self.confirms += 1
        self.spent_s += self.cost_s
        return self.confirmed

    def trim_output(self, _keep, _over):
        return False


@pytest.fixture
def process(monkeypatch):
    made = Process()
    monkeypatch.setattr(watching, "trim_marks", lambda _path: None)
    monkeypatch.setattr(watching, "thread_time", lambda: made.spent_s)
    return made


@pytest.fixture
def told():
    return []


@pytest.fixture
def watch(process, told):
    made = Watch(told.append)
    made.adopt(0, process, MIB)
    made.begin(wm.Watch(0, 7, LIMIT, None), 0.0)
    return made


def looks(watch, for_s):
    """Look whenever it is time; return how often that was."""
    count, until_s = 0, watch.next_s() + for_s
    while watch.next_s() < until_s:
        watch.look(watch.next_s())
        count += 1
    return count


def test_a_dear_tree_is_walked_the_more_seldom(watch, process, told):
    """A handler of thousands of threads gets a tenth of the supervisor, not all."""
    process.own, process.cost_s = LIMIT - MIB, 0.1
    count = looks(watch, 10.0)
    assert process.spent_s == pytest.approx(10.0 / DEAR_FACTOR, rel=0.1)
    assert count > 1000  # its own memory is looked at as often as ever
    process.own = process.confirmed = LIMIT + 1
    watch.look(watch.next_s())
    assert told == [wm.OverMemory(0, 7, LIMIT + 1)]


def test_an_ordinary_tree_is_walked_at_every_look(watch, process):
    """What many threads cost is no reason to look less at few."""
    process.own, process.cost_s = LIMIT - MIB, 0.9 * DEAR_S
    assert process.walks == 0
    assert looks(watch, 1.0) == process.walks > 100


def test_a_confirmation_that_is_dear_is_not_repeated_at_once(watch, process, told):
    """Who merely shares or maps beyond its limit is not measured without a pause."""
    process.own, process.cost_s = LIMIT + MIB, 0.1
    looks(watch, 10.0)
    assert process.confirms == pytest.approx(10.0 / (DEAR_FACTOR * 0.1), abs=1)
    assert told == []
    process.cost_s = 0.0
    looks(watch, 2.0)
    confirms = process.confirms
    assert looks(watch, 1.0) == process.confirms - confirms
