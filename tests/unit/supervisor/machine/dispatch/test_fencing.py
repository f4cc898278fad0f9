"""Self-fencing: running jobs end before their lease may belong to another run."""

from __future__ import annotations

import signal

import pytest

from jobpool.core.events.supervisor import Alarm, LeaseFenced, LeaseRegained
from jobpool.core.jobs.job import JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.policy import Policy, Rerun
from jobpool.sandbox.protocol.verdict import Exit
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.dispatch.fencing import published_ttl_s
from jobpool.supervisor.machine.state.slot import SlotState
from support.machine.world import World, pool

TTL_S = 10.0
PUBLISHED_S = published_ttl_s(TTL_S)
FENCE_S = PUBLISHED_S - 0.5


def renew(world: World, sent_ago_s: float = 0.0) -> None:
    """A renewal has succeeded."""
    world.step(inp.Renewed(world.now_s - sent_ago_s + PUBLISHED_S, PUBLISHED_S))


def shared_world(*pools, **options) -> World:
    """Return a world whose leases expire by time, and were renewed just now."""
    world = World(*pools, **options)
    for name in world.machine.pools:
        world.step(inp.ZygoteLoaded(name, world.report))
    renew(world)
    world.step(inp.Entered())
    return world


def fenced(world: World) -> list[LeaseFenced]:
    """Return the reported fences."""
    return [e for e in world.said if isinstance(e, LeaseFenced)]


def test_a_store_on_one_host_is_never_fenced() -> None:
    """Where no lease expires by time, no outage ends a job."""
    world = World(pool("cpu", 1)).up()
    world.job(timeout_s=59.0)
    world.notify()
    world.wait(58.0)
    assert not world.took(cmd.Kill)
    assert not fenced(world)


def test_running_attempts_are_killed_before_the_lease_ends() -> None:
    """At the margin before the deadline, not earlier, the attempt is interrupted."""
    world = shared_world(pool("cpu", 2))
    world.job()
    world.notify()
    world.wait(FENCE_S - 0.01)
    assert not world.took(cmd.Kill)
    world.wait(0.02)
    assert [c.slot for c in world.took(cmd.Kill)] == [0]
    world.died(0, signal=signal.SIGKILL)
    (settlement,) = world.settled
    assert (settlement.outcome, settlement.state) == (
        Outcome.INTERRUPTED,
        JobState.PENDING,
    )
    assert "could not be renewed" in (settlement.evidence.reason or "")
    (event,) = fenced(world)
    assert (event.ended, event.handed_back, event.lapsed) == (1, 0, False)
    assert event.silent_s == pytest.approx(FENCE_S, abs=0.02)


def test_the_deadline_counts_from_the_start_of_the_request() -> None:
    """A renewal whose answer took long extends the lease by that much less."""
    world = shared_world(pool("cpu", 1))
    world.job()
    world.notify()
    world.wait(5.0)
    renew(world, sent_ago_s=4.0)
    world.wait(FENCE_S - 4.0 - 0.01)
    assert not world.took(cmd.Kill)
    world.wait(0.02)
    assert world.took(cmd.Kill)


def test_renewals_keep_jobs_alive() -> None:
    """An outage that is shorter than the TTL does no harm."""
    world = shared_world(pool("cpu", 1))
    world.job()
    world.notify()
    for _ in range(5):
        world.wait(TTL_S)
        renew(world)
    assert not world.took(cmd.Kill)
    assert not fenced(world)


def test_a_fenced_supervisor_leases_nothing_until_it_is_renewed() -> None:
    """While fenced it requests nothing; a renewal resumes it, and is logged."""
    world = shared_world(pool("cpu", 1))
    world.wait(FENCE_S)
    world.took(cmd.Lease)
    job = world.job()
    world.notify()
    world.wait(30.0)
    assert not world.took(cmd.Lease)
    assert world.finish is None
    renew(world)
    assert [frame.id for frame in world.sent[0]] == [job.id]
    (event,) = [e for e in world.said if isinstance(e, LeaseRegained)]
    assert event.away_s == pytest.approx(30.0)


def test_idle_children_survive_a_fence() -> None:
    """A child without a job holds no lease: it is there when leasing resumes."""
    world = shared_world(pool("cpu", 2))
    world.took(cmd.Fork)
    world.wait(FENCE_S)
    assert [s.state for s in world.machine.slots] == [SlotState.IDLE] * 2
    assert not world.took(cmd.Kill)
    assert not world.took(cmd.Fork)


def test_leases_requested_before_the_fence_are_given_back() -> None:
    """Its lease ends with the others: it must not begin."""
    world = shared_world(pool("cpu", 1))
    world.hold_grants = True
    world.job()
    world.notify()
    world.wait(FENCE_S)
    world.hold_grants = False
    renew(world)
    world.answer_grant()
    first, *_rest = world.settled
    assert (first.state, first.outcome) == (JobState.RUNNABLE, None)
    assert 0 not in world.sent


@pytest.mark.parametrize("lapse", [False, True])
def test_jobs_sent_ahead_are_given_back_at_the_fence(lapse: bool) -> None:
    """What a fenced child had not begun goes to the store, not to another child."""
    world = shared_world(pool("cpu", 1)).stream()
    seqs = [job.seq for job in world.machine.slots[0].queue]
    tokens = [job.lease.token for job in world.machine.slots[0].queue]
    sent = len(world.sent[0])
    if lapse:
        world.step(inp.Lapsed())
        world.wait(0.01)
    else:
        renew(world, sent_ago_s=PUBLISHED_S - 0.51)
        world.wait(0.02)
    assert world.took(cmd.Recall)
    world.recalled(0, list(world.machine.slots[0].queue)[2:])
    world.died(0, signal=signal.SIGKILL, never_begun=(seqs[1],))
    assert {s.token: s.outcome for s in world.settled} == {
        tokens[0]: Outcome.INTERRUPTED,
        **dict.fromkeys(tokens[1:]),
    }
    assert len(world.sent[0]) == sent
    (event,) = fenced(world)
    assert (event.ended, event.handed_back, event.lapsed) == (1, 3, lapse)


def test_a_lapsed_lease_kills_at_once_and_leasing_goes_on() -> None:
    """Expired leases may have been taken over: end them, then lease others."""
    world = shared_world(pool("cpu", 1))
    world.job()
    world.notify()
    world.step(inp.Lapsed())
    renew(world)
    world.wait(0.01)
    assert world.took(cmd.Kill)
    other = world.job()
    world.died(0, signal=signal.SIGKILL)
    world.notify()
    assert [s.outcome for s in world.settled] == [Outcome.INTERRUPTED]
    assert world.sent[0][-1].id == other.id


def test_a_lapse_without_leases_is_not_logged() -> None:
    """Nothing ran, nothing was lost: nothing is logged."""
    world = shared_world(pool("cpu", 1))
    world.step(inp.Lapsed())
    assert not fenced(world)


def test_a_late_step_fences_before_it_does_anything_else() -> None:
    """A loop that was delayed begins no job under a lease that has ended."""
    world = shared_world(pool("cpu", 1))
    world.hold_grants = True
    world.job()
    world.notify()
    world.hold_grants = False
    world.now_s += PUBLISHED_S
    world.answer_grant()
    assert 0 not in world.sent
    assert [s.state for s in world.settled] == [JobState.RUNNABLE]
    assert fenced(world)


def test_time_asleep_counts_for_the_lease() -> None:
    """A deadline that turns out to be past fences at once."""
    world = shared_world(pool("cpu", 1))
    world.job()
    world.notify()
    world.step(inp.Renewed(world.now_s - 3.0, PUBLISHED_S))
    world.wait(0.01)
    assert world.took(cmd.Kill)
    assert fenced(world)


def test_a_fenced_attempt_that_must_not_rerun_is_dead() -> None:
    """With rerun="never" a fenced attempt is dead: its end is unknown."""
    world = shared_world(pool("cpu", 1), policy=Policy(rerun=Rerun.NEVER))
    world.job()
    world.notify()
    world.wait(FENCE_S + 0.01)
    world.died(0, signal=signal.SIGKILL)
    assert [s.state for s in world.settled] == [JobState.DEAD]


def test_a_drain_is_fenced_too() -> None:
    """A job in its drain window is no more ours than any other."""
    world = shared_world(pool("cpu", 1, drain_s=60.0))
    world.job()
    world.notify()
    world.step(inp.Drain("SIGTERM"))
    world.wait(FENCE_S + 0.01)
    assert world.took(cmd.Kill)
    world.died(0, signal=signal.SIGKILL)
    assert world.finish is not None


def test_a_short_lease_has_a_tenth_as_margin() -> None:
    """The margin never takes more than its share."""
    world = shared_world(pool("cpu", 1))
    world.job()
    world.notify()
    world.step(inp.Renewed(world.now_s + 1.0, 1.0))
    world.wait(0.89)
    assert not world.took(cmd.Kill)
    world.wait(0.02)
    assert world.took(cmd.Kill)


def test_no_child_is_forked_while_fenced() -> None:
    """Zygotes would end it at once: a dead child is replaced when leasing resumes."""
    world = shared_world(pool("cpu", 2))
    world.deaf_forks = True
    world.took(cmd.Fork)
    world.wait(FENCE_S)
    for slot in (0, 1):
        ended = Exit(signal=signal.SIGKILL)
        world.step(inp.ChildExited(slot=slot, exit=ended, fenced=True))
    world.wait(60.0)
    assert not world.took(cmd.Fork)
    assert not [e for e in world.said if isinstance(e, Alarm)]
    renew(world)
    assert [c.slot for c in world.took(cmd.Fork)] == [0, 1]


def test_a_child_ended_by_its_zygote_at_the_fence_is_no_failure() -> None:
    """One that was just being made, too: it raises no alarm, and causes no wait."""
    world = shared_world(pool("cpu", 1))
    world.deaf_forks = True
    world.died(0, signal=signal.SIGSEGV)
    world.wait(1.0)
    world.said.clear()
    world.step(inp.ChildForked(0))
    world.wait(FENCE_S)
    ended = Exit(signal=signal.SIGKILL)
    world.step(inp.ChildExited(slot=0, exit=ended, fenced=True))
    assert not [e for e in world.said if isinstance(e, Alarm)]
    world.took(cmd.Fork)
    renew(world)
    assert [c.slot for c in world.took(cmd.Fork)] == [0]
