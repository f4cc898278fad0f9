"""A program's run: what it reads and prints, and what its end means."""

import os
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from jobpool import CommandFailed, GiveUp, JobPool
from jobpool.client.declare.commands import run as running
from jobpool.client.declare.commands.exit_codes import ExitCodes
from jobpool.client.declare.commands.run import run


def runs(*argv, stdin=None, env=(), cwd=None, exit_codes=(), result_bytes=1000):
    return run(
        argv,
        stdin=stdin,
        env=dict(env),
        cwd=cwd,
        exit_codes=ExitCodes(dict(exit_codes)),
        result_bytes=result_bytes,
    )


def test_the_result_is_what_it_prints_and_goes_on_to_the_childs_output(capfdbinary):
    assert runs("sh", "-c", "echo grüße; echo careful >&2") == "grüße\n"
    captured = capfdbinary.readouterr()
    assert captured.out == "grüße\n".encode()
    assert captured.err == b"careful\n"


def test_of_much_output_the_end_is_kept_from_the_beginning_of_a_character():
    output = runs("sh", "-c", "yes ß | head -n 30000", result_bytes=100)
    assert len(output.encode()) <= 100
    assert output.endswith("ß\nß\n")
    assert "\ufffd" not in output


def test_output_that_is_not_utf8_is_shown_as_far_as_it_is():
    assert runs("printf", r"a\377b") == "a\ufffdb"


def test_it_reads_the_standard_input_that_it_is_given_and_otherwise_nothing():
    text = "line\n" * 100_000
    assert runs("wc", "-l", stdin=text.encode()).strip() == "100000"
    assert runs("wc", "-c").strip() == "0"
    assert runs("true", stdin=b"unread") == ""


def test_it_has_the_variables_and_the_directory_that_were_declared(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("KEPT", "yes")
    said = runs(
        "sh", "-c", 'pwd; echo "$KEPT $OWN"', env={"OWN": "x"}, cwd=str(tmp_path)
    )
    assert said == f"{os.path.realpath(tmp_path)}\nyes x\n"


@pytest.mark.parametrize(
    ("given", "status", "ends"),
    [
        ({}, 0, None),
        ({}, 1, CommandFailed),
        ({75: "retry", "64-78": "dead"}, 0, ValueError),
        ({"75": "retry", 65: "dead"}, 75, CommandFailed),
        ({75: "retry", 65: "dead"}, 65, GiveUp),
        ({"64-78": "dead"}, 78, GiveUp),
        ({"64-78": "dead"}, 79, CommandFailed),
        ({1: "ok", "other": "dead"}, 1, None),
        ({1: "ok", "other": "dead"}, 0, None),
        ({1: "ok", "other": "dead"}, 2, GiveUp),
        ({0: "dead"}, 0, GiveUp),
    ],
)
def test_its_exit_status_means_what_was_declared(given, status, ends):
    if ends is ValueError:
        with pytest.raises(Exception, match="75 is given twice"):
            ExitCodes(given)
    elif ends is None:
        assert runs("sh", "-c", f"exit {status}", exit_codes=given) == ""
    else:
        with pytest.raises(ends, match=f"ended with exit status {status}") as ended:
            runs("sh", "-c", f"exit {status}", exit_codes=given)
        if ends is CommandFailed:
            assert ended.value.exit_code == status
            assert ended.value.signal is None


def test_a_signal_is_a_failure_whatever_is_declared():
    with pytest.raises(CommandFailed, match="was ended by SIGSEGV") as ended:
        runs("sh", "-c", "kill -SEGV $$", exit_codes={"other": "ok"})
    assert (ended.value.signal, ended.value.exit_code) == ("SIGSEGV", None)


def test_a_program_or_directory_that_is_not_there_is_named(tmp_path):
    with pytest.raises(
        CommandFailed, match="no program 'no-such-program' on this host"
    ):
        runs("no-such-program")
    with pytest.raises(CommandFailed, match="no directory /no/such"):
        runs("true", cwd="/no/such")
    (tmp_path / "file").write_text("not a program")
    with pytest.raises(CommandFailed, match="could not be started"):
        runs(str(tmp_path / "file"))


def test_a_process_that_it_leaves_behind_does_not_hold_the_job():
    """The job ends with its program, though its output is still open."""
    began = time.monotonic()
    said = runs("sh", "-c", "sleep 60 & echo $!")
    os.kill(int(said), signal.SIGKILL)  # ends only now
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("leaves", ["", "sleep 60 & echo $!; "])
def test_all_that_it_has_printed_is_its_result_however_late_it_is_read(
    monkeypatch, leaves
):
    """The thread that reads it may get no processor until its time is over."""
    may_read = threading.Event()

    class Starved(threading.Thread):
        def run(self):
            may_read.wait(30)
            super().run()

    starved = SimpleNamespace(Thread=Starved, Lock=threading.Lock)
    monkeypatch.setattr(running, "threading", starved)
    monkeypatch.setattr(running, "LEFT_OPEN_S", 0.01)
    script = f"{leaves}head -c 60000 /dev/zero | tr '\\0' x"
    said = runs("sh", "-c", script, result_bytes=2**20)
    may_read.set()
    if leaves:
        pid, said = said.split("\n")
        os.kill(int(pid), signal.SIGKILL)
    assert said == "x" * 60_000


def test_an_exception_in_the_job_ends_the_program(monkeypatch):
    """As a soft limit does: nothing runs on."""

    def stop(_signum, _frame):
        raise InterruptedError("soft limit")

    started = []
    timers = []

    class Started(subprocess.Popen):
        def wait(self, timeout=None):
            if self not in started:  # not before: a start may take longer than that
                started.append(self)
                timers.append(signal.getitimer(signal.ITIMER_REAL))
                signal.setitimer(signal.ITIMER_REAL, 0.3)
            return super().wait(timeout)

    monkeypatch.setattr(subprocess, "Popen", Started)
    before = signal.signal(signal.SIGALRM, stop)
    try:
        with pytest.raises(InterruptedError, match="soft limit"):
            runs("sleep", "60")
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *timers[0])  # of this test's time-out
    assert [process.returncode for process in started] == [-signal.SIGKILL]


def test_calling_the_handler_runs_the_program_here():
    jobs = JobPool()
    upper = jobs.command(
        "upper", [sys.executable, "-c", UPPER], pool="cpu", stdin="text"
    )
    assert upper(text="abc") == "ABC"
    assert upper("x") == "X"


UPPER = "import sys; print(sys.stdin.read().upper(), end='')"
