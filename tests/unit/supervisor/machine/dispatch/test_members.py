"""The end of a flow's member: what has waited for it begins at once, in any pool."""

import pytest

from jobpool.core.jobs.job import NewJob
from jobpool.sandbox.protocol.messages import Raised
from jobpool.sandbox.protocol.verdict import KillReason
from jobpool.store.records.jobs import LeaseBatch
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from support.machine.world import World, pool


@pytest.fixture
def world():
    """Two pools, which have both found that nothing is due."""
    world = World(pool("cpu", 1), pool("io", 1)).up()
    world.notify()
    return world


def end(world, how):
    if how == "succeeds":
        world.done(0)
    elif how == "fails":
        world.done(0, error=Raised(["ValueError"], "no", ""))
    else:
        world.died(0, signal=11)


@pytest.mark.parametrize("how", ["succeeds", "fails", "crashes"])
@pytest.mark.parametrize("is_member", [True, False])
def test_every_pool_looks_again_when_a_member_has_ended(world, how, is_member):
    """However it has; after a plain job, only the pool whose slot is free."""
    world.job(step=7 if is_member else None)
    world.notify()
    world.took(cmd.Lease)
    end(world, how)
    asked = {name for lease in world.took(cmd.Lease) for name in lease.wanted}
    assert ("io" in asked) == is_member


@pytest.mark.parametrize("burst", [True, False])
def test_a_member_that_ends_while_the_store_is_asked_has_it_asked_again(burst):
    """The answer, which knows nothing of that end, does not say that nothing is due."""
    world = World(pool("cpu", 1), pool("io", 1), burst=burst)
    world.job(step=7)
    world.up()
    world.hold_grants = True
    world.notify()
    (*_, asked) = world.took(cmd.Lease)
    world.done(0)
    assert world.took(cmd.Lease) == []
    world.step(inp.Granted(asked.wanted, LeaseBatch()))
    (again,) = world.took(cmd.Lease)
    assert {*again.wanted} == {"cpu", "io"}
    assert world.finish is None


@pytest.mark.parametrize("step", [None, 7])
def test_a_child_is_told_whether_its_job_is_a_member(world, step):
    """Only then may its arguments hold placeholders for others' results."""
    world.job(step=step)
    world.notify()
    ((run,),) = [assigned.frames for assigned in world.took(cmd.Assign)]
    assert run.is_member == (step is not None)


@pytest.mark.parametrize("step", [None, 7])
def test_only_a_member_adds_to_its_flow(world, step):
    """It does so with its success; a child that says so of another job is killed."""
    added = NewJob(kind="cpu.work", pool="cpu", payload=b"{}")
    world.job(step=step)
    world.notify()
    slot = world.machine.slots[0]
    world.done(0, added=[added])
    settled = [one for settle in world.took(cmd.Settle) for one in settle.settlements]
    if step is None:
        assert settled == []
        assert slot.killed.reason is KillReason.PROTOCOL
    else:
        assert [one.added for one in settled] == [(added,)]
