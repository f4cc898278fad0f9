"""What is sent ahead, and how long no child needs an answer, without processes."""

from __future__ import annotations

import pytest

from jobpool.sandbox.protocol.messages import Ask
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.attempts.deadlines import RECALL_AFTER_S
from jobpool.supervisor.machine.dispatch.prefetch import (
    ATTEMPT_LEAST_S,
    ENOUGH,
    HEAVY_MAX,
    LIGHT_BYTES,
    patience_s,
)
from jobpool.supervisor.machine.state.durations import AHEAD_MAX
from support.machine.world import World, done_of, pool


def hasty(*, slots: int = 1, jobs: int = 200) -> World:
    """Return a world whose slots have all been sent fast jobs ahead."""
    world = World(pool("cpu", slots), pool("io", 1)).up()
    for _ in range(16):
        world.job()
        world.notify()
        world.done(0, duration_s=0.0001)
    for _ in range(jobs):
        world.job()
    world.notify()
    return world


def patience(world: World) -> float:
    """Return for how long no child of this world needs an answer."""
    return patience_s(world.machine.pools.values())


def test_children_with_enough_to_do_need_no_answer() -> None:
    """As long as the child with the least has work, ends may gather unread."""
    world = hasty(slots=2)
    assert patience(world) == pytest.approx(AHEAD_MAX * ATTEMPT_LEAST_S)


def test_the_child_with_the_least_to_do_decides() -> None:
    """It would be the first to run out of jobs."""
    world = hasty(slots=2, jobs=2 + 2 * AHEAD_MAX)
    queue = list(world.machine.slots[1].queue)
    world.step(inp.FramesArrived(1, [done_of(job) for job in queue[:5]]))
    behind = AHEAD_MAX - 5
    assert behind > ENOUGH
    assert patience(world) == pytest.approx(behind * ATTEMPT_LEAST_S)


def test_a_child_that_runs_out_soon_is_answered_at_once() -> None:
    """The last few jobs of a queue leave no time to wait."""
    assert patience(hasty(jobs=ENOUGH)) == 0.0


def test_a_handler_that_waits_for_an_answer_is_not_delayed() -> None:
    """A handler that enqueues stands still until it has its answer."""
    world = hasty()
    token = world.machine.slots[0].queue[0].lease.token
    world.step(inp.FramesArrived(0, [Ask(1, token, [])]))
    assert patience(world) == 0.0


def test_an_idle_slot_of_a_busy_pool_may_have_a_job_soon() -> None:
    """What its pool has requested may arrive; in another pool nothing is due."""
    world = hasty(slots=2, jobs=2 + 2 * AHEAD_MAX)
    queue = list(world.machine.slots[1].queue)
    world.step(inp.FramesArrived(1, [done_of(job) for job in queue]))
    assert not world.machine.slots[1].queue
    assert patience(world) == 0.0


def test_a_dying_child_is_handled_at_once() -> None:
    """Ends do not gather while a child is being killed or forked."""
    world = hasty(slots=2)
    token = world.machine.slots[0].queue[0].lease.token
    world.step(inp.CancelAsked((token,)))
    assert patience(world) == 0.0


def test_with_idle_pools_nothing_gathers() -> None:
    """Where nothing runs, the first event is seen first."""
    assert patience(World(pool("cpu", 2), pool("io", 1)).up()) == 0.0


@pytest.mark.parametrize(
    ("size", "ahead"), [(LIGHT_BYTES, AHEAD_MAX), (LIGHT_BYTES + 1, HEAVY_MAX)]
)
def test_of_jobs_with_large_arguments_fewer_wait_in_a_child(
    size: int, ahead: int
) -> None:
    """They would wait for room in its socket, and the supervisor for them."""
    world = hasty(jobs=0)
    for _ in range(200):
        world.job(payload=b"x" * size)
    world.notify()
    assert len(world.machine.slots[0].queue) == 1 + ahead


def test_a_job_that_waits_long_in_a_child_is_recalled_even_if_others_are_quick() -> (
    None
):
    """Sixty-four of a tenth of a second each would wait for six seconds."""
    world = hasty()
    slot = world.machine.slots[0]
    for _ in range(3):
        world.wait(RECALL_AFTER_S * 0.3)
        world.done(0, duration_s=RECALL_AFTER_S * 0.3)
        assert cmd.Recall(0, slot.seq) not in world.commands
    world.wait(RECALL_AFTER_S * 0.2)
    assert cmd.Recall(0, slot.seq) in world.commands


def test_a_job_sent_just_now_is_not_recalled_for_the_wait_of_the_first() -> None:
    """Its own waiting time counts.

    Otherwise jobs would travel there and back in vain.
    """
    world = hasty(jobs=2)
    slot = world.machine.slots[0]
    world.wait(RECALL_AFTER_S * 0.9)
    world.done(0, duration_s=0.0001)
    world.job()
    world.notify()
    assert len(slot.queue) == 2
    world.wait(RECALL_AFTER_S * 0.5)
    assert cmd.Recall(0, slot.seq) not in world.commands
    world.wait(RECALL_AFTER_S * 0.6)
    assert cmd.Recall(0, slot.seq) in world.commands


def sent_again(world: World, canceled: set[int]) -> list[int]:
    """Return which of these jobs a child was sent once more."""
    return [
        one.id for sent in world.sent.values() for one in sent if one.id in canceled
    ]


def test_jobs_canceled_with_the_running_one_do_not_begin() -> None:
    """The kill takes back what waits behind it, and it is not sent on."""
    world = hasty(slots=2, jobs=8)
    queue = list(world.machine.slots[0].queue)
    world.sent.clear()
    world.step(inp.CancelAsked(tuple(job.lease.token for job in queue)))
    world.recalled(0, queue[1:])
    canceled = {job.lease.id for job in queue[1:]}
    assert sent_again(world, canceled) == []
    assert canceled <= {one.id for one in world.settled}


def test_a_canceled_job_does_not_begin_after_its_childs_death() -> None:
    """The child dies before it can be asked to give the job back."""
    world = hasty(slots=2, jobs=8)
    queue = list(world.machine.slots[0].queue)
    canceled = queue[1].lease
    world.sent.clear()
    world.step(inp.CancelAsked((canceled.token,)))
    world.died(0, signal=11, never_begun=tuple(job.seq for job in queue[1:]))
    assert sent_again(world, {canceled.id}) == []
    assert canceled.id in {one.id for one in world.settled}
    assert world.machine._step.canceled == set()
