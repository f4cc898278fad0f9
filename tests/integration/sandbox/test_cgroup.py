"""Cgroups with the real kernel: killed at once, joined first, and removed.

The tests are skipped, with the reason, on machines where no cgroup can be made.
Whatever needs controllers is tested against a model: tests/unit/sandbox/cgroups.
"""

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from jobpool.core.isolation.cgroups import Control
from jobpool.sandbox.cgroups.cgroup import FILES, ChildGroup, Group, read_group
from jobpool.sandbox.cgroups.location import NoCgroupError, here
from jobpool.sandbox.cgroups.run_group import enter, path_for
from jobpool.sandbox.runs.run_directory import RunDirectory
from jobpool.sandbox.system.procfs import process_stat
from jobpool.supervisor.maintenance.death_proof import DeadRun, Unproven, prove_dead
from support.machine.cgroup_model import ModelFiles
from support.machine.sandbox_rig import PATIENCE_S, Rig
from support.waiting import wait_until

LEAVER = """
import os, sys, time
os.environ.clear()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve(sys.executable, ["x", "-c", "import time; time.sleep(1000)"], {})
os._exit(0)
"""
"""A daemon that nothing but its cgroup leads to: it is one once it is called x."""


def called(pid):
    """Return the first word of a process's command line; "" if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().partition("\0")[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def may_divide():
    """Return why no cgroup can be made here, or ""."""
    try:
        origin, path = path_for(f"probe-{uuid.uuid4().hex}")
        group = enter(origin, path, os.getpid())
    except NoCgroupError as exc:
        return str(exc)
    group.leave()
    return "" if Control.KILL in group.controls.in_force else "no cgroup.kill"


WHY_NOT = may_divide()
real = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "-")


@pytest.fixture
def run_group():
    """Enter a cgroup of our own; leave it afterwards."""
    origin, path = path_for(uuid.uuid4().hex)
    group = enter(origin, path, os.getpid())
    yield group
    group.leave()
    assert here() == origin
    assert not Path(path).exists()


@pytest.fixture
def rig(tmp_path):
    """Start a zygote that has loaded hostile handlers."""
    made = Rig(tmp_path)
    made.loaded()
    yield made
    made.close()


@real
def test_a_supervisor_moves_down_a_level_and_back(run_group):
    """It does not block controllers; the fixture checks that it moves back."""
    assert here() == f"{run_group.path}/supervisor"
    assert os.getpid() in run_group.members()
    assert run_group.is_populated()


@real
def test_a_child_joins_its_cgroup_before_user_code_runs(run_group, rig, tmp_path):
    """Everything that a handler starts is in its cgroup."""
    group = ChildGroup(f"{run_group.path}/c", (), memory_bytes=0, processes=1)
    child = rig.child(cgroup=group.path)
    child.group = group
    assert group.members() == [child.pid]
    rig.run(child, "spawn_tree", str(tmp_path / "pids"))
    started = {int(pid) for pid in (tmp_path / "pids").read_text().split()}
    assert started < set(group.members())


@real
def test_the_final_kill_reaches_every_process_of_the_cgroup(run_group, rig):
    """Even a process that is in the cgroup but not in the process tree."""
    group = ChildGroup(f"{run_group.path}/c", (), memory_bytes=0, processes=1)
    child = rig.child(cgroup=group.path)
    child.group = group
    stranger = subprocess.Popen(["sleep", "1000"])
    FILES.write(f"{group.path}/cgroup.procs", str(stranger.pid))
    child.kill_tree()
    assert stranger.wait(PATIENCE_S) == -signal.SIGKILL
    rig.exit(child)
    wait_until(lambda: not child.is_populated, PATIENCE_S, "the cgroup is empty")
    child.close()
    assert not Path(group.path).exists()


@real
def test_processes_a_dead_child_left_in_its_cgroup_are_killed(run_group, rig):
    """Its orphans end when it is reaped, before any search for them."""
    group = ChildGroup(f"{run_group.path}/c", (), memory_bytes=0, processes=1)
    child = rig.child(cgroup=group.path)
    child.group = group
    stranger = subprocess.Popen(["sleep", "1000"])
    FILES.write(f"{group.path}/cgroup.procs", str(stranger.pid))
    os.kill(child.pid, signal.SIGSEGV)
    assert rig.exit(child).signal == signal.SIGSEGV
    assert stranger.wait(PATIENCE_S) == -signal.SIGKILL


def test_a_child_that_cannot_join_its_cgroup_runs_nothing(rig, tmp_path):
    """It reports this. A job in it would be outside its promised bounds."""
    child = rig.child(cgroup=str(tmp_path / "nothing"), ready=False)
    message = rig.message(child)
    assert "cannot enter the cgroup" in message.message


@real
def test_a_daemon_known_only_by_its_cgroup_ends_with_its_run(tmp_path):
    """No environment, no session, no parent of ours.

    Only the run's cgroup contains it.
    """
    root, run_id = tmp_path / "run", uuid.uuid4().hex
    lock_and_sleep = (
        "import sys, time\n"
        "from jobpool.sandbox.runs.run_directory import RunDirectory\n"
        "run = RunDirectory.create(sys.argv[1], sys.argv[2])\n"
        "run.record_cgroup(sys.argv[3]); print('ready', flush=True); time.sleep(1000)"
    )
    origin, path = path_for(run_id)
    supervisor = subprocess.Popen(
        [sys.executable, "-c", lock_and_sleep, str(root), run_id, path],
        stdout=subprocess.PIPE,
    )
    supervisor.stdout.readline()
    group = enter(origin, path, supervisor.pid)
    join_and_leave = f"open('{group.zygotes}/cgroup.procs', 'w').write('0')\n{LEAVER}"
    subprocess.run([sys.executable, "-c", join_and_leave], check=True)
    members = Group(group.zygotes).members
    # One alone is not enough: it may be the parent, which is yet to fork the daemon.
    wait_until(
        lambda: [called(pid) for pid in members()] == ["x"],
        PATIENCE_S,
        "it is there, its parents gone",
    )
    (daemon,) = members()
    supervisor.kill()
    supervisor.wait()
    supervisor.stdout.close()
    proof = prove_dead(root, run_id, wait_s=PATIENCE_S)
    assert proof == DeadRun(running_tokens=frozenset(), killed=1)
    stat = process_stat(daemon)
    assert stat is None or stat.state == "Z"
    assert not Path(path).exists()


@real
def test_a_process_does_not_prove_its_own_run_dead(tmp_path):
    """A supervisor started by a job must not kill itself."""
    run = RunDirectory.create(tmp_path / "run", run_id := uuid.uuid4().hex)
    origin, path = path_for(run_id)
    run.record_cgroup(path)
    group = enter(origin, path, os.getpid())
    slots = run.path / "slots"
    slots.write_bytes(
        slots.read_bytes().replace(b'"pid":%d' % os.getpid(), b'"pid":%d' % 2**22)
    )
    run.close()
    try:
        proof = prove_dead(tmp_path / "run", run_id)
        assert isinstance(proof, Unproven)
        assert "started by a job of that run" in proof.reason
    finally:
        group.leave()


def test_a_forged_record_leads_to_no_other_cgroup(tmp_path):
    """Children can write to the record."""
    (tmp_path / "jobpool.r1").mkdir()
    (tmp_path / "jobpool.r1" / "cgroup.procs").touch()
    assert read_group(str(tmp_path / "jobpool.r1"), "r1") is not None
    assert read_group(str(tmp_path / "jobpool.r1"), "r2") is None
    assert read_group("jobpool.r1", "r1") is None
    assert read_group("/sys/fs/cgroup", "r1") is None
    assert read_group("", "r1") is None


@real
def test_the_model_behaves_like_the_kernel(run_group):
    """Files, membership, and the refusal to remove a populated cgroup."""
    model = ModelFiles(controllers=(), procs=())
    model.make("/unit/r")
    path = f"{run_group.path}/r"
    FILES.make(path)
    member = subprocess.Popen(["sleep", "1000"])

    def answers(files, where):
        seen = [files.read(f"{where}/cgroup.events").splitlines()[0]]
        files.make(f"{where}/below")
        files.write(f"{where}/below/cgroup.procs", str(member.pid))
        seen.append(files.read(f"{where}/below/cgroup.procs"))
        seen.append(files.read(f"{where}/cgroup.events").splitlines()[0])
        seen += [refusal(files.remove, where), refusal(files.make, f"{where}/below")]
        control = f"{where}/cgroup.subtree_control"
        seen.append(refusal(files.write, control, "+memory"))
        seen.append(refusal(files.read, f"{where}/memory.max"))
        files.write(f"{where}/cgroup.kill", "1")
        if files is FILES:
            member.wait(PATIENCE_S)
        seen.append(files.read(f"{where}/cgroup.events").splitlines()[0])
        files.remove(f"{where}/below")
        files.remove(where)
        return [*seen, refusal(files.below, where)]

    assert answers(model, "/unit/r") == answers(FILES, path)


def refusal(call, *arguments):
    """Return the errno that a call raises."""
    try:
        call(*arguments)
    except OSError as refused:
        return refused.errno
    return 0
