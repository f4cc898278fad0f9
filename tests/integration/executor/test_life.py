"""The executor's processes: whose they are, when they end, what they leave behind."""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import BrokenExecutor
from pathlib import Path

import pytest

import jobpool
from jobpool.executor.wire import spill_files
from support.machine.executing import (
    MARKER,
    PATIENCE_S,
    PRELUDE,
    STOOD_STILL,
    host_of,
    marked,
    script,
    wait_nobody,
)
from support.site.supervising import children_of
from support.waiting import wait_until


def test_nothing_is_left_after_a_shutdown(marker):
    """No process and no directory."""
    with jobpool.Executor(2) as executor:
        executor.submit(abs, -1).result(PATIENCE_S)
        directories = executor._own._directories
        assert marked(marker)
    wait_nobody(marker)
    assert not [path for path in directories if Path(path).exists()]


def test_a_shutdown_finishes_waiting_calls():
    """Even with wait=False; then no more calls are accepted."""
    executor = jobpool.Executor(2)
    futures = [executor.submit(time.sleep, 0.01) for _ in range(50)]
    executor.shutdown(wait=False)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(abs, -1)
    for future in futures:
        assert future.result(PATIENCE_S) is None
    executor.shutdown()


def test_a_shutdown_can_cancel_waiting_calls(tmp_path):
    """Running calls are finished, waiting calls are canceled."""
    gate = tmp_path / "gate"

    def hold():
        while not gate.exists():
            time.sleep(0.005)

    executor = jobpool.Executor(2)
    futures = [executor.submit(hold) for _ in range(50)]
    wait_until(futures[0].running, PATIENCE_S, "the first call's begin")
    executor.shutdown(wait=False, cancel_futures=True)
    wait_until(lambda: sum(f.cancelled() for f in futures) >= 47, PATIENCE_S, "cancels")
    gate.touch()
    executor.shutdown()
    assert all(future.done() for future in futures)
    assert futures[0].result() is None


def test_an_unused_executor_can_be_shut_down_twice():
    """It refuses calls from then on."""
    executor = jobpool.Executor(1)
    executor.shutdown()
    executor.shutdown(cancel_futures=True)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(abs, -1)


def test_an_executor_that_is_garbage_ends(marker):
    """Its calls are finished first."""
    executor = jobpool.Executor(1)
    future = executor.submit(time.sleep, 0.1)
    del executor
    assert future.result(PATIENCE_S) is None
    wait_nobody(marker)


def test_the_interpreters_end_finishes_waiting_calls(tmp_path, marker):
    """As with ProcessPoolExecutor; without shutdown(), and with lambdas in -c."""
    done = script(
        "executor = jobpool.Executor(2)\n"
        "folder = sys.argv[1]\n"
        "for n in range(20):\n"
        "    executor.submit(lambda n: open(f'{folder}/{n}', 'w').close(), n)\n",
        tmp_path,
    )
    assert [one for one in done.stderr.splitlines() if STOOD_STILL not in one] == []
    assert len(list(tmp_path.iterdir())) == 20
    wait_nobody(marker)


def test_a_killed_caller_leaves_nothing(tmp_path, marker):
    """SIGKILL for the caller: host, zygote, children and directories go with it."""
    note = tmp_path / "pid"
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            PRELUDE + "executor = jobpool.Executor(2)\n"
            "executor.submit(hold, sys.argv[1])\n"
            "print(*executor._own._directories, flush=True)\n"
            "executor.submit(time.sleep, 1000).result()\n",
            str(note),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        directories = process.stdout.readline().split()
        wait_until(lambda: note.exists() and note.read_text(), PATIENCE_S, "the call")
        assert len(marked(marker)) > 3
        process.kill()
    wait_nobody(marker)
    assert directories
    wait_until(
        lambda: not any(Path(path).exists() for path in directories),
        PATIENCE_S,
        "the directories' end",
    )


def make_private(place, *, kept=False, old=True):
    """Make a directory as an executor does; return it and its lock."""
    path = Path(tempfile.mkdtemp(prefix=spill_files.PREFIX, dir=place))
    (path / "result").touch()
    locks = spill_files.keep([str(path)]) if kept else []
    if old:
        past_s = time.time() - 2 * spill_files.STALE_S
        os.utime(path, (past_s, past_s))
    return path, locks


def test_only_abandoned_directories_are_removed(tmp_path, monkeypatch):
    """Old directories without a living host are removed; new and locked ones stay."""
    monkeypatch.setattr(spill_files, "SHARED_MEMORY", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left, _ = make_private(tmp_path)
    young, _ = make_private(tmp_path, old=False)
    kept, locks = make_private(tmp_path, kept=True)
    other = tmp_path / "somebody-elses"
    other.mkdir()
    spill_files.remove_stale()
    assert {*tmp_path.iterdir()} == {young, kept, other}
    os.close(locks[0])
    spill_files.remove_stale()
    assert {*tmp_path.iterdir()} == {young, other}
    assert not left.exists()


def is_free(directory):
    """Say whether no host has locked it: an ending one still does, for a moment."""
    with (directory / spill_files._LOCK).open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_a_caller_and_its_host_killed_at_once_are_cleaned_up_after(tmp_path, marker):
    """Their directories stay; the next executor removes them."""
    places = (
        "from jobpool.executor.wire import spill_files\n"
        "spill_files.SHARED_MEMORY = sys.argv[1]\n"
        "spill_files.STALE_S = float(sys.argv[2])\n"
        "executor = jobpool.Executor(1)\n"
        "executor.submit(abs, -1).result()\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = script(
        # At once: it has no time to see that its host is gone, and to clean up.
        places + "executor._own._client._directories = ()\n"
        "os.kill(executor._own._client._host.pid, signal.SIGKILL)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n",
        tmp_path,
        3600,
        check=False,
        env=environment,
    )
    assert done.returncode == -signal.SIGKILL
    wait_nobody(marker)
    left = list(tmp_path.glob(f"{spill_files.PREFIX}*"))
    assert left
    wait_until(lambda: all(map(is_free, left)), PATIENCE_S, "the end of their locks")
    script(places, tmp_path, 0, env=environment)
    assert not list(tmp_path.glob(f"{spill_files.PREFIX}*"))


def test_a_fork_of_a_killed_caller_keeps_no_process_alive(tmp_path, marker):
    """A copy of the socket in another process keeps nothing running."""
    note = tmp_path / "pid"
    text = (
        "executor = jobpool.Executor(1)\n"
        "executor.submit(hold, sys.argv[1])\n"
        "while not os.path.exists(sys.argv[1]):\n"
        "    time.sleep(0.01)\n"
        "if os.fork() == 0:\n"
        "    os.close(1)\n"
        "    os.close(2)\n"
        f"    os.environ.pop({MARKER!r})\n"
        "    os.execv(sys.executable, [sys.executable, '-c', "
        "'import sys; sys.stdin.read()'])\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    stdin, keep = os.pipe()
    try:
        done = script(text, note, check=False, stdin=stdin)
        assert done.returncode == -signal.SIGKILL, done.stderr
        wait_nobody(marker)
    finally:
        os.close(stdin)
        os.close(keep)


def test_a_lost_host_fails_all_futures(marker):
    """They say why, and so does the next call. No process is left."""
    with jobpool.Executor(1) as executor:
        futures = [executor.submit(time.sleep, PATIENCE_S) for _ in range(5)]
        wait_until(futures[0].running, PATIENCE_S, "the first call's begin")
        os.kill(host_of(executor), signal.SIGKILL)
        directories = executor._own._directories
        for future in futures:
            error = future.exception(PATIENCE_S)
            assert isinstance(error, BrokenExecutor)
            assert "host" in str(error)
        with pytest.raises(BrokenExecutor):
            executor.submit(abs, -1)
    wait_nobody(marker)
    assert not [path for path in directories if Path(path).exists()]


def test_a_host_ended_by_a_signal_says_so(tmp_path):
    """A signal to the host ends the running calls; the futures name the signal."""
    note = tmp_path / "note"

    def last():
        note.touch()
        time.sleep(PATIENCE_S)

    with jobpool.Executor(1) as executor:
        executor.submit(abs, -1).result(PATIENCE_S)
        future = executor.submit(last)
        # In its child: with the host alone, it would not keep that from ending at once.
        wait_until(note.exists, PATIENCE_S, "the call's begin")
        os.kill(host_of(executor), signal.SIGTERM)
        os.kill(host_of(executor), signal.SIGQUIT)
        error = future.exception(PATIENCE_S)
    assert isinstance(error, BrokenExecutor)
    assert "asked to end: SIG" in str(error)


@pytest.mark.parametrize("closed", [(), (0, 1, 2), (2,)], ids=str)
def test_an_executor_works_in_a_degraded_caller(tmp_path, closed):
    """Without standard streams, with SIGCHLD ignored, in a deleted directory."""
    (tmp_path / "gone").mkdir()
    script(
        "folder, *closed = sys.argv[1:]\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "for fd in closed:\n"
        "    os.close(int(fd))\n"
        "os.chdir(folder + '/gone')\n"
        "os.rmdir(folder + '/gone')\n"
        "with jobpool.Executor(1) as executor:\n"
        "    found = executor.submit(abs, -3).result()\n"
        # It is no message to the host, and wakes no thread.
        "    executor.submit(print, 'lost' * 20).result()\n"
        "    executor.submit(print, 'lost' * 20).result()\n"
        "    assert found == executor.submit(abs, -3).result()\n"
        "with open(folder + '/found', 'w') as file:\n"
        "    file.write(str(found))\n",
        tmp_path,
        *closed,
    )
    assert (tmp_path / "found").read_text() == "3"


def meet(folder):
    """Wait until another child does the same."""
    (folder / str(os.getpid())).touch()
    while len(list(folder.iterdir())) < 2:
        time.sleep(0.005)


def test_zygote_and_idle_children_may_be_killed(tmp_path):
    """They are replaced; no call is lost."""
    with jobpool.Executor(2) as executor:
        list(executor.map(meet, [tmp_path] * 2))
        for pid in children_of(host_of(executor)):
            with contextlib.suppress(ProcessLookupError):  # it was starting another
                os.kill(pid, signal.SIGKILL)
        assert list(executor.map(abs, range(100))) == list(range(100))


def test_a_forked_copy_refuses_calls():
    """It belongs to the parent, which continues to use it."""
    with jobpool.Executor(1) as executor:
        executor.submit(abs, -1).result(PATIENCE_S)
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                executor.submit(abs, -1)
            except RuntimeError as error:
                os.write(writer, str(error).encode())
            finally:
                executor.shutdown()
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as answer:
            assert "belongs to the parent process" in answer.read()
        os.waitpid(pid, 0)
        assert executor.submit(abs, -2).result(PATIENCE_S) == 2
