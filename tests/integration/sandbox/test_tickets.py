"""Tickets and marks: which job has begun is known exactly, whatever dies when."""

import os
import random
import signal
import time

import pytest

from jobpool.sandbox.protocol.messages import Done, Draining, Retire
from jobpool.sandbox.runs.marks import MARK, MARK_BYTES, read_marks
from support.machine.sandbox_rig import PATIENCE_S, Rig
from support.waiting import wait_until


@pytest.fixture(scope="module")
def rig(tmp_path_factory):
    rig = Rig(tmp_path_factory.mktemp("run"))
    rig.loaded()
    yield rig
    rig.close()


def marks(rig, child):
    """Return the tokens in a child's mark file."""
    return read_marks(rig.directory / f"mark.{child.slot}")


def test_no_job_begins_without_its_ticket(rig):
    """A job that was sent ahead waits for its ticket."""
    child = rig.child()
    first, second = rig.job("echo", 1), rig.job("echo", 2)
    child.send(first, second)
    child.issue_tickets([first.seq])
    assert rig.message(child).seq == first.seq
    assert child.receive() == []
    child.issue_tickets([second.seq])
    assert rig.message(child).seq == second.seq


def test_recalled_jobs_never_begin(rig):
    """A recalled job does not run, and the jobs after it do."""
    child = rig.child()
    running, recalled = rig.job("wait_for_stop"), rig.job("echo", 1)
    later = rig.job("echo", 2)
    child.send(running, recalled)
    child.issue_tickets([running.seq, recalled.seq])
    wait_until(lambda: running.token in marks(rig, child), PATIENCE_S, "it has begun")
    assert child.recall() == [recalled.seq]
    child.send(Draining(), later)
    child.issue_tickets([later.seq])
    assert [rig.message(child).seq for _ in range(2)] == [running.seq, later.seq]


def test_tickets_left_at_a_death_mean_jobs_that_never_began(rig):
    """After a crash the unread tickets name exactly the jobs that did not begin."""
    child = rig.child()
    good, fatal = rig.job("echo", 1), rig.job("exit_now", 3)
    ahead = [rig.job("echo", n) for n in range(5)]
    child.send(good, fatal, *ahead)
    child.issue_tickets([good.seq, fatal.seq, *(job.seq for job in ahead)])
    rig.exit(child)
    assert rig.message(child).seq == good.seq
    assert child.recall() == [job.seq for job in ahead]
    assert marks(rig, child) == {good.token, fatal.token}


def test_every_job_runs_once_or_is_recalled_once(rig):
    """Under random recalls each of 1,000 jobs is run or recalled, and only once."""
    child = rig.child()
    chance = random.Random(7)
    jobs = [rig.job("echo", n) for n in range(1000)]
    waiting = jobs[::-1]
    done, recalled, out = [], [], 0
    deadline = time.monotonic() + PATIENCE_S
    while (waiting or out) and time.monotonic() < deadline:
        while waiting and out < 8:
            job = waiting.pop()
            child.send(job)
            child.issue_tickets([job.seq])
            out += 1
        if done and chance.random() < 0.3:
            back = child.recall()
            recalled += back
            out -= len(back)
        messages = child.receive()
        assert all(isinstance(message, Done) for message in messages)
        done += [message.seq for message in messages]
        out -= len(messages)
    assert sorted(done + recalled) == [job.seq for job in jobs]
    assert done == sorted(done)
    assert done, "nothing ran"
    assert recalled, "nothing was ever recalled: the test proves nothing"


def test_a_mark_is_set_when_an_attempt_begins_and_stays(rig):
    """The mark file keeps what has begun: the store may not know its end yet."""
    child = rig.child()
    assert marks(rig, child) == set()
    job = rig.job("sleep", 0.1)
    child.send(job)
    assert marks(rig, child) == set()
    child.issue_tickets([job.seq])
    wait_until(lambda: marks(rig, child) == {job.token}, PATIENCE_S, "it is marked")
    assert rig.message(child).ok
    assert marks(rig, child) == {job.token}


def test_a_dead_childs_mark_outlives_its_successor(rig):
    """The mark of a killed attempt stays while the slot's next child runs jobs."""
    child = rig.child()
    job = rig.start(child, "kill_self", signal.SIGKILL)
    rig.exit(child)
    path = rig.directory / f"mark.{child.slot}"
    path.rename(rig.directory / f"mark.{len(rig.children)}")
    heir = rig.child()
    assert marks(rig, heir) == {job.token}
    own = rig.run(heir, "echo", 1)
    assert marks(rig, heir) == {job.token, own.token}


def test_a_full_mark_file_gives_up_its_oldest_token(rig):
    """With no slot free, a new child replaces the token settled longest ago."""
    path = rig.directory / f"mark.{len(rig.children)}"
    tokens = range(2, 2 + MARK_BYTES // MARK.size)
    path.write_bytes(b"".join(MARK.pack(token) for token in reversed(tokens)))
    child = rig.child()
    job = rig.start(child, "sleep", 0.1)
    expected = {*tokens[1:], job.token}
    wait_until(lambda: marks(rig, child) == expected, PATIENCE_S, "it is marked")
    assert rig.message(child).ok


def test_jobs_larger_than_the_socket_wait_for_room(rig):
    """Large payloads are sent piece by piece; the supervisor never blocks."""
    child = rig.child()
    jobs = [rig.job("echo", "x" * 900_000) for _ in range(5)]
    os.kill(child.job_pid, signal.SIGSTOP)  # it reads nothing
    rig.start(child, "echo", 0)
    child.send(*jobs)
    assert child.wants_write
    os.kill(child.job_pid, signal.SIGCONT)
    child.issue_tickets([job.seq for job in jobs])
    done = []
    deadline = time.monotonic() + PATIENCE_S
    while len(done) < 6 and time.monotonic() < deadline:
        child.flush()
        done += child.receive()
    assert [d.seq for d in done[1:]] == [job.seq for job in jobs]
    assert not child.wants_write


def test_an_idle_child_retires_while_it_waits_for_a_ticket(rig):
    """A child that holds a recalled job still receives its request to end."""
    child = rig.child()
    child.send(rig.job("echo", 1), Retire())
    assert rig.exit(child).exit_code == 0


def test_sending_to_a_dead_child_is_no_error(rig):
    """Data sent to a dead child is dropped, and nothing raises."""
    child = rig.child()
    child.kill_tree()
    rig.exit(child)
    child.send(rig.job("echo", 1))
    assert not child.wants_write
    child.issue_tickets([1])
    assert child.recall() == [1]
