"""The supervisor's core: how attempts and children end, and which job is to blame."""

from __future__ import annotations

import signal

import msgspec
import pytest

from jobpool.core.application.step_results import WantedResults
from jobpool.core.config.settings import SandboxLevel
from jobpool.core.events.event import Level
from jobpool.core.events.jobs import JobQuarantined
from jobpool.core.events.supervisor import Alarm
from jobpool.core.jobs.job import JobState
from jobpool.core.jobs.memory_trail import Trail, trail_of
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.limits import PoolLimits
from jobpool.core.rules.policy import Policy
from jobpool.sandbox.protocol.messages import Answer, Ask, Beat, Raised
from jobpool.sandbox.protocol.verdict import Exit
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.attempts.deadlines import RECALL_AFTER_S
from jobpool.supervisor.machine.attempts.idle import RETIRE_LATE_S
from jobpool.supervisor.machine.state.slot import SlotState
from support.machine.world import MIB, World, pool


def test_one_death_is_charged_to_one_job() -> None:
    """Of the jobs sent to a child that dies, only the one that had begun is charged."""
    world = World(pool("cpu", 1)).up().fast()
    jobs = [world.job() for _ in range(4)]
    world.notify()
    settled = len(world.settled)
    queue = list(world.machine.slots[0].queue)
    world.died(
        0, signal=signal.SIGSEGV, never_begun=tuple(job.seq for job in queue[1:])
    )
    blamed = [s for s in world.settled[settled:] if s.outcome is not None]
    assert [(s.id, s.outcome) for s in blamed] == [(jobs[0].id, Outcome.CRASHED)]
    again = [job.lease.id for job in world.machine.slots[0].queue]
    assert again == [job.id for job in jobs[1:]]


TRAIL = Trail(512 * MIB, ((1, 40 * MIB), (900, 500 * MIB)))


@pytest.mark.parametrize("is_its_own", [True, False])
def test_a_death_keeps_the_memory_over_time_of_the_attempt_that_was_watched(
    *, is_its_own: bool
) -> None:
    """Never that of another attempt in the same child."""
    world = World(pool("cpu", 1)).up()
    world.job()
    world.notify()
    seq = world.machine.slots[0].queue[0].seq
    killed = Exit(signal=signal.SIGSEGV)
    watched = seq if is_its_own else seq - 1
    world.step(
        inp.ChildExited(slot=0, exit=killed, trail_seq=watched, memory_trail=TRAIL)
    )
    (settled,) = world.settled
    kept = settled.evidence.memory_trail
    assert trail_of(kept) == (TRAIL if is_its_own else None)


def test_an_attempt_is_of_the_version_that_its_child_was_forked_with() -> None:
    """Also when the application is reloaded while it runs."""
    world = World(pool("cpu", 1)).up()
    world.job()
    world.job()
    world.notify()
    newer = msgspec.structs.replace(world.report, version="v2")
    world.step(inp.ZygoteLoaded("cpu", newer, reloading=True))
    world.died(0, signal=signal.SIGSEGV)
    world.died(0, signal=signal.SIGSEGV)
    versions = [s.app_version for s in world.settled if s.outcome]
    assert versions == ["v1", "v2"]


def test_a_repeated_end_does_not_crash_another_job() -> None:
    """A report left over from an earlier handler is not the next one's crash."""
    world = World(pool("cpu", 1)).up().fast()
    first, second = world.job(), world.job()
    world.notify()
    seq = world.machine.slots[0].queue[0].seq
    settled = len(world.settled)
    world.done(0)
    world.done(0, seq=seq, token=first.token)
    assert world.took(cmd.Kill)
    world.died(0, signal=signal.SIGKILL)
    ended = {s.id: s.outcome for s in world.settled[settled:]}
    assert ended == {first.id: Outcome.SUCCEEDED, second.id: Outcome.INTERRUPTED}


def test_a_kill_by_the_zygote_at_the_fence_is_no_crash() -> None:
    """A supervisor that was stopped, or asleep, may see the death first."""
    world = World(pool("cpu", 1)).up()
    world.job()
    world.notify()
    killed = Exit(signal=signal.SIGKILL)
    world.step(inp.ChildExited(slot=0, exit=killed, fenced=True))
    assert [s.outcome for s in world.settled] == [Outcome.INTERRUPTED]


def test_a_child_without_a_job_may_die_at_the_fence() -> None:
    """A child that did not retire, and was killed for that: no job is to blame."""
    world = World(pool("cpu", 1)).up()
    world.deaf_children = True
    world.step(inp.Drain("SIGTERM"))
    world.wait(RETIRE_LATE_S + 1)
    assert world.took(cmd.Kill)
    killed = Exit(signal=signal.SIGKILL)
    world.step(inp.ChildExited(slot=0, exit=killed, fenced=True))
    assert world.machine.slots[0].state is SlotState.EMPTY
    assert world.settled == []


def test_a_child_that_begins_nothing_is_replaced() -> None:
    """It may be stopped: jobs are not sent to it and taken back forever."""
    world = World(pool("cpu", 1)).up().fast()
    for _ in range(3):
        world.job()
    world.notify()
    settled = len(world.settled)
    for _ in range(30):
        world.wait(1.2 * RECALL_AFTER_S)
        if not world.took(cmd.Recall):
            break
        slot = world.machine.slots[0]
        world.recalled(0, slot.queue)
    assert world.took(cmd.Kill)
    assert {s.outcome for s in world.settled[settled:]} <= {None}


def test_no_job_is_blamed_between_attempts() -> None:
    """A child that dies before it took the next ticket costs no job anything."""
    world = World(pool("cpu", 1)).up()
    job = world.job()
    world.notify()
    seq = world.machine.slots[0].queue[0].seq
    world.died(0, signal=signal.SIGKILL, never_begun=(seq,))
    assert world.settled == []
    assert [j.lease.id for j in world.machine.slots[0].queue] == [job.id]


def test_a_timeout_dumps_then_kills_and_settles_only_after_the_death() -> None:
    """Stacks are requested just before the hard limit, which kills at once."""
    world = World().up()
    world.job(timeout_s=5.0)
    world.notify()
    world.wait(4.89)
    assert not world.took(cmd.Dump)
    world.wait(0.02)
    assert len(world.took(cmd.Dump)) == 1
    assert not world.took(cmd.Kill)
    world.wait(0.09)
    assert world.took(cmd.Kill)
    assert not world.took(cmd.Dump)
    assert world.settled == []
    world.died(0, signal=signal.SIGKILL)
    assert [s.outcome for s in world.settled] == [Outcome.TIMED_OUT]


def test_a_memory_kill_is_recorded_with_its_figures() -> None:
    """A child over its memory limit is killed, and the figures are in the reason."""
    world = World().up()
    world.job()
    world.notify()
    seq = world.machine.slots[0].queue[0].seq
    world.step(inp.OverMemory(0, seq - 1, 600 * MIB))
    assert not world.took(cmd.Dump)
    world.step(inp.OverMemory(0, seq, 600 * MIB))
    world.wait(0.01)
    assert world.took(cmd.Kill)
    world.died(0, signal=signal.SIGKILL)
    (settlement,) = world.settled
    assert settlement.outcome is Outcome.OUT_OF_MEMORY
    assert "600MiB" in (settlement.evidence.reason or "")


def test_a_result_beats_a_kill() -> None:
    """A complete result that crossed our kill on the way is accepted."""
    world = World().up()
    world.job(timeout_s=5.0)
    world.notify()
    world.wait(5.0)
    world.done(0, result=b"1")
    world.wait(0.01)
    world.died(0, signal=signal.SIGKILL)
    assert [s.state for s in world.settled] == [JobState.SUCCEEDED]


def test_silence_is_stalled_and_heartbeats_are_not() -> None:
    """Only a handler that is silent for its heartbeat timeout is killed for it."""
    limits = PoolLimits(timeout_s=60, memory_bytes=512 * MIB, heartbeat_timeout_s=2.0)
    world = World(pool(limits=limits)).up()
    job = world.job()
    world.notify()
    for _ in range(5):
        world.wait(1.5)
        world.step(inp.FramesArrived(0, [Beat(job.token, b"1", None)]))
    assert not world.took(cmd.Dump)
    world.wait(2.1)
    world.died(0, signal=signal.SIGKILL)
    assert [s.outcome for s in world.settled] == [Outcome.STALLED]


def test_the_last_checkpoint_is_written_before_an_unsuccessful_end() -> None:
    """What the next attempt needs is recorded before this one is settled."""
    world = World().up()
    job = world.job()
    world.notify()
    world.step(inp.FramesArrived(0, [Beat(job.token, None, b"1")]))
    world.step(inp.FramesArrived(0, [Beat(job.token, None, b"2")]))
    world.died(0, signal=signal.SIGSEGV)
    order = [
        c.progress.checkpoint if isinstance(c, cmd.Record) else "settled"
        for c in world.commands
        if isinstance(c, (cmd.Record, cmd.Settle))
    ]
    assert order[-2:] == [b"2", "settled"]


def test_a_false_end_is_a_protocol_violation() -> None:
    """A child that reports another job's end is killed, and its own job is charged."""
    world = World().up()
    world.job()
    world.notify()
    world.done(0, token=999)
    assert world.took(cmd.Kill)
    world.died(0, signal=signal.SIGKILL)
    assert [s.outcome for s in world.settled] == [Outcome.CRASHED]


def test_an_end_with_leftovers_is_settled_after_the_tree_is_gone() -> None:
    """A result whose attempt left processes waits until they are gone."""
    world = World().up()
    world.job()
    world.notify()
    world.done(0, surprise="left 2 processes")
    assert world.settled == []
    world.died(0, signal=signal.SIGKILL)
    assert [s.state for s in world.settled] == [JobState.SUCCEEDED]


def test_a_kill_by_the_hosts_oom_killer_is_charged_to_no_job() -> None:
    """A SIGKILL while the host ran out of memory interrupts.

    Otherwise it is a crash.
    """
    for host_oom, expected in ((True, Outcome.INTERRUPTED), (False, Outcome.CRASHED)):
        world = World().up()
        world.job()
        world.notify()
        world.died(0, signal=signal.SIGKILL, host_oom=host_oom)
        assert [s.outcome for s in world.settled] == [expected]


def test_a_quarantine_is_logged_as_an_error() -> None:
    """The crash that uses up the budget quarantines, with an ERROR event."""
    world = World(policy=Policy(max_crashes=1)).up()
    world.job()
    world.notify()
    world.died(0, signal=signal.SIGSEGV)
    (event,) = [e for e in world.said if isinstance(e, JobQuarantined)]
    assert event.level is Level.ERROR
    assert world.settled[0].state is JobState.QUARANTINED


def test_a_failed_attempt_is_not_a_crash() -> None:
    """An exception spends an attempt, and keeps its child."""
    world = World().up()
    world.took(cmd.Fork)
    world.job()
    world.notify()
    world.done(0, error=Raised(["builtins.ValueError"], "no", "…"))
    assert [s.outcome for s in world.settled] == [Outcome.FAILED]
    assert not world.took(cmd.Fork)


def test_an_idle_childs_death_is_described_in_the_log() -> None:
    """An idle child's death is an alarm that names how it ended."""
    world = World().up()
    world.step(inp.ChildExited(slot=0, exit=Exit(signal=signal.SIGTERM)))
    assert any(isinstance(e, Alarm) and "SIGTERM" in e.text for e in world.said)


def streaming_world() -> tuple[World, list[int]]:
    """Return a world with four fast jobs at one child, and their numbers."""
    world = World(pool("cpu", 1)).up().stream()
    return world, [job.seq for job in world.machine.slots[0].queue]


def ended(world: World, slot: int, place: int) -> None:
    """The child ends the job at a place of its queue while it is being killed."""
    job = world.machine.slots[slot].queue[place]
    world.done(slot, seq=job.seq, token=job.lease.token)


def test_every_end_that_a_dying_child_reports_counts() -> None:
    """Jobs that ended between the decision to kill and the kill are settled so."""
    world, seqs = streaming_world()
    before = len(world.settled)
    world.step(inp.Stop("SIGQUIT"))
    ended(world, 0, 0)
    ended(world, 0, 1)
    world.died(0, signal=signal.SIGKILL, never_begun=(seqs[3],))
    outcomes = [s.outcome for s in world.settled[before:]]
    assert outcomes == [
        Outcome.SUCCEEDED,
        Outcome.SUCCEEDED,
        Outcome.INTERRUPTED,
        None,
    ]


def test_a_kill_is_charged_to_one_attempt() -> None:
    """A job that began behind the one that is killed is interrupted, not blamed."""
    world, seqs = streaming_world()
    before = len(world.settled)
    world.step(inp.OverMemory(0, seqs[0], 600 * MIB))
    ended(world, 0, 0)
    world.died(0, signal=signal.SIGKILL, never_begun=tuple(seqs[2:]))
    assert [s.outcome for s in world.settled[before:]] == [
        Outcome.SUCCEEDED,
        Outcome.INTERRUPTED,
    ]


def test_a_kill_recalls_the_jobs_behind() -> None:
    """Once a kill is decided, the child must begin nothing more."""
    world, seqs = streaming_world()
    world.step(inp.OverMemory(0, seqs[0], 600 * MIB))
    assert [c.slot for c in world.took(cmd.Recall)] == [0]


def test_a_canceled_job_that_is_recalled_is_not_sent_again() -> None:
    """It goes back to the store, which knows that it is canceled."""
    world, _seqs = streaming_world()
    before = len(world.settled)
    behind = world.machine.slots[0].queue[2]
    world.step(inp.CancelAsked((behind.lease.token,)))
    world.recalled(0, list(world.machine.slots[0].queue)[1:])
    assert [s.id for s in world.settled[before:]] == [behind.lease.id]
    left = [job.lease.id for job in world.machine.slots[0].queue]
    assert behind.lease.id not in left


def test_a_handler_reads_jobs_unless_its_pool_is_strict() -> None:
    """Other jobs' results are kept from code in an enclosure."""
    for sandbox in SandboxLevel:
        world = World(pool("cpu", 1, sandbox=sandbox)).up()
        job = world.job()
        world.notify()
        world.step(inp.FramesArrived(0, [Ask(7, job.token, [], 4711)]))
        asked = [ask.reads for ask in world.took(cmd.Enqueue)]
        sent = [one.frame for one in world.took(cmd.Send)]
        if sandbox is not SandboxLevel.STRICT:
            assert (asked, sent) == ([4711], [])
            continue
        (answer,) = sent
        assert isinstance(answer, Answer)
        assert (asked, answer.ask, answer.error_class) == ([], 7, "UsageError")
        world.step(inp.FramesArrived(0, [Ask(8, job.token, [])]))
        assert [ask.reads for ask in world.took(cmd.Enqueue)] == [None]


def test_a_handler_reads_what_those_before_it_returned_in_any_pool() -> None:
    """They are its arguments; the store knows by its own job which they are."""
    for sandbox in SandboxLevel:
        world = World(pool("cpu", 1, sandbox=sandbox)).up()
        job = world.job()
        world.notify()
        wanted = WantedResults((0, 2), 17)
        world.step(inp.FramesArrived(0, [Ask(7, job.token, [], None, wanted)]))
        (asked,) = world.took(cmd.Enqueue)
        assert (asked.job_id, asked.results, asked.reads) == (job.id, wanted, None)


def test_a_flood_of_requests_is_a_protocol_violation() -> None:
    """A child of ours asks one thing at a time; a child that floods is ended."""
    world = World(pool("cpu", 1)).up()
    job = world.job()
    world.notify()
    for ask in range(8):
        world.step(inp.FramesArrived(0, [Ask(ask, job.token, [])]))
    assert len(world.took(cmd.Enqueue)) == 8
    world.step(inp.FramesArrived(0, [Ask(9, job.token, [])]))
    assert not world.took(cmd.Enqueue)
    assert world.took(cmd.Kill)
