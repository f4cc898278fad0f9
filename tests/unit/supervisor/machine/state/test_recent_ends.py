"""What a kind's jobs leave behind is known from children that have run some."""

import pytest

from jobpool.supervisor.machine.state.recent_ends import WARM_JOBS, RecentEnds
from jobpool.supervisor.machine.state.slot import Slot

MIB = 2**20
BASE = 30 * MIB


def child(jobs=WARM_JOBS):
    return Slot(0, "cpu/0", "cpu", base_rss_bytes=BASE, jobs=jobs)


def run(ends, slot, kind, grows, jobs=200):
    for _ in range(jobs):
        rss = BASE + slot.left_bytes + grows
        ends.left(slot, kind, rss)
        ends.succeeded(kind, 1)
        slot.jobs += 1


def test_a_leak_is_what_each_job_leaves_behind():
    ends, slot = RecentEnds(), child()
    run(ends, slot, "shop.leak", 100_000)
    assert slot.left_bytes == 200 * 100_000
    assert ends.turn()["shop.leak"].grown_bytes == 100_000


def test_what_the_first_jobs_of_a_child_leave_is_no_leak():
    """They import modules and fill caches; then nothing grows any more."""
    ends, slot = RecentEnds(), child(jobs=0)
    run(ends, slot, "shop.warm", 2 * MIB, jobs=WARM_JOBS)
    run(ends, slot, "shop.warm", 0)
    assert ends.turn()["shop.warm"].grown_bytes == 0


@pytest.mark.parametrize(("grows", "jobs"), [(100, 500), (MIB, 99), (-MIB, 200)])
def test_little_and_few_and_a_fall_are_none_either(grows, jobs):
    ends, slot = RecentEnds(), child()
    run(ends, slot, "shop.quiet", grows, jobs)
    assert ends.turn()["shop.quiet"].grown_bytes == 0


def test_what_several_kinds_leave_is_nobodys():
    ends, slot = RecentEnds(), child()
    for _ in range(500):
        ends.left(slot, None, BASE + slot.left_bytes + MIB, 2)
        ends.succeeded("shop.mixed", 1)
    assert ends.turn()["shop.mixed"].grown_bytes == 0


def test_a_leak_that_was_mended_is_forgotten():
    ends, slot = RecentEnds(), child()
    run(ends, slot, "shop.mended", 100_000, jobs=5000)
    run(ends, slot, "shop.mended", 0, jobs=60_000)
    assert ends.turn()["shop.mended"].grown_bytes < 2000
