"""The host's ledger: what happens to a bundle's calls, however its job ends."""

import time
from contextlib import nullcontext
from pathlib import Path

import msgspec
import pytest

from jobpool.core.application import current
from jobpool.core.jobs.job import Evidence, JobState, NewJob, Settlement
from jobpool.core.jobs.outcome import Outcome
from jobpool.executor.bundles import bundle, durations
from jobpool.executor.bundles.bundle import Bundle, make_calls
from jobpool.executor.bundles.bundle_file import CallEnd, child_tray
from jobpool.executor.bundles.durations import SAMPLES_MIN
from jobpool.executor.child import BUNDLE_KIND, KIND
from jobpool.executor.host.ledger import Ends, Ledger
from jobpool.executor.wire.messages import Setup, Task
from jobpool.sandbox.protocol.messages import encode

FUNCTION = 7
QUICK_S = 0.00001


class Rig:
    """A ledger whose store takes down jobs, and a child's view of them."""

    def __init__(self, folder, workers=2):
        self.jobs: dict[int, NewJob] = {}
        self.waiting: set[int] = set()
        setup = Setup(1, 1, workers, None, (str(folder),), [], "/", None)
        self.folder = folder
        self.ledger = Ledger(self, setup)
        for _ in range(SAMPLES_MIN):
            self.ledger._durations.took(FUNCTION, QUICK_S)

    # -- the store's side

    def enqueue(self, jobs):
        first = len(self.jobs) + 1
        self.jobs |= dict(enumerate(jobs, first))
        return [Stored(first + i) for i in range(len(jobs))]

    def wake(self):
        """No one listens."""

    def transaction(self):
        return nullcontext()

    def find(self, which, limit):
        found = [Found(job_id) for job_id in which.ids if job_id in self.waiting]
        return found[:limit]

    def cancel(self, ids):
        self.waiting -= set(ids)

    def forget(self, ids):
        assert not self.waiting & set(ids)

    # -- the test's

    def bundle(self, numbers=range(10, 20), **limits):
        """Send calls; return their only job's number and its payload."""
        self.ledger._calls = 100  # so many others keep the workers busy
        before = set(self.jobs)
        self.ledger.take([task(number, **limits) for number in numbers])
        (job_id,) = set(self.jobs) - before
        assert self.jobs[job_id].kind == BUNDLE_KIND
        return job_id, msgspec.msgpack.decode(self.jobs[job_id].payload, type=Bundle)

    def ended(self, job_id, outcome, *, result=b"", reason=None):
        ends = Ends()
        end = Settlement(
            id=job_id,
            token=1,
            state=JobState.SUCCEEDED,
            outcome=outcome,
            result=result,
            evidence=Evidence(reason=reason),
        )
        self.ledger.ended([(end, 1)], ends)
        return ends

    def check(self):
        self.ledger._check_s = 0.0  # it is time
        ends = Ends()
        self.ledger.check(ends)
        return ends

    def singles(self):
        return [job.payload for job in self.jobs.values() if job.kind == KIND]


class Stored(msgspec.Struct):
    id: int


class Found(msgspec.Struct):
    id: int
    attempt: int = 0


def task(number, *, timeout_s=None):
    return Task(number, b"i%d" % number, timeout_s, None, 1, FUNCTION)


def run(bundle, calls, *, begin_another=False):
    """Act as a child does."""
    with child_tray(bundle.tray) as tray:
        for _ in range(calls):
            place = tray.take()
            tray.put(CallEnd(place, b"done" + bundle.calls[place], b"", QUICK_S))
        if begin_another:
            tray.take()


@pytest.fixture
def rig(tmp_path):
    return Rig(tmp_path)


def test_a_finished_bundle_gives_each_call_its_result(rig):
    """Under the caller's numbers; nothing is left of its files."""
    job_id, bundle = rig.bundle()
    run(bundle, 10)
    ends = rig.ended(job_id, Outcome.SUCCEEDED)
    assert ends.results == [(n, b"donei%d" % n) for n in range(10, 20)]
    assert not ends.deaths
    assert not list(rig.folder.iterdir())


def test_a_death_is_charged_to_the_running_call(rig):
    """Ended calls stand; calls that had not begun become jobs of their own, first."""
    job_id, bundle = rig.bundle()
    run(bundle, 4, begin_another=True)
    ends = rig.ended(job_id, Outcome.CRASHED)
    assert [number for number, _ in ends.results] == [10, 11, 12, 13]
    assert [(d.number, d.outcome, d.attempts) for d in ends.deaths] == [
        (14, "crashed", 1)
    ]
    assert rig.singles() == [b"i%d" % n for n in range(15, 20)]
    assert {job.priority for job in rig.jobs.values() if job.kind == KIND} == {1}


def test_a_death_between_two_calls_is_charged_to_none(rig):
    """The rest is made one by one, so that no bundle can die again and again."""
    job_id, bundle = rig.bundle()
    run(bundle, 4)
    ends = rig.ended(job_id, Outcome.CRASHED)
    assert not ends.deaths
    assert rig.singles() == [b"i%d" % n for n in range(14, 20)]


def test_an_interrupted_call_is_made_again(rig):
    """The next attempt at the bundle did not get its ticket."""
    job_id, bundle = rig.bundle()
    run(bundle, 2, begin_another=True)
    run(bundle, 7)
    ends = rig.ended(job_id, Outcome.SUCCEEDED)
    assert [number for number, _ in ends.results] == [10, 11, *range(13, 20)]
    assert not ends.deaths
    assert rig.singles() == [b"i12"]


def test_an_incomplete_end_hides_no_other(rig):
    """The next attempt at an interrupted bundle begins no call: all of it goes back."""
    job_id, bundle = rig.bundle()
    run(bundle, 2, begin_another=True)
    with Path(bundle.tray + ".ends").open("ab") as file:
        file.write(encode(CallEnd(2, b"long" * 99, b"", QUICK_S))[:50])
    made = []
    assert make_calls(rig.jobs[job_id].payload, made.append) == b""
    ends = rig.ended(job_id, Outcome.SUCCEEDED)
    assert (made, ends.deaths) == ([], [])
    assert [number for number, _ in ends.results] == [10, 11]
    (again,) = [job.payload for number, job in rig.jobs.items() if number != job_id]
    calls = msgspec.msgpack.decode(again, type=Bundle).calls
    assert calls == [b"i%d" % n for n in range(12, 20)]


def test_an_end_that_did_not_fit_the_tray_comes_as_the_jobs_result(rig):
    """The rest goes back."""
    job_id, bundle = rig.bundle()
    run(bundle, 3, begin_another=True)
    unwritten = encode(CallEnd(3, b"late", b"", QUICK_S))
    ends = rig.ended(job_id, Outcome.SUCCEEDED, result=unwritten)
    assert ends.results[-1] == (13, b"late")
    assert len(ends.results) == 4


@pytest.mark.parametrize(
    "junk", [b"\xff" * 64, b"\x05\0\0\0junk!", b"\1"], ids=["long", "odd", "half"]
)
def test_garbage_in_a_tray_harms_no_other_bundle(rig, junk):
    """Ends before it count.

    Calls hidden by it are made again or failed, never twice.
    """
    job_id, bundle = rig.bundle()
    run(bundle, 2)
    with Path(bundle.tray + ".ends").open("ab") as file:
        file.write(encode(CallEnd(999, b"", b"", 0.0)) + junk)
    run(bundle, 0, begin_another=True)
    ends = rig.ended(job_id, Outcome.CRASHED)
    assert [number for number, _ in ends.results] == [10, 11]
    assert [death.number for death in ends.deaths] == [12]
    assert rig.singles() == [b"i%d" % n for n in range(13, 20)]


def test_a_killed_calls_error_names_the_callers_limit(rig):
    """The job's limit is slightly longer.

    Only limits of a second or more are extended.
    """
    job_id, bundle = rig.bundle(timeout_s=2.0)
    assert rig.jobs[job_id].timeout_s == pytest.approx(2.02)
    assert bundle.budget_s == pytest.approx(0.02)
    run(bundle, 0, begin_another=True)
    ends = rig.ended(
        job_id, Outcome.TIMED_OUT, reason="killed at its time limit of 2.02s"
    )
    assert ends.deaths[0].evidence.reason == "killed at its time limit of 2s"
    rig.ledger.take([task(n, timeout_s=0.5) for n in range(5)])
    assert len(rig.singles()) == 9 + 5


def test_calls_behind_a_slow_one_are_taken_back(rig):
    """At the second check; finished calls are reported at the first one."""
    job_id, bundle = rig.bundle()
    assert (rig.check().results, rig.singles()) == ([], [])  # no child has it yet
    run(bundle, 3, begin_another=True)
    assert [number for number, _ in rig.check().results] == [10, 11, 12]
    assert rig.singles() == []
    assert rig.check().results == []
    assert rig.singles() == [b"i%d" % n for n in range(14, 20)]
    with child_tray(bundle.tray) as tray:
        assert tray.take() is None
        tray.put(CallEnd(3, b"slow", b"", 1.0))
    assert rig.ended(job_id, Outcome.SUCCEEDED).results == [(13, b"slow")]


@pytest.mark.parametrize("waited_s", [0.0, 3600.0])
def test_waiting_for_a_core_does_not_count_as_a_calls_duration(
    rig, monkeypatch, waited_s
):
    """Otherwise a busy machine would make all calls of a function travel alone."""
    _job_id, wire = rig.bundle(range(10, 12))
    waits = iter((1.0, 1.0 + waited_s, 1.0 + 2 * waited_s))
    monkeypatch.setattr(bundle, "_waited_s", lambda: next(waits))
    monkeypatch.setattr(current._State, "restorer", lambda: (b"", True))

    def call(_data):
        time.sleep(2 * durations.QUICK_S)
        return b"done"

    assert make_calls(msgspec.msgpack.encode(wire), call) == b""
    (together,) = rig.ledger._bundles.values()
    took_s = [end.duration_s for end in together.tray.ends()]
    assert len(took_s) == 2
    assert all((one_s == 0.0) == (waited_s > 0.0) for one_s in took_s)


def test_all_workers_have_something_to_do(rig):
    """Few calls are not put into one bundle while other workers idle."""
    rig.ledger.take([task(1), task(2)])
    assert rig.singles() == [b"i1", b"i2"]


def test_a_recall_takes_back_what_was_never_leased(rig):
    """Bundles too; their files are removed."""
    job_id, _bundle = rig.bundle()
    rig.ledger.take([task(1, timeout_s=0.5)])
    rig.waiting = {job_id, job_id + 1}
    assert sorted(rig.ledger.recall()) == [1, *range(10, 20)]
    assert not list(rig.folder.iterdir())


@pytest.fixture
def one(tmp_path):
    """A ledger of one worker: it begins calls in their order."""
    return Rig(tmp_path, workers=1)


def test_one_worker_gets_nothing_behind_a_bundle(one):
    """What a bundle gives back comes before what was submitted after it."""
    job_id, bundle = one.bundle()
    one.ledger.take([task(n, timeout_s=0.5) for n in range(20, 23)])
    assert set(one.jobs) == {job_id}
    run(bundle, 4, begin_another=True)
    one.check()
    one.check()
    one.ended(job_id, Outcome.CRASHED)
    assert one.singles() == [b"i%d" % n for n in range(15, 23)]


def test_one_worker_gets_no_bundle_behind_other_calls(one):
    """A single call may give way to what its child was sent ahead."""
    one.ledger.take([task(1, timeout_s=0.5)])
    one.ledger.take([task(n) for n in range(10, 20)])
    assert one.singles() == [b"i1"]
    assert len(one.jobs) == 1
    one.ended(1, Outcome.SUCCEEDED)
    assert [job.kind for job in one.jobs.values()] == [KIND, BUNDLE_KIND]


def test_calls_waiting_in_line_for_one_worker_are_recalled(one):
    """It has never begun."""
    one.bundle()
    one.ledger.take([task(n) for n in range(20, 23)])
    assert one.ledger.recall() == [20, 21, 22]


def test_only_the_function_that_died_in_a_mixed_bundle_is_to_blame(rig):
    """Calls of the other function still travel together."""
    other = FUNCTION + 1
    for _ in range(SAMPLES_MIN):
        rig.ledger._durations.took(other, QUICK_S)
    rig.ledger._calls = 100
    mixed = [(n, FUNCTION if n % 2 else other) for n in range(6)]
    rig.ledger.take([Task(n, b"", None, None, 1, function) for n, function in mixed])
    bundle = msgspec.msgpack.decode(rig.jobs[1].payload, type=Bundle)
    run(bundle, 2, begin_another=True)
    assert [death.number for death in rig.ended(1, Outcome.CRASHED).deaths] == [2]
    assert rig.ledger._durations.cost_s(other) is None
    assert rig.ledger._durations.cost_s(FUNCTION) is not None
