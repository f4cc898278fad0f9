"""One attempt in a real child: results, errors, outputs, the channel."""

import array
import fcntl
import json
import os
import termios
import time

import pytest

from jobpool.core.application.placeholders import placeholder
from jobpool.core.application.step_results import MemberResult, WantedResults
from jobpool.core.jobs.job import Enqueued, JobState
from jobpool.sandbox.child.channel import BEATS_AT_ONCE
from jobpool.sandbox.child.encoding import BEAT_EVERY_S
from jobpool.sandbox.protocol.messages import (
    READ_BYTES,
    Answer,
    Ask,
    Beat,
    Done,
    Draining,
    Retire,
)
from jobpool.sandbox.protocol.verdict import Exit
from jobpool.sandbox.runs.marks import read_marks
from support.machine.sandbox_rig import PATIENCE_S, Rig
from support.waiting import wait_until


@pytest.fixture(scope="module")
def rig(tmp_path_factory):
    rig = Rig(tmp_path_factory.mktemp("run"))
    rig.loaded()
    yield rig
    rig.close()


@pytest.fixture(scope="module")
def child(rig):
    return rig.child()


def test_result_comes_back_with_its_figures(rig, child):
    """A result is what the handler returned, with figures of its attempt."""
    job = rig.job("echo", {"a": [1, "ü"]})
    child.send(job)
    child.issue_tickets([job.seq])
    done = rig.message(child)
    assert (done.seq, done.token, done.ok) == (job.seq, job.token, True)
    assert json.loads(done.result) == {"a": [1, "ü"]}
    assert 0 < done.duration_s < PATIENCE_S
    assert done.cpu_s >= 0
    assert 0 < done.rss_bytes <= done.peak_rss_bytes
    assert (done.output, done.surprise, done.error) == (b"", "", None)


def test_peak_is_of_the_attempt_not_of_the_childs_life(rig, child):
    """A small attempt after a large one reports a small peak."""
    large = rig.run(child, "allocate", 64)
    small = rig.run(child, "echo")
    assert large.peak_rss_bytes > large.rss_bytes + 50 * 2**20
    assert small.peak_rss_bytes < large.peak_rss_bytes - 50 * 2**20


@pytest.mark.parametrize(
    ("name", "classes", "message"),
    [
        ("value", ["ValueError", "Exception"], "bad value"),
        ("exit", ["SystemExit"], "called sys.exit(3)"),
        ("interrupt", ["KeyboardInterrupt"], ""),
        ("surrogate", ["ValueError", "Exception"], "? broken"),
        ("unprintable", ["hostile.raise_it.<locals>.Unprintable"], "__str__ raised"),
        ("memory", ["MemoryError", "Exception"], ""),
    ],
)
def test_every_exception_is_described(rig, child, name, classes, message):
    """Anything raised by a handler is a failure with its class, text and traceback."""
    done = rig.run(child, "raise_it", name)
    assert not done.ok
    assert done.error.classes[: len(classes)] == classes
    assert message in done.error.message
    assert "raise errors[name]" in done.error.traceback
    assert "jobpool/sandbox" not in done.error.traceback
    assert (done.error.out_of_memory, done.surprise) == ("", "")


def test_give_up_and_retry_later_are_reported(rig, child):
    """GiveUp and RetryLater are reported to the supervisor as such."""
    assert rig.run(child, "raise_it", "give_up").error.give_up
    later = rig.run(child, "raise_it", "later").error
    assert (later.retry_in_s, later.give_up) == (300.0, False)
    bad = rig.run(child, "raise_it", "later_bad").error
    assert bad.retry_in_s is None
    assert "not usable" in bad.message


def test_a_snooze_is_reported(rig, child):
    """With its delay in seconds; 0 is valid."""
    error = rig.run(child, "raise_it", "snooze").error
    assert (error.snooze_s, error.retry_in_s, error.message) == (
        300.0,
        None,
        "vendor busy",
    )
    plain = rig.run(child, "raise_it", "snooze_plain").error
    assert plain.snooze_s == 0.0
    assert "asked to be called again after 0:00:00" in plain.message


@pytest.mark.parametrize(
    "how", ["negative", "endless", "long", "of_nothing", "of_words"]
)
def test_an_invalid_snooze_is_a_failure(rig, child, how):
    """The error says what is wrong with the delay."""
    error = rig.run(child, "raise_it", f"snooze_{how}").error
    assert error.snooze_s is None
    assert "its delay is not usable: Snooze: " in error.message


def test_soft_timeout_inside_a_group_counts(rig, child):
    """A soft timeout that a task group wraps is still one."""
    error = rig.run(child, "raise_it", "group").error
    assert error.soft_timeout
    assert error.classes[0] == "ExceptionGroup"


def test_long_texts_are_cut_and_marked(rig, child):
    """Messages and tracebacks have a cap, and what was cut is marked."""
    huge = rig.run(child, "raise_it", "huge").error
    assert len(huge.message) < 9_000
    assert "more characters" in huge.message
    deep = rig.run(child, "recurse").error
    assert deep.classes[0] == "RecursionError"
    assert len(deep.traceback) < 40_000


def test_bad_results_are_failures(rig, child):
    """A result that is too large or cannot be encoded fails the attempt only."""
    small = rig.child(result_max_bytes=10)
    too_large = rig.run(small, "echo", "x" * 100)
    assert not too_large.ok
    assert "at most 10" in too_large.error.message
    assert too_large.error.give_up
    assert rig.result(small, "echo", 1) == 1
    assert rig.run(child, "no such kind").error.classes[0] == "KeyError"


def test_output_is_captured_per_attempt(rig, child):
    """An attempt's output comes with its own end."""
    assert rig.run(child, "say", "hi there").output == b"hi there\nand to stderr\n"
    assert rig.run(child, "echo").output == b""


def test_output_is_capped_and_marked(rig, child):
    """Only the tail of a flood is sent, with a mark."""
    output = rig.run(child, "flood", 3).output
    assert len(output) < 70_000
    assert output.startswith(b"[3")
    assert b"left out" in output[:60]


def test_output_memory_is_given_back_while_it_runs(rig):
    """A flood cannot fill the host: its head is dropped, its tail stays readable."""
    child = rig.child()
    rig.start(child, "flood_and_wait", 32)
    wait_until(
        lambda: child.output_tail(7).endswith(b"the end"), PATIENCE_S, "it is written"
    )
    output_fd = child._output
    assert os.fstat(output_fd).st_blocks * 512 > 30 * 2**20
    assert not child.trim_output(1 << 16, 64 << 20)
    assert child.trim_output(1 << 16, 1 << 20)
    assert os.fstat(output_fd).st_blocks * 512 <= 1 << 17
    assert child.output_tail(1 << 16).endswith(b"xxx\nthe end")


def test_current_attempt_is_known_to_the_handler(rig, child):
    """`jobpool.current` gives the handler its job, attempt and last checkpoint."""
    seen = rig.result(child, "who", attempt=3, token=77, checkpoint=b'{"page": 4}')
    assert seen["attempt"] == 3
    assert seen["token"] == 77
    assert seen["checkpoint"] == {"page": 4}
    assert seen["kind"] == "who"
    assert not seen["stopping"]


def test_an_unreadable_checkpoint_is_reported_not_raised(rig, child):
    """A checkpoint that is not JSON is left out, and the output says so."""
    done = rig.run(child, "who", checkpoint=b"{")
    assert json.loads(done.result)["checkpoint"] is None
    assert b"checkpoint is unreadable" in done.output


def most_beats(done):
    """Return how often an attempt that took so long may have told its progress."""
    return BEATS_AT_ONCE + int(done.duration_s / BEAT_EVERY_S) + 1


def test_heartbeats_are_throttled_but_checkpoints_are_not(rig, child):
    """Progress may be dropped when it comes too fast; a checkpoint never is."""
    values = [[n, None] for n in range(50)] + [[None, {"page": n}] for n in range(5)]
    job = rig.start(child, "beat", values)
    messages = []
    while not messages or isinstance(messages[-1], Beat):
        messages.append(rig.message(child))
    beats = messages[:-1]
    assert messages[-1].ok
    assert {beat.token for beat in beats} == {job.token}
    told = [int(b.progress) for b in beats if b.progress]
    assert (told[:BEATS_AT_ONCE], told[-1]) == ([*range(BEATS_AT_ONCE)], 49)
    # If the machine has stood still meanwhile, some more were not too fast.
    assert len(told) <= most_beats(messages[-1]) < 50
    assert [b.checkpoint for b in beats if b.checkpoint] == [
        b'{"page":%d}' % n for n in range(5)
    ]


def test_the_last_progress_comes_with_the_end(rig, child):
    """However soon it was reported after the one before."""
    rig.start(child, "beat", [[n, None] for n in range(50)])
    messages = []
    while not messages or isinstance(messages[-1], Beat):
        messages.append(rig.message(child))
    assert messages[-2].progress == b"49"
    assert isinstance(messages[-1], Done)
    assert rig.run(child, "who").ok  # and nothing of it comes with the next one's
    assert not child.__dict__["kept"]


@pytest.mark.parametrize("silent_s", [None, 1.0])
def test_throttled_heartbeats_still_meet_the_heartbeat_timeout(rig, child, silent_s):
    """Frequent heartbeats are delayed, but for no more than a share of the timeout."""
    rig.start(child, "beat_slowly", 30, heartbeat_timeout_s=silent_s)
    messages = []
    while not messages or isinstance(messages[-1], Beat):
        messages.append(rig.message(child))
    beats = len(messages) - 1
    assert beats == 30 if silent_s else beats <= most_beats(messages[-1])


def test_a_heartbeat_that_is_too_large_is_refused(rig, child):
    """Progress and checkpoints have size limits; above them nothing is sent."""
    for values in ([["x" * 5000, None]], [[None, "x" * 70_000]]):
        error = rig.run(child, "beat", values).error
        assert error.classes[0] == "jobpool.errors.ArgumentsRejected"


def test_enqueue_goes_through_the_supervisor(rig, child):
    """A handler's enqueue returns what the supervisor answers after the commit."""
    job = rig.start(child, "enqueue", 2)
    ask = rig.message(child)
    assert isinstance(ask, Ask)
    assert (ask.token, len(ask.jobs)) == (job.token, 2)
    stored = [Enqueued(id=n, created=True, state=JobState.RUNNABLE) for n in (5, 6)]
    child.send(Answer(ask.ask, stored))
    assert json.loads(rig.message(child).result) == [5, 6]


def test_enqueue_errors_come_back_as_themselves(rig, child):
    """Errors of the store are raised in the handler as the same class."""
    for name, job_id in (("QueueFull", 0), ("KeyConflict", 9), ("NoSuchError", 0)):
        rig.start(child, "enqueue", 1)
        ask = rig.message(child)
        child.send(Answer(ask.ask, None, name, "no room", job_id))
        error = rig.message(child).error
        expected = "JobpoolError" if name == "NoSuchError" else name
        assert error.classes[0] == f"jobpool.errors.{expected}"
        assert "no room" in error.message


def test_results_of_others_become_a_members_arguments(rig, child):
    """It asks its supervisor for them, page by page, before the handler is called."""
    wanted = {"all": placeholder(0, many=True), "one": placeholder(2, many=False)}
    job = rig.start(child, "echo", wanted, is_member=True)
    pages = {
        0: [MemberResult(5, 0, "k", b"1"), MemberResult(6, 2, "k", None)],
        6: [MemberResult(9, 0, "k", b'"x"')],
        9: [],
    }
    for after_id, page in pages.items():
        ask = rig.message(child)
        assert (ask.token, ask.jobs) == (job.token, [])
        assert ask.results == WantedResults((0, 2), after_id)
        child.send(Answer(ask.ask, [], results=page))
    assert json.loads(rig.message(child).result) == {"all": [1, "x"], "one": None}
    # Of a job that is in no flow, it is data as any other.
    assert rig.result(child, "echo", wanted) == wanted


def test_a_forked_copy_cannot_use_the_channel(rig, child):
    """A process that a handler forks cannot use the child's channel."""
    assert rig.result(child, "fork_and_ask") == 7


def test_a_forked_copy_never_returns_into_the_loop(rig, child):
    """A copy that leaves the handler ends there: one `Done`, and the child works on."""
    assert rig.result(child, "fork_and_return", "x") == {"copy_exit": 0}
    assert rig.result(child, "echo", "next") == "next"


@pytest.mark.parametrize("module", ["multiprocessing", "multiprocess"])
def test_handlers_may_use_process_pools(rig, module):
    """A child is no daemon process: multiprocessing works and leaves nothing."""
    child = rig.child()
    done = rig.run(child, "use_multiprocessing", module)
    assert json.loads(done.result) == [1, 2], done.error


def test_draining_reaches_a_running_handler(rig):
    """`stopping` turns true in a running handler once a drain begins."""
    child = rig.child()
    rig.start(child, "wait_for_stop")
    child.send(Draining())
    assert json.loads(rig.message(child).result) == "stopped"


def test_a_child_that_sends_more_than_is_read_is_congested(rig, child):
    """While its socket is full it stands still, so its ends must not gather."""
    child.is_congested()  # whatever others have asked of it before
    assert rig.result(child, "echo", 1) == 1
    assert not child.is_congested()
    rig.start(child, "echo", "x" * 2 * READ_BYTES)
    wait_until(lambda: unread(child) >= READ_BYTES, PATIENCE_S, "more than is read")
    assert len(json.loads(rig.message(child).result)) == 2 * READ_BYTES
    assert child.is_congested()
    assert not child.is_congested()


def unread(child):
    """Return how many bytes of a child wait in its socket."""
    found = array.array("i", [0])
    fcntl.ioctl(child, termios.FIONREAD, found)
    return found[0]


def test_soft_timeout_is_raised_in_the_handler(rig, child):
    """At the soft limit a handler gets an exception, and may clean up."""
    job = rig.start(child, "soft", soft_timeout_s=0.01)
    wait_until(
        lambda: child.output_tail(100).endswith(b"may be told"), PATIENCE_S, "it waits"
    )
    wait_until(lambda: child.soft_timeout() or rig_has(child), PATIENCE_S, "soft")
    done = rig.message(child)
    assert (done.seq, json.loads(done.result)) == (job.seq, "cleaned up")


def rig_has(child):
    """Say whether the child has sent something, and keep it."""
    messages = child.receive()
    child.__dict__.setdefault("kept", []).extend(messages or [])
    return bool(messages)


def test_a_stray_soft_timeout_interrupts_nothing(rig, child):
    """A soft timeout that arrives between or outside its attempt does nothing."""
    child.soft_timeout()
    assert rig.result(child, "echo", 1) == 1
    rig.start(child, "sleep", 0.2, soft_timeout_s=50.0)
    for _ in range(10):
        child.soft_timeout()
        time.sleep(0.005)
    assert json.loads(rig.message(child).result) == "slept"
    rig.start(child, "sleep", 0.05)
    child.soft_timeout()
    assert json.loads(rig.message(child).result) == "slept"


def test_uncaught_soft_timeout_is_flagged(rig, child):
    """An attempt ended by the soft limit is reported as such."""
    rig.start(child, "spin", soft_timeout_s=0.01)
    wait_until(lambda: child.soft_timeout() or rig_has(child), PATIENCE_S, "soft")
    error = rig.message(child).error
    assert error.soft_timeout
    assert error.classes[0] == "jobpool.errors.SoftTimeout"


def test_retire_ends_a_child_cleanly(rig):
    """A retired child ends by itself with status 0, after its present attempt."""
    child = rig.child()
    job = rig.start(child, "sleep", 0.05)
    mark = rig.directory / f"mark.{child.slot}"
    wait_until(lambda: job.token in read_marks(mark), PATIENCE_S, "it has begun")
    child.send(Retire())
    assert json.loads(rig.message(child).result) == "slept"
    ended = rig.exit(child)
    assert (ended.exit_code, ended.signal) == (0, None)
    assert isinstance(ended, Exit)


def test_sigterm_and_sigint_are_left_to_the_supervisor(rig):
    """A child survives TERM and INT; programs that it runs and forks of it do not."""
    child = rig.child()
    for signum in (15, 2):
        assert not rig.run(child, "kill_and_go_on", signum).error
    assert rig.result(child, "term_a_program") == -15
    assert rig.result(child, "term_a_copy") == -15
