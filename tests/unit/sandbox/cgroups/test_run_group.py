"""A run's cgroup, against a model of the kernel with all controllers."""

import errno

import pytest

from jobpool.core.config.settings import GIB, MIB
from jobpool.core.isolation.cgroups import (
    EFFECTS,
    Control,
    Controls,
    memory_max_bytes,
)
from jobpool.sandbox.cgroups import run_group
from jobpool.sandbox.cgroups.run_group import NoCgroupError, enter
from support.machine.cgroup_model import ModelFiles

RUN = "/unit/jobpool.r1"
CHILD = f"{RUN}/cpu.0.77"


def entered(files):
    """Enter as pid 1."""
    return enter("/unit", RUN, 1, files)


def child(group, *, memory_bytes=256 * MIB, processes=None, pid=77):
    """Make a child's cgroup and let it join."""
    made = group.child(f"cpu/0.{pid}", memory_bytes, processes)
    group._files.write(f"{made.path}/cgroup.procs", str(pid))
    return made


def test_with_all_controllers_everything_is_in_force():
    """The supervisor has moved down, otherwise the kernel would not delegate them."""
    files = ModelFiles()
    group = entered(files)
    assert group.controls == Controls(place=RUN, in_force=tuple(Control))
    assert group.is_per_child
    assert files.cgroups["/unit"].procs == set()
    assert files.cgroups[f"{RUN}/supervisor"].procs == {1}
    assert files.cgroups[CHILD if child(group) else ""].controllers == {
        "memory",
        "pids",
    }


def test_leaving_the_group_puts_everything_back():
    """Children are killed, controllers taken back, and the supervisor moves back."""
    files = ModelFiles()
    group = entered(files)
    child(group)
    files.write(f"{group.zygotes}/cgroup.procs", "50")
    group.leave()
    assert set(files.cgroups) == {"/unit"}
    assert files.cgroups["/unit"].procs == {1}
    assert files.cgroups["/unit"].handed_down == set()
    assert sorted(files.killed) == [50, 77]


def test_other_processes_in_the_same_cgroup_prevent_controllers():
    """The no-internal-processes rule: EBUSY. What needs no controller still works."""
    files = ModelFiles(procs=(1, 2))
    group = entered(files)
    assert group.controls.in_force == (Control.KILL,)
    assert "other processes are there" in group.controls.missing[Control.MEMORY]
    assert not group.is_per_child
    group.leave()
    assert files.cgroups["/unit"].procs == {1, 2}


def test_a_zygote_that_was_started_before_moves_too():
    """Else it would be the other process that prevents controllers."""
    files = ModelFiles(procs=(1, 2))
    group = enter("/unit", RUN, 1, files, zygotes=[2])
    assert group.controls.in_force == tuple(Control)
    assert files.cgroups[group.zygotes].procs == {2}


def test_each_controller_is_checked_separately():
    """A missing one is named; the others are in force."""
    group = entered(ModelFiles(controllers=("pids",)))
    assert group.controls.in_force == (Control.KILL, Control.PIDS)
    assert group.controls.missing == {
        Control.MEMORY: "/unit lacks the controller 'memory'"
    }


def test_an_old_kernel_has_limits_and_no_kill():
    """cgroup.kill came with Linux 5.14."""
    group = entered(ModelFiles(has_kill=False))
    assert group.controls.in_force == (Control.MEMORY, Control.PIDS)
    assert "5.14" in group.controls.missing[Control.KILL]
    assert not child(group).kill()


@pytest.mark.parametrize(
    ("path", "code", "why"),
    [
        ("/unit", errno.EROFS, "no cgroup can be made below /unit: Read-only"),
        ("/unit", errno.EACCES, "no cgroup can be made below /unit: Permission"),
        (f"{RUN}/supervisor/cgroup.procs", errno.EACCES, "cannot be moved"),
        (f"{RUN}/supervisor/cgroup.procs", errno.EOPNOTSUPP, "cannot be moved"),
    ],
)
def test_where_no_cgroup_can_be_made_nothing_is_left(path, code, why):
    """A read-only mount (containers), or another owner's: reported, and unchanged."""
    files = ModelFiles()
    files.refusals[path] = code
    with pytest.raises(NoCgroupError, match=why):
        entered(files)
    assert set(files.cgroups) == {"/unit"}
    assert files.cgroups["/unit"].procs == {1}


def test_a_second_supervisor_keeps_its_controllers():
    """The first to leave does not take away what both use."""
    files = ModelFiles()
    first = entered(files)
    files.cgroups[f"{RUN}/supervisor"].procs.add(3)
    second = enter(f"{RUN}/supervisor", "/unit/jobpool.r2", 3, files)
    first.leave()
    assert files.cgroups["/unit"].handed_down == {"memory", "pids"}
    assert second.controls.in_force == tuple(Control)
    assert child(second, pid=78).memory_events().oom == 0


def test_cgroups_left_by_dead_supervisors_are_removed():
    """But not one that is young, populated, or not ours."""
    files = ModelFiles()
    for path in ("/unit/jobpool.dead", "/unit/jobpool.alive", "/unit/other"):
        files.make(path)
        files.make(f"{path}/zygotes")
    files.write("/unit/jobpool.alive/zygotes/cgroup.procs", "9")
    files.age = run_group.OLD_S
    entered(files).leave()
    assert files.exists("/unit/jobpool.dead")
    files.age += 1
    entered(files).leave()
    assert set(files.below("/unit")) == {"/unit/jobpool.alive", "/unit/other"}


# -- children ----------------------------------------------------------------------


def test_a_child_is_bounded_before_it_joins():
    """Swap would hide memory from the watch.

    The kernel kills the whole tree or nothing.
    """
    files = ModelFiles()
    made = entered(files).child("cpu/0.77", 256 * MIB, 40)
    written = files.cgroups[made.path].files
    assert written["memory.max"] == str(2 * 256 * MIB + 64 * MIB)
    assert written["memory.oom.group"] == "1"
    assert written["memory.swap.max"] == "0"
    assert written["pids.max"] == "40"


def test_without_swap_accounting_swap_is_not_limited():
    """Such a kernel has no memory.swap.max."""
    files = ModelFiles(has_swap=False)
    assert child(entered(files)).path in files.cgroups


def test_an_attempt_is_bounded_above_its_limit():
    """The memory watch acts first; the kernel a tenth later, or 32 MiB."""
    files = ModelFiles()
    made = child(entered(files))
    made.bound(GIB)
    assert files.cgroups[made.path].files["memory.max"] == str(GIB + GIB // 10)
    assert memory_max_bytes(100 * MIB) == 132 * MIB


def test_a_child_whose_cgroup_cannot_be_limited_leaves_none():
    """The caller goes on without it.

    A partial limit would be reported as a whole one.
    """
    files = ModelFiles()
    group = entered(files)
    files.refusals[f"{CHILD}/pids.max"] = errno.EACCES
    with pytest.raises(OSError, match="Permission denied"):
        group.child("cpu/0.77", 256 * MIB, None)
    assert CHILD not in files.cgroups


def test_a_kill_at_the_cgroups_limit_is_told_from_the_hosts():
    """``oom`` is its own limit, ``oom_kill`` a kill for any lack of memory."""
    files = ModelFiles()
    group = entered(files)
    own, hosts = child(group), child(group, pid=78)
    own.bound(100 * MIB)
    files.charge(own.path, 90 * MIB)
    assert own.memory_events().oom_kills == 0
    files.charge(own.path, 90 * MIB)
    files.kill_for_memory(hosts.path)
    events = own.memory_events()
    assert (events.oom, events.oom_kills) == (1, 1)
    assert events.max_bytes == events.peak_bytes == 132 * MIB
    events = hosts.memory_events()
    assert (events.oom, events.oom_kills) == (0, 1)


def test_a_cgroup_that_is_gone_raises_nothing():
    """Another process may remove it at any time."""
    files = ModelFiles()
    made = child(entered(files))
    files.cgroups[made.path].procs.clear()
    files.remove(made.path)
    assert made.memory_events() is None
    assert not made.is_populated()
    assert made.members() == []
    assert not made.kill()
    assert made.remove()


# -- what is promised ----------------------------------------------------------------


def test_every_control_has_a_description():
    """`doctor` prints them all."""
    assert set(EFFECTS) == set(Control)
