"""The strict level under a real supervisor: all ends reported, nothing left.

`test_strict` covers an ordinary user. Here it is root, or the user that runs the test.
"""

import json
import os
import signal
import subprocess
import sys

import pytest

from jobpool.core.isolation.measures import OWN_FILES, Feature, obstacles
from jobpool.sandbox.system.procfs import children_of, process_stat
from support.machine.sandbox_rig import missing
from support.site.supervising import PATIENCE_S, Site, is_alive
from support.waiting import wait_until

WHY_NOT = obstacles(OWN_FILES, missing())
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
APP = """
@jobs.job("cpu", kind="end", max_attempts=1)
def end(how: str):
    Path("/tmp" if os.path.islink("/tmp") else ".", "left").write_text("x")
    if how == "crash":
        segfault()
    if how == "abort":
        os.abort()
    if how == "exit":
        os._exit(3)
    if how == "raise":
        raise GiveUp("no use")
    if how == "fill":
        hoard = []
        while True:
            hoard.append(b"x" * (4 << 20))
    while how == "hang":
        pass


@jobs.job("cpu", kind="who")
def who():
    return [os.getpid(), os.getuid(), sorted(os.listdir())]


@jobs.job("cpu", kind="ask")
def ask():
    return end.enqueue(how="").id


@jobs.job("cpu", kind="family")
def family(gate: str):
    for _ in range(2):
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
    Path(gate, f"begun.{current().attempt}").touch()
    while not Path(gate, "open").exists():
        time.sleep(0.005)
"""
CONFIG = """
[pools.cpu]
sandbox = "strict"
write = ["out"]
env = ["JOBPOOL_TEST_SITE"]
memory = "200MiB"
"""


@pytest.fixture
def site(tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "out").mkdir()
    (tmp_path / "out").chmod(0o777)
    with Site(tmp_path, APP, config=CONFIG) as site:
        yield site


def test_every_end_is_reported_as_without_the_strict_level(site):
    """Signal, exit code, exception, both limits; with stack and figures.

    It works on.
    """
    supervisor = site.start("cpu=2")
    expected = {
        "crash": ("crashed", signal.SIGSEGV, None),
        "abort": ("crashed", signal.SIGABRT, None),
        "exit": ("crashed", None, 3),
        "raise": ("failed", None, None),
        "hang": ("timed_out", None, None),
        "fill": ("out_of_memory", None, None),
    }
    ids = {
        # Whoever ends by itself has time for that on a busy machine.
        how: site.add("end", {"how": how}, timeout_s=3.0 if how == "hang" else None)
        for how in expected
    }
    for how, (outcome, signum, code) in expected.items():
        (attempt,) = site.attempts(ids[how])
        assert attempt.outcome == outcome, (how, attempt)
        if outcome == "crashed":
            assert (attempt.signal, attempt.exit_code) == (signum, code)
        if how in {"crash", "abort"}:
            assert "in end" in attempt.stack, how
        assert attempt.peak_rss_bytes > 2**20
    assert site.result(site.add("ask")) > 0
    dying = len(expected) - 1  # not by an exception; the log may lag behind
    wait_until(
        lambda: len(supervisor.events("child_ended")) >= dying, PATIENCE_S, "all ends"
    )
    ended = len(supervisor.events("child_ended"))
    found = [site.result(site.add("who")) for _ in range(5)]
    assert all(pid == 2 and files == [] for pid, _uid, files in found)
    assert all((uid == 0) is False or os.geteuid() != 0 for _pid, uid, _files in found)
    assert len(supervisor.events("child_ended")) == ended, "children are reused"
    assert supervisor.stop() == 0
    site.wait_nobody()


def test_survivors_of_supervisor_and_zygote_are_ended_before_a_restart(site):
    """After both are killed, the next start ends inits, jobs and their processes."""
    first = site.start("cpu=1")
    out = site.folder / "out"
    job_id = site.add("family", {"gate": str(out)})
    wait_until((out / "begun.1").exists, PATIENCE_S, "the first attempt")
    os.kill(first.pid, signal.SIGSTOP)  # between two kills it would start another one
    wait_until(lambda: process_stat(first.pid).state == "T", PATIENCE_S, "it stops")
    (zygote,) = site.zygotes(first)
    old = set(site.processes()) | set(children_of(first.pid))
    for pid in (zygote, first.pid):
        os.kill(pid, signal.SIGKILL)
    first.process.wait()
    assert len(old) >= 4
    second = site.start("cpu=1")
    wait_until((out / "begun.2").exists, PATIENCE_S, "the second attempt")
    assert [pid for pid in old if is_alive(pid)] == []
    assert second.wait_event("run_reclaimed")["killed"] >= 3
    (out / "open").touch()
    assert site.finish(job_id).state == "succeeded"


def test_a_supervisors_death_leaves_nothing(site):
    """Its zygote ends each init, and everything with it."""
    first = site.start("cpu=1")
    out = site.folder / "out"
    site.add("family", {"gate": str(out)})
    wait_until((out / "begun.1").exists, PATIENCE_S, "the attempt")
    first.kill()
    site.wait_nobody()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's children are others")
def test_paths_that_its_children_could_not_use_stop_the_start(site):
    """All of them are named, and what to do."""
    site.folder.chmod(0o700)
    supervisor = site.launch("run")
    assert supervisor.wait_exit() == 2
    for path in (site.folder, site.folder / "out"):
        assert (
            f"{path}" in supervisor.said().replace(",", " ").replace(":", " ").split()
        )
    assert "chmod 1777" in supervisor.said()
    site.folder.chmod(0o755)
    (site.folder / "out").chmod(0o755)
    supervisor = site.launch("run")
    assert supervisor.wait_exit() == 2
    assert f"cannot use {site.folder / 'out'}:" in supervisor.said()


IN_A_USER_NAMESPACE = """
import ctypes, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
uid, gid = os.geteuid(), os.getegid()
assert libc.unshare(0x10000000) == 0
told = {"setgroups": "deny", "uid_map": f"0 {uid} 1", "gid_map": f"0 {gid} 1"}
for name, text in told.items():
    with open(f"/proc/self/{name}", "w") as file:
        file.write(text)
"""


def run_in_user_namespace(script, cwd):
    """Run Python as root of a user namespace without any other user."""
    return subprocess.run(
        [sys.executable, "-c", IN_A_USER_NAMESPACE + script],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_refused_start_names_the_missing_measure(site):
    """For example in a container that lacks the users for children."""
    done = run_in_user_namespace(
        "os.execv(sys.executable, [sys.executable, '-m', 'jobpool', 'run'])",
        site.folder,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "'own user' of sandbox = strict is not possible here" in done.stderr
    assert "1879" in done.stderr


def test_missing_measures_are_found_by_trying(tmp_path):
    """For example user namespaces forbidden by an administrator."""
    script = """
from pathlib import Path
from jobpool.sandbox.confinement.namespaces import drop_privileges
from jobpool.sandbox.confinement.features import lacking
Path("/proc/sys/user/max_user_namespaces").write_text("0")
drop_privileges(os.geteuid())
print(json.dumps({one.name: why for one, why in lacking().items()}))
"""
    done = run_in_user_namespace(script, tmp_path)
    found = json.loads(done.stdout)
    assert "max_user_namespaces" in found[Feature.NAMESPACES.name]
    for feature in (Feature.MOUNTS, Feature.USERS):
        assert found[feature.name] == f"not tried, for want of {Feature.NAMESPACES}"
    assert "FILTERS" not in found
