"""A child's temporary directory is empty before every attempt, however it was left."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from jobpool.sandbox.confinement.scratch import TICK_S, Scratch
from support.waiting import wait_until


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """A directory of this process, which gets its own one back afterwards."""
    monkeypatch.setenv("TMPDIR", "")
    monkeypatch.setattr(tempfile, "tempdir", tempfile.tempdir)
    return Scratch(str(tmp_path / "cpu-0"))


def settle(scratch, monkeypatch, ticks=1.1):
    """Let the directory be found empty at times at most a tick apart."""
    for turn in range(4):
        age(scratch)
        with monkeypatch.context() as patch:
            patch.setattr(
                time, "monotonic", lambda turn=turn: 1 + turn * ticks * TICK_S
            )
            scratch.clean()


def age(scratch):
    """Wait until the next change falls into another clock tick than the last one."""
    old_s = Path(scratch.path).lstat().st_ctime + 2 * TICK_S
    wait_until(lambda: time.time() > old_s, 5, "the file system's clock has ticked")


def listings(monkeypatch, scratch):
    """Clean once; return how often the directory was listed."""
    seen = []
    listdir = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: seen.append(path) or listdir(path))
    scratch.clean()
    monkeypatch.setattr(os, "listdir", listdir)
    return len(seen)


def test_leftover_files_are_removed_at_any_time(scratch):
    """No time is too early or too late: a ctime is trusted only when it may be."""
    for _ in range(200):
        path = Path(scratch.path, "left")
        path.touch()
        scratch.clean()
        assert not path.exists()
        scratch.clean()


def test_an_old_unchanged_directory_is_not_listed(scratch, monkeypatch):
    """A directory that was not touched costs one call."""
    settle(scratch, monkeypatch)
    assert listings(monkeypatch, scratch) == 0


def test_a_young_directory_is_listed(scratch, monkeypatch):
    """Within one tick another file could come without another ctime."""
    settle(scratch, monkeypatch, ticks=0.3)
    assert listings(monkeypatch, scratch) == 1


@pytest.mark.parametrize("how", ["file", "forged", "mode", "replaced", "link"])
def test_an_old_directory_is_cleaned_when_it_is_used(
    scratch, tmp_path, monkeypatch, how
):
    """Neither times that are set back nor a swapped directory deceive the check."""
    settle(scratch, monkeypatch)
    path = Path(scratch.path)
    before = path.stat()
    if how in ("file", "forged"):
        (path / "left").touch()
    elif how == "mode":
        path.chmod(0o777)
    else:
        path.rename(tmp_path / "elsewhere")
        if how == "link":
            path.symlink_to(tmp_path / "elsewhere")
        else:
            path.mkdir(0o700)
            (path / "left").touch()
    if how == "forged":
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    scratch.clean()
    assert list(path.iterdir()) == []
    assert path.lstat().st_mode == before.st_mode


def test_another_directory_of_the_same_ctime_is_not_trusted(
    scratch, tmp_path, monkeypatch
):
    """A directory made in the same tick can be put in its place."""
    settle(scratch, monkeypatch)
    path = Path(scratch.path)
    trusted = path.lstat()
    path.rename(tmp_path / "elsewhere")
    path.mkdir(0o700)
    (path / "left").touch()
    own = path.lstat()
    twin = SimpleNamespace(
        st_dev=own.st_dev,
        st_ino=own.st_ino,
        st_mode=own.st_mode,
        st_ctime_ns=trusted.st_ctime_ns,
    )
    with monkeypatch.context() as patch:
        patch.setattr(os, "lstat", lambda _path: twin)
        scratch.clean()
    assert list(path.iterdir()) == []


@pytest.mark.parametrize("after_trial_ns", [7, 10**9])
def test_a_coarse_ctime_is_never_trusted(scratch, monkeypatch, after_trial_ns):
    """Some file systems never change it, some keep whole seconds."""
    lstat, mkdir = os.lstat, os.mkdir
    shown_ns = [after_trial_ns % 10**9]

    class Shown:
        def __init__(self, path):
            real = lstat(path)
            self.st_dev, self.st_ino = real.st_dev, real.st_ino
            self.st_mode = real.st_mode
            self.st_ctime_ns = shown_ns[-1]

    def try_out(path, mode):
        shown_ns.append(after_trial_ns)
        mkdir(path, mode)

    monkeypatch.setattr(os, "lstat", Shown)
    monkeypatch.setattr(os, "mkdir", try_out)
    settle(scratch, monkeypatch)
    assert listings(monkeypatch, scratch) == 1


def test_a_full_disk_means_the_ctime_is_not_trusted(scratch, monkeypatch):
    """If the ctime cannot be tested, the directory stays, and is listed."""

    def refuse(*_args):
        raise OSError(28, "No space left on device")

    inode = Path(scratch.path).stat().st_ino
    with monkeypatch.context() as patch:
        patch.setattr(os, "mkdir", refuse)
        settle(scratch, monkeypatch)
    assert listings(monkeypatch, scratch) == 1
    assert Path(scratch.path).stat().st_ino == inode
