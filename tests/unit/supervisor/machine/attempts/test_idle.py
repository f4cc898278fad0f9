"""Children that report that they have no job, and those that begin none."""

from __future__ import annotations

import signal

import pytest

from jobpool.core.events.supervisor import Alarm
from jobpool.core.jobs.outcome import Outcome
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.attempts.deadlines import RECALL_AFTER_S
from jobpool.supervisor.machine.state.slot import Assigned, SlotState
from support.machine.world import MIB, World, done_of, pool


def one_done() -> World:
    """Return a world whose only child has finished one job."""
    world = World(pool("cpu", 1)).up()
    world.job()
    world.notify()
    world.done(0)
    world.commands.clear()
    return world


def test_a_job_that_is_not_begun_is_taken_back_and_runs_elsewhere() -> None:
    """A handler that goes on after its own end delays no other job for long."""
    world = World(pool("cpu", 2)).up()
    world.deaf_children = True
    job = world.job()
    world.notify()
    world.wait(0.6)
    (recall,) = world.took(cmd.Recall)
    assert isinstance(recall, cmd.Recall)
    slot = world.machine.slots[recall.slot]
    world.recalled(recall.slot, slot.queue)
    assert world.settled == []
    world.deaf_children = False
    world.wait(0.6)
    busy = [s.number for s in world.machine.slots if s.queue]
    assert len(busy) == 1
    world.done(busy[0])
    assert [(s.id, s.outcome) for s in world.settled] == [(job.id, Outcome.SUCCEEDED)]


def test_a_child_that_twice_begins_nothing_is_killed() -> None:
    """No job is running, so no job is charged."""
    world = one_done()
    world.deaf_children = world.takes_back = True
    job = world.job()
    world.notify()
    for _ in range(2):
        world.wait(0.6)
        world.recalled(0, world.machine.slots[0].queue)
    assert world.took(cmd.Kill)
    world.deaf_children = False
    world.died(0, signal=signal.SIGKILL)
    world.notify()
    world.done(0)
    assert {s.outcome for s in world.settled if s.id == job.id} == {
        None,
        Outcome.SUCCEEDED,
    }


def test_a_job_that_has_begun_is_checked_once() -> None:
    """A ticket that is gone is proof: no further recall, however long it runs."""
    world = one_done()
    world.job()
    world.notify()
    world.wait(5.0)
    assert len(world.took(cmd.Recall)) == 1


def test_what_a_child_did_not_begin_goes_before_what_came_since() -> None:
    """Also to that child, if it can begin something now."""
    world = World(pool("cpu", 1)).up().fast()
    world.deaf_children = True
    first, second = world.job(), world.job()
    world.notify()
    world.wait(RECALL_AFTER_S * 1.5)
    later = world.job()
    world.notify()
    slot = world.machine.slots[0]
    assert [job.lease.id for job in slot.queue] == [first.id, second.id]
    assert [job.lease.id for job in world.machine.pools["cpu"].backlog] == [later.id]
    world.sent.clear()
    world.recalled(0, slot.queue)
    sent = [frame.id for frame in world.sent[0]]
    assert sent == [first.id, second.id, later.id][: len(sent)]


def test_a_recall_proves_nothing_of_what_was_sent_after_it() -> None:
    """A job that replaced the one that was checked is checked, too."""
    world = one_done()
    world.deaf_children = True
    world.job()
    world.notify()
    world.wait(0.6)
    (recall,) = world.took(cmd.Recall)
    assert isinstance(recall, cmd.Recall)
    world.job()
    world.done(0)
    assert len(world.machine.slots[0].queue) == 1
    world.step(inp.Recalled(0, (), recall.last_seq))
    world.wait(0.6)
    assert len(world.took(cmd.Recall)) == 1


def outcomes(world: World) -> list[Outcome | None]:
    """Return how the attempts ended that have ended since, in order."""
    return [settlement.outcome for settlement in world.settled]


def test_only_the_job_that_took_others_tickets_is_charged_for_its_death() -> None:
    """A child begins nothing before it has reported: later jobs left no mark."""
    world = World(pool("cpu", 1)).up().stream()
    tokens = [job.lease.token for job in world.machine.slots[0].queue]
    world.died(0, signal=signal.SIGKILL, marked=frozenset(tokens[:1]))
    assert outcomes(world) == [Outcome.CRASHED]
    assert len(world.machine.slots[0].queue) == 3


@pytest.mark.parametrize(
    ("marked", "first"),
    [(None, Outcome.INTERRUPTED), (frozenset(range(100)), Outcome.CRASHED)],
)
def test_damaged_and_forged_marks_cost_others_an_interruption_at_most(
    marked: frozenset[int] | None, first: Outcome
) -> None:
    """Whether they had begun cannot be told then; only the first job is charged."""
    world = World(pool("cpu", 1)).up().stream()
    world.died(0, signal=signal.SIGKILL, marked=marked)
    assert outcomes(world) == [first, *[Outcome.INTERRUPTED] * 3]
    assert not any(s.charge.crash or s.charge.failure for s in world.settled[1:])


def unmarked() -> tuple[World, Assigned]:
    """Return a world whose child runs, it seems, a second job that has no mark."""
    world = one_done()
    world.marked = set()
    world.job()
    world.notify()
    world.settled.clear()
    return world, world.machine.slots[0].queue[0]


def test_a_job_without_a_mark_is_not_charged_for_a_death() -> None:
    """An earlier job in its child may have taken its ticket and died.

    Or its child was killed before it could mark it: nobody says that the earlier one
    was killed as well.
    """
    world, _job = unmarked()
    world.died(0, signal=signal.SIGKILL, marked=frozenset())
    assert outcomes(world) == [Outcome.INTERRUPTED]
    reason = world.settled[0].evidence.reason
    assert reason == "its child ended, and no mark says that it had begun"


def test_a_job_without_a_mark_is_not_charged_for_a_limit() -> None:
    """Memory that another job took under its name is not its own."""
    world, job = unmarked()
    world.step(inp.OverMemory(0, job.seq, 600 * MIB))
    world.died(0, signal=signal.SIGKILL, marked=frozenset())
    assert outcomes(world) == [Outcome.INTERRUPTED]


def test_a_canceled_job_is_canceled_with_or_without_a_mark() -> None:
    """It costs nothing anyway."""
    world, job = unmarked()
    world.step(inp.CancelAsked((job.lease.token,)))
    world.died(0, signal=signal.SIGKILL, marked=frozenset())
    assert outcomes(world) == [Outcome.CANCELED]


def test_the_first_job_of_a_child_is_charged_whatever_happened_to_its_mark() -> None:
    """No other job was there to take its ticket."""
    world = World(pool("cpu", 1)).up()
    world.job()
    world.notify()
    world.died(0, signal=signal.SIGKILL, marked=None)
    assert outcomes(world) == [Outcome.CRASHED]


def test_a_job_runs_on_while_all_marks_are_wiped_out() -> None:
    """A handler of another slot can do so: the previous job's mark is missing, too."""
    world, _job = unmarked()
    world.wait(5.0)
    assert not world.took(cmd.Kill)


def test_the_job_running_at_a_kill_is_known_by_its_mark() -> None:
    """The first had finished before the death, the second had begun.

    Only that is interrupted.
    """
    world = World(pool("cpu", 1)).up().stream()
    queue = list(world.machine.slots[0].queue)
    world.step(inp.OverMemory(0, queue[0].seq, 600 * MIB))
    world.step(inp.FramesArrived(0, [done_of(queue[0])]))
    tokens = frozenset(job.lease.token for job in queue[:2])
    world.died(0, signal=signal.SIGKILL, marked=tokens)
    assert outcomes(world) == [Outcome.SUCCEEDED, Outcome.INTERRUPTED]
    assert len(world.machine.slots[0].queue) == 2


def test_a_last_report_counts_only_for_the_running_job() -> None:
    """A handler that is being killed cannot report the end of jobs behind it."""
    world = World(pool("cpu", 1)).up().stream()
    queue = list(world.machine.slots[0].queue)
    world.step(inp.OverMemory(0, queue[0].seq, 600 * MIB))
    world.step(inp.FramesArrived(0, [done_of(queue[1])]))
    tokens = frozenset(job.lease.token for job in queue)
    world.died(0, signal=signal.SIGKILL, marked=tokens)
    assert outcomes(world) == [Outcome.OUT_OF_MEMORY, *[Outcome.INTERRUPTED] * 3]


def test_an_end_out_of_turn_is_charged_to_no_job() -> None:
    """Another job has taken the ticket of the one that is said to run."""
    world = World(pool("cpu", 1)).up().stream()
    queue = list(world.machine.slots[0].queue)
    world.step(inp.FramesArrived(0, [done_of(queue[0]), done_of(queue[2])]))
    assert world.took(cmd.Kill)
    marked = frozenset({queue[0].lease.token, queue[2].lease.token})
    world.died(0, signal=signal.SIGKILL, marked=marked)
    assert outcomes(world) == [
        Outcome.SUCCEEDED,
        Outcome.INTERRUPTED,
        Outcome.INTERRUPTED,
    ]
    assert not any(s.charge.crash or s.charge.failure for s in world.settled)


def test_a_job_robbed_of_its_ticket_is_ended_after_a_second_and_not_charged() -> None:
    """No ticket and no mark at two checks.

    Its child is ended, and no job is charged.
    """
    world = one_done()
    world.marked = {world.settled[0].token}
    job = world.job()
    world.notify()
    world.wait(0.7)
    assert not world.took(cmd.Kill), "it may be about to write its mark"
    world.wait(0.7)
    assert world.took(cmd.Kill)
    world.settled.clear()
    world.died(0, signal=signal.SIGKILL, marked=frozenset())
    assert [(s.id, s.outcome) for s in world.settled] == [(job.id, Outcome.INTERRUPTED)]


def test_a_job_that_wrote_its_mark_has_begun() -> None:
    """However late the mark came."""
    world = one_done()
    world.marked = {world.settled[0].token}
    job = world.job()
    world.notify()
    world.wait(0.7)
    world.marked.add(job.token)
    world.wait(5.0)
    assert not world.took(cmd.Kill)
    assert len(world.took(cmd.Recall)) == 2


def test_a_child_that_works_while_idle_is_replaced_and_no_job_is_charged() -> None:
    """A handler that goes on after its end is killed; its job stays settled."""
    world = one_done()
    settled = len(world.settled)
    world.step(inp.NotIdle(0, "uses 100% of a processor"))
    assert world.machine.slots[0].state is SlotState.KILLED
    assert world.took(cmd.Kill)
    world.died(0, signal=signal.SIGKILL)
    assert len(world.settled) == settled
    assert world.machine.slots[0].state is SlotState.IDLE
    assert any("should wait for a job" in str(e) for e in world.said)


def test_a_late_report_of_the_watch_does_not_end_a_running_job() -> None:
    """What was seen while idle says nothing about the job that has begun since."""
    world = one_done()
    world.job()
    world.notify()
    world.step(inp.NotIdle(0, f"has {600 * MIB}"))
    assert world.machine.slots[0].state is SlotState.BUSY
    assert not world.took(cmd.Kill)


def test_an_idle_child_with_too_much_memory_is_ended_without_an_alarm() -> None:
    """It has done nothing since its job ended, and that has been settled."""
    world = one_done()
    settled, said = len(world.settled), len(world.said)
    world.step(inp.Overfull(0))
    assert (world.machine.slots[0].state, world.machine.slots[0].child) == (
        SlotState.IDLE,
        2,
    )
    assert not world.took(cmd.Kill)
    assert len(world.settled) == settled
    assert not any(isinstance(event, Alarm) for event in world.said[said:])
