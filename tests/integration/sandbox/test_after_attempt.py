"""A child for one job: its end is reported and none of its code runs on."""

import select

import pytest

from jobpool.sandbox.protocol.messages import Retire
from support.machine.sandbox_rig import Rig


@pytest.fixture(scope="module")
def rig(tmp_path_factory):
    rig = Rig(tmp_path_factory.mktemp("run"))
    rig.loaded()
    yield rig
    rig.close()


@pytest.fixture
def child(rig):
    return rig.child(is_for_one=True)


@pytest.mark.parametrize(
    "what",
    [
        "cwd_gone",
        "umask",
        "env_replaced",
        "handler",
        "alarm",
        "mask",
        "stdout",
        "stdout_closed",
        "fds_closed",
        "recursion",
        "scratch_gone",
        "scratch_file",
        "trace",
    ],
)
def test_an_end_is_reported_whatever_the_job_changed(rig, child, what):
    """The process belongs to that job alone, but our own code goes on in it."""
    done = rig.run(child, "change", what)
    assert done.ok
    assert done.surprise == ""
    child.send(Retire())
    assert rig.exit(child).exit_code == 0


@pytest.mark.parametrize("is_for_one", [False, True])
def test_a_timer_that_raises_again_and_again_ends_the_handler_alone(rig, is_for_one):
    """It would raise in our own code, and end the process, while that tells the end."""
    child = rig.child(is_for_one=is_for_one)
    done = rig.run(child, "raise_again_and_again")
    assert done.error.message == "a timer of the handler's"
    assert done.surprise == ""
    if not is_for_one:
        assert rig.result(child, "echo", 1) == 1


@pytest.mark.parametrize(
    ("what", "named"), [("thread", "leaked-thread"), ("process", "sleep (pid ")]
)
def test_threads_and_processes_that_run_on_are_named(rig, child, what, named):
    """A job has not ended before its processes have."""
    done = rig.run(child, "leave", what)
    assert done.ok
    assert named in done.surprise


@pytest.mark.parametrize("what", ["zombie", "ending thread"])
def test_a_process_that_is_ending_anyway_is_not_reported(rig, child, what):
    """The child need not be killed for it."""
    assert rig.run(child, "leave", what).surprise == ""


def test_the_output_of_a_single_use_child_is_reported(rig, child):
    """And its end, like that of any other job."""
    done = rig.run(child, "say", "heard")
    assert done.output.startswith(b"heard")
    assert done.peak_rss_bytes >= done.rss_bytes > 0


def test_a_single_use_child_begins_no_second_job(rig, child):
    """The next job would find what this one has left."""
    first, second = rig.job("change", "umask"), rig.job("echo", 1)
    child.send(first)
    child.send(second)
    child.issue_tickets([first.seq, second.seq])
    assert rig.message(child).seq == first.seq
    assert not select.select([child], [], [], 0.2)[0]
    assert child.recall() == [second.seq]
