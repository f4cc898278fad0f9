"""What the loop of `jobpool dev` asks for, and when it ends."""

import signal
from types import SimpleNamespace

import pytest

from jobpool.core.events.supervisor import Alarm, SupervisorDraining
from jobpool.core.jobs.job import Lease
from jobpool.store.records.jobs import LeaseBatch
from jobpool.supervisor.dev.limits import LimitWatch
from jobpool.supervisor.dev.loop import STORE_PATIENCE_S, DevLoop
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.testing import FakeClock


class Clock(FakeClock):
    """A second passes with each look at it."""

    def monotonic_s(self):
        self.advance(1)
        return super().monotonic_s()


class Store:
    """A store thread that answers each request from a list, then with nothing."""

    shared = False
    is_lost = False
    settles_with = 0

    def __init__(self, loop, batches):
        self.loop, self.batches, self.left = loop, list(batches), []

    def is_alive(self):
        return True

    def chore(self, chore):
        pass

    def leave(self, commands):
        for command in commands:
            self.left.append(command)
            if isinstance(command, cmd.Lease):
                if len(self.left) == self.settles_with:
                    self.loop.post(inp.Settled(count=1))
                batch = self.batches.pop(0) if self.batches else LeaseBatch()
                self.loop.post(inp.Granted(command.wanted, batch))


class Attempts:
    """Runs nothing, and says what it was given."""

    unsettled = 0

    def __init__(self):
        self.ran, self.back = [], []

    def run(self, lease):
        self.ran.append(lease.id)

    def hand_back(self, leases):
        self.back += [lease.id for lease in leases]

    def settled(self, event):
        self.unsettled -= event.count


@pytest.fixture
def rig():
    def start(*batches, burst=False, changes=None):
        events, clock = [], Clock()
        observer = SimpleNamespace(observe=events.append)
        watch = LimitWatch(events.append, clock)
        loop = DevLoop(
            ["cpu", "io"], observer, clock, watch, burst=burst, changes=changes
        )
        return SimpleNamespace(
            loop=loop,
            events=events,
            attempts=Attempts(),
            store=Store(loop, batches),
            watch=watch,
        )

    return start


def lease(job_id):
    return Lease(id=job_id, token=job_id, kind="x", pool="io", payload=b"", attempt=1)


def leasing(*job_ids):
    return LeaseBatch(leases=tuple(lease(one) for one in job_ids))


def run(rig):
    rig.loop.post(inp.Entered())
    rig.loop.run(rig.attempts, rig.store)
    return [one.wanted for one in rig.store.left if isinstance(one, cmd.Lease)]


def test_a_burst_ends_once_no_pool_has_anything_that_is_due(rig):
    """Pools take turns, for one job each; a job starts the count anew."""
    rig = rig(LeaseBatch(), leasing(1), burst=True)
    asked = run(rig)
    assert asked == [{"cpu": 1}, {"io": 1}, {"cpu": 1}, {"io": 1}]
    assert rig.attempts.ran == [1]
    assert rig.loop.ending == "nothing is due"


def test_a_burst_goes_on_while_another_call_would_find_more(rig):
    rig = rig(LeaseBatch(next_due_in_s=0), LeaseBatch(), burst=True)
    assert len(run(rig)) == 4


def test_a_burst_waits_for_ends_since_they_may_make_more_due(rig):
    rig = rig(burst=True)
    rig.attempts.unsettled = 1
    rig.store.settles_with = 5
    assert len(run(rig)) > 5
    assert rig.attempts.unsettled == 0


def test_what_is_granted_after_the_end_was_asked_for_is_handed_back(rig):
    rig = rig(leasing(1))
    rig.loop.post(inp.Entered())
    rig.loop.post(inp.Stop("its run was ended from outside"))
    rig.loop._may_begin = True
    rig.loop.run(rig.attempts, rig.store)
    assert rig.attempts.ran == []
    assert rig.attempts.back == [1]
    assert rig.watch.ending == "its run was ended from outside"


def test_a_store_that_does_not_take_the_last_end_is_not_waited_for_for_ever(rig):
    rig = rig()
    rig.attempts.unsettled = 1
    rig.loop.post(inp.Stop("SIGTERM"))
    rig.loop.run(rig.attempts, rig.store)
    assert rig.loop._clock.monotonic_s() > STORE_PATIENCE_S
    assert rig.attempts.unsettled == 1


def test_a_store_that_is_lost_ends_it_at_once(rig):
    rig = rig()
    rig.store.is_lost = True
    assert run(rig) == []


def test_changed_files_end_it_and_are_named(rig):
    rig = rig(changes=SimpleNamespace(changed=lambda: ["/a/jobs.py", "/b/jobs.py"]))
    run(rig)
    assert rig.loop.changed == ["/a/jobs.py", "/b/jobs.py"]
    (said,) = (one for one in rig.events if isinstance(one, SupervisorDraining))
    assert said.reason == "jobs.py changed: it starts anew"


def test_features_of_a_newer_release_end_it(rig):
    rig = rig(LeaseBatch(outdated=True))
    run(rig)
    assert rig.loop.outdated


def test_a_handler_does_not_keep_the_signals(rig):
    """A debugger in which it went on hears Ctrl-C from then on."""
    rig = rig(leasing(1), burst=True)
    rig.attempts.run = lambda _lease: signal.signal(signal.SIGTERM, signal.SIG_IGN)
    before = signal.getsignal(signal.SIGTERM)
    with rig.loop.signals(lambda: None):
        run(rig)
        signal.raise_signal(signal.SIGTERM)
        assert rig.watch.ending == "SIGTERM"
    assert signal.getsignal(signal.SIGTERM) == before


def test_other_threads_tell_at_once_what_concerns_the_running_handler(rig):
    """The loop itself is busy: it is in the handler."""
    rig = rig()
    rig.loop.post(inp.CancelAsked((3, 4)))
    rig.loop.post(inp.Lapsed())
    assert rig.watch.canceled == {3, 4}
    (alarm,) = (one for one in rig.events if isinstance(one, Alarm))
    assert "its leases ran out" in alarm.text
