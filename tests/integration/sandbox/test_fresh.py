"""What a zygote that is started by exec has of its parent: what it needs, no more."""

import gc
import os
import signal
import sys
from pathlib import Path

import pytest

from jobpool.sandbox.handles.zygote import environment_of
from jobpool.sandbox.zygote import early, fresh
from support.machine.sandbox_rig import Rig

LARGE_BYTES = 2**23


def test_it_has_the_module_path_and_the_arguments(tmp_path, monkeypatch):
    """Without a PYTHONPATH, too; what no import looks at in a path is left out."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "added"), tmp_path])
    monkeypatch.setattr(sys, "argv", ["jobpool", "--pools", "cpu=1"])
    rig = Rig(tmp_path, env=("PATH",))
    try:
        rig.loaded()
        found = rig.result(rig.child(), "state")
    finally:
        rig.close()
    assert found["argv"] == sys.argv
    assert found["collects"]
    assert str(tmp_path / "added") in found["path"]


def test_it_inherits_no_descriptor(tmp_path):
    """Not even one that this process was given to inherit."""
    given = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(given, True)
    rig = Rig(tmp_path)
    try:
        rig.loaded()
        found = [str(fd.readlink()) for fd in _fds(rig.zygote.pid)]
    finally:
        rig.close()
        os.close(given)
    assert str(tmp_path) not in found
    assert sum(target.startswith("socket:") for target in found) == 1


def test_a_terminals_signals_do_not_hit_it_before_it_has_a_session(tmp_path):
    """They are blocked until then; then it ignores them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    process = fresh.start_fresh(dict(os.environb))
    try:
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP):
            os.kill(process.pid, signum)
        assert process.exitcode is None
    finally:
        process.control.close()
    _pid, status = os.waitpid(process.pid, 0)
    assert status == 0  # it ends when its parent closes
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


def test_a_module_path_that_does_not_fit_is_refused(monkeypatch):
    """The error says how much there is, and nothing was started."""
    monkeypatch.setattr(sys, "path", [*sys.path, "x" * LARGE_BYTES])
    gc.collect()  # what others have left must not be closed meanwhile
    before = len(_fds("self"))
    with pytest.raises(OSError, match="shorten PYTHONPATH"):
        fresh.start_fresh(dict(os.environb))
    assert len(_fds("self")) == before


@pytest.mark.parametrize("how", ["as it is", "other variables", "other path"])
def test_one_that_was_started_early_is_used_if_nothing_has_changed(how, monkeypatch):
    """Else it is ended, and reaped. Its run is the one that it was started for."""
    monkeypatch.setattr(early, "ENDING_MS", 60_000)  # on a busy machine, too
    early.start_early(needs=("this",))
    run_id, (pid,) = early.run_id(), early.waiting()
    environment = environment_of(run_id, None)
    if how == "other variables":
        environment = environment_of(run_id, ("PATH",))
    elif how == "other path":
        monkeypatch.setattr(sys, "path", [*sys.path, "/nowhere"])
    process = early.take(environment)
    assert early.waiting() == []
    assert early.take(environment) is None
    assert early.run_id() != run_id
    if how != "as it is":
        assert process is None
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, 0)
        return
    assert process.pid == pid
    process.control.close()
    _pid, status = os.waitpid(pid, 0)
    assert status == 0


def test_it_can_wait_for_its_children_if_its_parent_ignores_the_end_of_its_own():
    """SIGCHLD ignored takes the exit codes of a process's children, across exec."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        process = fresh.start_fresh(dict(os.environb), needs=("jobpool",))
        status = Path(f"/proc/{process.pid}/status").read_text()
    finally:
        signal.signal(signal.SIGCHLD, before)
        process.control.close()
    (ignored,) = (line for line in status.splitlines() if line.startswith("SigIgn"))
    assert not int(ignored.split()[1], 16) & 1 << (signal.SIGCHLD - 1)
    os.waitpid(process.pid, 0)


def _fds(pid):
    return list(Path(f"/proc/{pid}/fd").iterdir())
