"""What one attempt does to its child does not reach the next one."""

import os
import stat
import statistics
from pathlib import Path

import pytest

from sandbox_rig import Rig


@pytest.fixture(scope="module")
def rig(tmp_path_factory):
    rig = Rig(tmp_path_factory.mktemp("run"))
    rig.loaded()
    yield rig
    rig.close()


@pytest.fixture
def child(rig):
    return rig.child()


@pytest.mark.parametrize(
    "what",
    [
        "cwd",
        "cwd_gone",
        "umask",
        "env",
        "env_replaced",
        "handler",
        "alarm",
        "mask",
        "locale",
        "stdout",
        "stdout_closed",
        "fds_closed",
        "path",
        "recursion",
        "hook",
        "tempfile",
        "scratch",
        "scratch_gone",
        "scratch_file",
        "scratch_link",
        "trace",
    ],
)
def test_state_is_put_back(rig, child, what):
    """Whatever a handler changes in its process, the next attempt finds as it was."""
    before = rig.result(child, "state")
    done = rig.run(child, "change", what)
    assert done.surprise == ""
    assert rig.result(child, "state") == before
    assert rig.run(child, "say", "still heard").output.startswith(b"still heard")


@pytest.mark.parametrize(
    ("what", "named"), [("thread", "leaked-thread"), ("process", "sleep (pid ")]
)
def test_what_cannot_be_undone_is_named(rig, child, what, named):
    """Threads and processes left behind are a surprise that names them."""
    done = rig.run(child, "leave", what)
    assert done.ok
    assert named in done.surprise


@pytest.mark.parametrize("what", ["zombie", "ending thread"])
def test_what_ends_by_itself_is_no_surprise(rig, child, what):
    """A process or thread that is ending anyway is waited for, briefly."""
    assert rig.run(child, "leave", what).surprise == ""


def test_a_child_has_its_own_descriptors_only(rig, child):
    """A child has its five descriptors and nothing else of ours: no sibling's."""
    for _ in range(3):
        rig.child()
    last = rig.child()
    found = rig.result(last, "fds")
    assert sum(text.startswith("socket:") for text in found.values()) == 1
    assert sum(text.startswith("pipe:") for text in found.values()) == 1
    assert sum("mark." in text for text in found.values()) == 1
    memfds = {text for text in found.values() if text.startswith("/memfd:")}
    own = f"cpu/{len(rig.children) - 1}"
    assert memfds == {
        f"/memfd:jobpool output of {own} (deleted)",
        f"/memfd:jobpool stacks of {own} (deleted)",
    }
    own_views = {f"/proc/{last.pid}/statm", f"/proc/{last.pid}/clear_refs"}
    others = {
        text
        for text in found.values()
        if not text.startswith(("socket:", "pipe:", "/memfd:"))
    }
    assert others == {
        "/dev/null",
        str(rig.directory / f"mark.{len(rig.children) - 1}"),
        *own_views,
    }


def test_a_child_is_confined(rig, child):
    """No core dumps, no privileges to gain, first in line for the kernel's killer."""
    status = Path(f"/proc/{child.pid}/status").read_text()
    assert "NoNewPrivs:\t1" in status
    limits = Path(f"/proc/{child.pid}/limits").read_text()
    core = next(line for line in limits.splitlines() if "core" in line)
    assert core.split()[4:6] == ["0", "0"]
    own = int(Path("/proc/self/oom_score_adj").read_text())
    score = int(Path(f"/proc/{child.pid}/oom_score_adj").read_text())
    assert score == min(1000, own + 500)
    assert os.getsid(child.pid) == child.pid


def test_temporary_directory_is_private_and_emptied(rig):
    """Each child has a TMPDIR of its own; the slot's next child finds it empty."""
    child = rig.child()
    place = Path(rig.result(child, "state")["env"]["TMPDIR"])
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert place.parent == rig.directory / "tmp"
    rig.start(child, "leave_a_file_and_die")
    rig.exit(child)
    assert len(list(place.iterdir())) == 1
    heir = rig.child(slot_name=child.slot_name)
    assert list(place.iterdir()) == []
    assert rig.result(heir, "state")["tempdir"] == str(place)


def test_marker_is_in_the_environment_from_the_start(rig, child):
    """Each process of a run shows the run's name in what it was started with."""
    for pid in (child.pid, rig.zygote.pid):
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        assert f"JOBPOOL_RUN={rig.run_id}".encode() in environment


def test_environment_can_be_scrubbed(tmp_path, monkeypatch):
    """`env` names all that a child's environment keeps, also in the kernel's view."""
    monkeypatch.setenv("SECRET", "hunter2")
    monkeypatch.setenv("KEPT", "yes")
    rig = Rig(tmp_path, env=("KEPT", "PATH"))
    try:
        rig.loaded()
        child = rig.child()
        seen = rig.result(child, "state")["env"]
        assert seen["KEPT"] == "yes"
        made_by_libraries = {"LC_CTYPE", "LINES", "COLUMNS"}
        ours = {"KEPT", "PATH", "JOBPOOL_RUN", "TMPDIR"}
        assert set(seen) - made_by_libraries == ours
        assert b"hunter2" not in Path(f"/proc/{child.pid}/environ").read_bytes()
        assert os.environ["SECRET"] == "hunter2"
        assert "JOBPOOL_RUN" not in os.environ
    finally:
        rig.close()


def test_reset_is_cheap(rig, child):
    """The reset between attempts stays a small part of a millisecond."""
    costs = [rig.result(child, "time_reset") for _ in range(5)]
    assert statistics.median(costs) < 500e-6  # target 50 us; the machine is noisy
