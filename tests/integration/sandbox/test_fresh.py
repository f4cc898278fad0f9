"""What a zygote that is started by exec has of its parent: what it needs, no more."""

import os
import signal
import sys
from pathlib import Path

import pytest

from jobpool.sandbox.zygote import fresh
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
    before = len(_fds("self"))
    with pytest.raises(OSError, match="shorten PYTHONPATH"):
        fresh.start_fresh(dict(os.environb))
    assert len(_fds("self")) == before


def _fds(pid):
    return list(Path(f"/proc/{pid}/fd").iterdir())
