"""The verdict table: which evidence leads to which end."""

import itertools
import signal

import pytest

from jobpool.core.jobs.outcome import Outcome
from jobpool.sandbox.protocol.messages import Done, Raised
from jobpool.sandbox.protocol.verdict import (
    FAULT_SIGNALS,
    OUTCOME_OF_KILL,
    Exit,
    Kill,
    KillReason,
    MemoryEvents,
    signal_name,
    verdict_of_death,
    verdict_of_done,
)


def done(**changes):
    """Make a child's last message."""
    fields = {
        "seq": 1,
        "token": 2,
        "ok": True,
        "result": b"3",
        "duration_s": 0.5,
        "cpu_s": 0.25,
        "rss_bytes": 10,
        "peak_rss_bytes": 20,
    }
    return Done(**{**fields, **changes})


def death(exited, **changes):
    """Judge a death with everything else as usual."""
    fields = {"kill": None, "done": None, "slot": "cpu/0", "duration_s": 1.5}
    return verdict_of_death(exited, **{**fields, **changes})


def test_a_result_is_a_success():
    """A child that says ok has succeeded, with its result and figures."""
    ending = verdict_of_done(done(output=b"h\xff"), "cpu/0")
    assert (ending.outcome, ending.result) == (Outcome.SUCCEEDED, b"3")
    evidence = ending.evidence
    assert (evidence.peak_rss_bytes, evidence.cpu_s, evidence.duration_s) == (
        20,
        0.25,
        0.5,
    )
    assert (evidence.output, evidence.slot) == ("h\ufffd", "cpu/0")


@pytest.mark.parametrize(
    ("flags", "outcome"),
    [
        ({}, Outcome.FAILED),
        ({"give_up": True}, Outcome.FAILED),
        ({"soft_timeout": True}, Outcome.TIMED_OUT),
    ],
)
def test_an_exception_is_a_failure(flags, outcome):
    """An exception fails the attempt; the soft limit's own is a timeout."""
    error = Raised(["shop.Down", "OSError"], "no", "tb", retry_in_s=5.0, **flags)
    ending = verdict_of_done(done(ok=False, result=b"", error=error), "cpu/0")
    assert ending.outcome is outcome
    assert ending.error_classes == ("shop.Down", "OSError")
    assert ending.evidence.error_class == "shop.Down"
    assert (ending.retry_in_s, ending.give_up) == (5.0, flags.get("give_up", False))
    assert ending.result is None


def down(message, **flags):
    return Raised(["shop.Down", "OSError"], message, "tb", **flags)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (down("no\x1b[2J\nanswer"), "raised shop.Down: no\\x1b[2J\\nanswer"),
        (down("  \n"), "raised shop.Down"),
        (down("HTTP 410", give_up=True), "gave up: shop.Down: HTTP 410"),
        (
            Raised(["jobpool.errors.GiveUp"], "HTTP 410", "", give_up=True),
            "gave up: HTTP 410",
        ),
        (Raised(["jobpool.errors.GiveUp"], "", "", give_up=True), "gave up"),
        (Raised(["jobpool.errors.RetryLater"], "429", ""), "raised RetryLater: 429"),
        (Raised([], "odd", ""), "raised an exception: odd"),
        (down("late", soft_timeout=True), "ended by its soft time limit"),
    ],
)
def test_the_reason_names_what_was_raised(error, reason):
    """Class and message in one harmless line: HTTP 410 is not HTTP 500."""
    ending = verdict_of_done(done(ok=False, error=error), "cpu/0")
    assert ending.evidence.reason == reason


def test_a_long_message_is_cut_in_the_reason_and_marked():
    """`show` has all of it."""
    evidence = verdict_of_done(done(ok=False, error=down("x" * 400)), "cpu/0").evidence
    assert evidence.reason == f"raised shop.Down: {'x' * 300}… [100 more characters]"
    assert evidence.error == "x" * 400


def test_a_failure_without_an_error_is_a_failure():
    """A child that reports a failure and no error is believed; the reason says so."""
    ending = verdict_of_done(done(ok=False), "cpu/0")
    assert ending.outcome is Outcome.FAILED
    assert "without an error" in ending.evidence.reason


KILLS = [None, *(Kill(reason, limit=2.0, seen=3.0) for reason in KillReason)]
EXITS = [
    Exit(exit_code=0),
    Exit(exit_code=3),
    Exit(),
    *(Exit(signal=s) for s in (signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM)),
]


@pytest.mark.parametrize(
    ("exited", "kill", "host_oom", "stopping"),
    list(itertools.product(EXITS, KILLS, [False, True], [False, True])),
)
def test_precedence_over_the_whole_product(exited, kill, host_oom, stopping):
    """A result beats our kill, our kill beats the host, the rest is a crash."""
    given = {"kill": kill, "host_oom": host_oom, "stopping": stopping}
    assert death(exited, done=done(), **given).outcome is Outcome.SUCCEEDED
    ending = death(exited, **given)
    if kill is not None:
        expected = OUTCOME_OF_KILL[kill.reason]
    elif exited.signal is None or exited.signal in FAULT_SIGNALS:
        expected = Outcome.CRASHED
    elif stopping or (host_oom and exited.signal == signal.SIGKILL):
        expected = Outcome.INTERRUPTED
    else:
        expected = Outcome.CRASHED
    assert ending.outcome is expected
    assert ending.evidence.reason
    assert (ending.evidence.signal, ending.evidence.exit_code) == (
        exited.signal,
        exited.exit_code,
    )


@pytest.mark.parametrize(
    ("exited", "kill", "words"),
    [
        (Exit(exit_code=0), None, "exited with 0 without a result"),
        (Exit(signal=11), None, "SIGSEGV (Segmentation fault)"),
        (Exit(signal=9), None, "SIGKILL (Killed); jobpool did not send it"),
        (Exit(), None, "left no exit status"),
        (Exit(signal=9), Kill(KillReason.TIMEOUT, limit=30.0), "time limit of 30s"),
        (
            Exit(signal=9),
            Kill(KillReason.MEMORY, limit=2**28, seen=2**28 + 2**24),
            "killed at 272MiB, over its memory limit of 256MiB",
        ),
        (Exit(signal=9), Kill(KillReason.STOPPED, "drained"), "jobpool stopped: drain"),
    ],
)
def test_reasons_name_what_happened(exited, kill, words):
    """The reason is one line that names the signal, the status or the limit."""
    assert words in death(exited, kill=kill).evidence.reason


def test_the_peak_is_the_higher_of_the_two_figures():
    """The higher of our samples and the kernel's own record is kept."""
    exited = Exit(signal=9, max_rss_bytes=50)
    assert death(exited, peak_rss_bytes=40).evidence.peak_rss_bytes == 50
    assert death(exited, peak_rss_bytes=60).evidence.peak_rss_bytes == 60


def test_a_signal_without_a_name_is_shown_by_number():
    """A signal without a name is shown by its number."""
    assert signal_name(63).startswith(("signal 63", "SIGRTMAX-1", "SIGRT"))
    assert signal_name(999) == "signal 999"


@pytest.mark.parametrize(
    ("events", "host_oom", "outcome", "words"),
    [
        (MemoryEvents(oom=1, oom_kills=2), False, Outcome.OUT_OF_MEMORY, "memory.max"),
        (MemoryEvents(oom_kills=1), False, Outcome.INTERRUPTED, "host was out of"),
        (MemoryEvents(oom=1), False, Outcome.CRASHED, "did not send"),
        (MemoryEvents(), True, Outcome.CRASHED, "did not send"),
        (None, True, Outcome.INTERRUPTED, "host was out of"),
    ],
)
def test_a_cgroup_knows_what_the_kernel_killed_and_why(
    events, host_oom, outcome, words
):
    """Its own limit, the host's lack of memory, or another SIGKILL.

    Told apart exactly.
    """
    ending = death(Exit(signal=9, memory_events=events), host_oom=host_oom)
    assert ending.outcome is outcome
    assert words in ending.evidence.reason


def test_the_figures_of_the_kernels_kill_are_reported():
    """What it used, and which limit that was."""
    events = MemoryEvents(oom=1, oom_kills=1, max_bytes=2**30, peak_bytes=2**30)
    ending = death(Exit(signal=9, memory_events=events))
    assert ending.evidence.reason == (
        "killed by the kernel with 1GiB at the memory.max of its cgroup, 1GiB"
    )
    fault = death(Exit(signal=signal.SIGSEGV, memory_events=events))
    assert fault.outcome is Outcome.CRASHED


def test_an_encoded_text_is_in_no_reason():
    """Only the application can read it; the class and what is ours stay."""

    def reason(**flags):
        error = Raised(["jobpool.errors.X"], "encoded:AAA=", "", **flags)
        failed = done(ok=False, error=error)
        plain = verdict_of_done(failed, "cpu/0").evidence.reason
        assert "encoded:AAA=" in plain
        return verdict_of_done(failed, "cpu/0", encoded=True).evidence.reason

    assert reason() == "raised X"
    assert reason(give_up=True) == "gave up: X"
    assert reason(snooze_s=1.0) == "not yet"
    assert reason(give_up=True, misfit=True).startswith("the stored arguments do not")


def test_of_an_encoded_jobs_death_the_stack_is_kept_alone():
    """What it wrote, and the command lines below it, only its child could encode."""
    facts = {"output": b"4711", "stack": "File a.py", "processes": ["curl 4711"]}
    evidence = death(Exit(signal=9), **facts, encoded=True).evidence
    assert (evidence.output, evidence.stack) == (None, "File a.py")
    plain = death(Exit(signal=9), **facts).evidence
    assert plain.output == "4711"
    assert "curl 4711" in plain.stack
