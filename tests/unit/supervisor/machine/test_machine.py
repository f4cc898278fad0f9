"""The supervisor's core, event by event, in a world without processes."""

from __future__ import annotations

import itertools
import signal

import pytest

from jobpool.core.events.supervisor import Alarm
from jobpool.core.jobs.job import JobState
from jobpool.errors import JobpoolBug
from jobpool.sandbox.protocol.messages import Ready, StartFailed
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.attempts.deadlines import RECALL_AFTER_S
from jobpool.supervisor.machine.state.slot import ACTIONS, IGNORE, SlotEvent, SlotState
from support.machine.world import MIB, World, done_of, pool


@pytest.mark.parametrize(
    ("state", "event"), list(itertools.product(SlotState, SlotEvent))
)
def test_the_slot_table_is_total(state: SlotState, event: SlotEvent) -> None:
    """Every state meets every event, and every cell names an action that exists."""
    action = ACTIONS[state][event]
    assert action == IGNORE or action in World().machine._actions


def test_jobs_go_to_slots_and_their_ends_to_the_store() -> None:
    """A leased job is assigned, and its result settled as succeeded."""
    world = World().up()
    job = world.job()
    world.notify()
    assert [frame.id for frame in world.sent[0]] == [job.id]
    world.done(0, result=b'"x"')
    assert [(s.state, s.result) for s in world.settled] == [
        (JobState.SUCCEEDED, b'"x"')
    ]


def test_a_full_pool_does_not_delay_another() -> None:
    """A pool whose slots are all busy leaves the other's jobs alone."""
    world = World(pool("cpu", 1), pool("io", 1)).up()
    for _ in range(5):
        world.job("cpu")
    world.notify()
    io_job = world.job("io")
    world.notify()
    assert [frame.id for frame in world.sent[1]] == [io_job.id]
    assert len(world.queue["cpu"]) == 4


def test_no_more_jobs_are_leased_than_can_run() -> None:
    """A pool that is not fast leases one job for each free slot."""
    world = World(pool("cpu", 3)).up()
    for _ in range(10):
        world.job()
    world.notify()
    assert len(world.queue["cpu"]) == 7


def test_a_steps_messages_for_a_child_are_sent_together() -> None:
    """One message to its socket and one to its pipe, however many jobs."""
    world = World(pool("cpu", 1)).up().fast()
    world.hold_grants = True
    jobs = [world.job() for _ in range(5)]
    world.notify()
    world.took(cmd.Assign)
    world.answer_grant()
    (assign,) = world.took(cmd.Assign)
    assert isinstance(assign, cmd.Assign)
    assert [frame.id for frame in assign.frames] == [job.id for job in jobs]


def test_the_ends_of_one_read_are_one_step() -> None:
    """Each is accounted for, in order, and the slot is idle after the last."""
    world = World(pool("cpu", 1)).up().fast()
    for _ in range(5):
        world.job()
    world.notify()
    queue = list(world.machine.slots[0].queue)
    settled = len(world.settled)
    world.step(inp.FramesArrived(0, [done_of(job) for job in queue]))
    assert [s.token for s in world.settled[settled:]] == [
        job.lease.token for job in queue
    ]
    assert world.machine.slots[0].state is SlotState.IDLE


def test_of_many_attempts_that_end_at_once_only_the_last_is_sampled() -> None:
    """A batch of ends costs one sample, with the limits of the running attempt."""
    world = World(pool("cpu", 1)).up().fast()
    for _ in range(5):
        world.job()
    world.notify()
    slot = world.machine.slots[0]
    queue = list(slot.queue)
    world.took(cmd.Watch)
    world.step(inp.FramesArrived(0, [done_of(job) for job in queue[:3]]))
    assert [w.seq for w in world.took(cmd.Watch)] == [queue[3].seq]
    assert slot.queue[0].started_s == world.now_s
    assert world.now_s < slot.deadline_s <= world.now_s + RECALL_AFTER_S


def test_an_attempts_limits_are_set_before_it_is_sent() -> None:
    """An idle child's limits are set before the attempt can begin."""
    world = World(pool("cpu", 1)).up()
    world.job()
    world.notify()
    kinds = [type(c) for c in world.commands if isinstance(c, cmd.Watch | cmd.Assign)]
    assert kinds == [cmd.Watch, cmd.Assign]


def test_fast_jobs_are_sent_ahead_and_slow_ones_recalled() -> None:
    """Jobs behind one that turns out slow are taken back soon, and cost nothing."""
    world = World(pool("cpu", 1)).up().fast()
    jobs = [world.job() for _ in range(5)]
    world.notify()
    slot = world.machine.slots[0]
    assert len(slot.queue) == 5
    world.wait(1.2 * RECALL_AFTER_S)
    assert [c.slot for c in world.took(cmd.Recall)] == [0]
    settled = len(world.settled)
    world.recalled(0, list(slot.queue)[1:])
    assert [job.lease.id for job in slot.queue] == [jobs[0].id]
    back = world.settled[settled:]
    assert [(s.id, s.state, s.outcome) for s in back] == [
        (job.id, JobState.RUNNABLE, None) for job in jobs[1:]
    ]


def test_a_recall_that_returns_nothing_is_not_repeated_at_once() -> None:
    """A recall of jobs that have all begun must not keep the core busy with itself."""
    world = World(pool("cpu", 1)).up().fast()
    for _ in range(3):
        world.job()
    world.notify()
    world.wait(1.2 * RECALL_AFTER_S)
    assert len(world.took(cmd.Recall)) == 1
    world.recalled(0)
    world.step(inp.Tick())
    assert not world.took(cmd.Recall)
    assert world.machine.next_deadline_s() > world.now_s
    for _ in range(3):
        world.done(0)
    assert len(world.settled) == 19


def test_another_slots_success_does_not_cancel_a_retry() -> None:
    """A slot whose child failed gets another, also if the next one elsewhere starts."""
    world = World(pool("cpu", 2)).up()
    world.job()
    world.notify()
    world.deaf_forks = True
    world.died(0, signal=signal.SIGSEGV)
    world.died(1, signal=signal.SIGKILL)
    world.deaf_forks = False
    world.step(inp.ChildForked(0))
    world.step(inp.FramesArrived(0, [Ready(20 * MIB)]))
    world.wait(1.0)
    assert [slot.state for slot in world.machine.slots] == [SlotState.IDLE] * 2


def test_a_child_is_replaced_after_its_share_of_jobs() -> None:
    """Recycle = 1 gives every job a fresh child, and a spare waits for the next."""
    world = World(pool("cpu", 1, recycle_jobs=1)).up()
    assert len(world.took(cmd.Fork)) == 2
    world.job()
    world.job()
    world.notify()
    assert [len(s.queue) for s in world.machine.slots] == [1, 0]
    world.done(0)
    assert len(world.took(cmd.Fork)) == 1
    assert sum(len(s.queue) for s in world.machine.slots) == 1
    assert [len(world.sent.get(slot, [])) for slot in (0, 1)] in ([2, 0], [1, 1])
    assert len({s.child for s in world.machine.slots}) == 2


def test_a_child_that_grew_is_replaced() -> None:
    """Memory that stays after a job leads to a fresh child."""
    world = World(pool("cpu", 1, recycle_growth_bytes=10 * MIB)).up()
    world.took(cmd.Fork)
    world.job()
    world.notify()
    world.done(0, rss_bytes=31 * MIB)
    assert len(world.took(cmd.Fork)) == 1


def test_cancel_kills_the_running_and_hands_back_the_waiting() -> None:
    """A canceled job that runs is killed, its outcome canceled."""
    world = World(pool("cpu", 1)).up()
    job = world.job()
    world.notify()
    world.step(inp.CancelAsked((job.token,)))
    world.wait(0.01)
    world.died(0, signal=signal.SIGKILL)
    assert [s.state for s in world.settled] == [JobState.CANCELED]


def test_a_child_that_cannot_start_blames_no_job() -> None:
    """Starts that fail are tried again, ever more rarely, and charged to no job."""
    world = World(pool("cpu", 1))
    world.deaf_forks = True
    world.up()
    world.step(inp.ChildForked(0))
    world.step(inp.FramesArrived(0, [StartFailed("a hook raised", "")]))
    world.died(0, code=1)
    assert any(isinstance(e, Alarm) and "a hook raised" in e.text for e in world.said)
    assert len(world.took(cmd.Fork)) == 1
    world.wait(0.2)
    assert len(world.took(cmd.Fork)) == 1
    assert world.settled == []


def test_an_impossible_event_is_reported_as_a_bug_of_the_slot() -> None:
    """An event that a state must not meet is reported as a bug, by name."""
    world = World().up()
    with pytest.raises(JobpoolBug, match="cpu/0"):
        world.step(inp.ForkRefused(0, "late"))


def test_a_job_too_long_to_send_is_dead_and_blocks_no_other() -> None:
    """A payload too long for a frame ends its own job only."""
    world = World(pool("cpu", 1)).up()
    world.job(payload=b"x" * (13 * MIB))
    small = world.job()
    world.notify()
    assert [s.state for s in world.settled] == [JobState.DEAD]
    assert [frame.id for frame in world.sent[0]] == [small.id]
