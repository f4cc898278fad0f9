"""The supervisor's core, event by event, in a world without processes."""

from __future__ import annotations

import itertools
import signal

import msgspec
import pytest

from jobpool.core import events as ev
from jobpool.core.job import JobState
from jobpool.core.limits import PoolLimits
from jobpool.core.outcome import Outcome
from jobpool.core.policy import Policy
from jobpool.errors import AppError, ConfigError, JobpoolBug
from jobpool.sandbox.frames import Ask, Beat, Raised, Ready, StartFailed
from jobpool.sandbox.verdict import Exit
from jobpool.supervisor import messages as m
from jobpool.supervisor import watchmessages as wm
from jobpool.supervisor.moments import RECALL_AFTER_S
from jobpool.supervisor.reloading import reload_problem
from jobpool.supervisor.resting import RETIRE_LATE_S
from jobpool.supervisor.slot import ACTIONS, IGNORE, SlotEvent, SlotState
from world import MIB, World, done_of, pool


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
    world.ring()
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
    world.ring()
    io_job = world.job("io")
    world.ring()
    assert [frame.id for frame in world.sent[1]] == [io_job.id]
    assert len(world.queue["cpu"]) == 4


def test_no_more_is_leased_than_can_run() -> None:
    """A pool that is not fast leases one job for each free slot."""
    world = World(pool("cpu", 3)).up()
    for _ in range(10):
        world.job()
    world.ring()
    assert len(world.queue["cpu"]) == 7


def fast_world(slots: int = 1) -> World:
    """Return a world whose kind has proven to be fast."""
    world = World(pool("cpu", slots)).up()
    for _ in range(16):
        world.job()
        world.ring()
        world.done(0)
    assert world.machine.pools["cpu"].tempo.fast
    return world


def test_what_a_step_has_for_a_child_goes_together() -> None:
    """One message to its socket and one to its pipe, however many jobs."""
    world = fast_world()
    world.hold_grants = True
    jobs = [world.job() for _ in range(5)]
    world.ring()
    world.took(m.Assign)
    world.answer_grant()
    (assign,) = world.took(m.Assign)
    assert isinstance(assign, m.Assign)
    assert [frame.id for frame in assign.frames] == [job.id for job in jobs]


def test_the_ends_of_one_read_are_one_step() -> None:
    """Each is accounted, in order, and the slot is idle after the last."""
    world = fast_world()
    for _ in range(5):
        world.job()
    world.ring()
    queue = list(world.machine.slots[0].queue)
    settled = len(world.settled)
    world.step(m.FramesArrived(0, [done_of(job) for job in queue]))
    assert [s.token for s in world.settled[settled:]] == [
        job.lease.token for job in queue
    ]
    assert world.machine.slots[0].state is SlotState.IDLE


def test_of_many_attempts_that_end_at_once_only_the_last_is_watched() -> None:
    """A batch of ends costs one look at the attempt that runs now, at its limits."""
    world = fast_world()
    for _ in range(5):
        world.job()
    world.ring()
    slot = world.machine.slots[0]
    queue = list(slot.queue)
    world.took(wm.Watch)
    world.step(m.FramesArrived(0, [done_of(job) for job in queue[:3]]))
    assert [w.seq for w in world.took(wm.Watch)] == [queue[3].seq]
    assert slot.queue[0].started_s == world.now_s
    assert world.now_s < slot.deadline_s <= world.now_s + RECALL_AFTER_S


def test_an_attempt_is_bounded_before_it_is_sent() -> None:
    """What an idle child is to be held to is set before it can begin."""
    world = World(pool("cpu", 1)).up()
    world.job()
    world.ring()
    kinds = [type(c) for c in world.commands if isinstance(c, wm.Watch | m.Assign)]
    assert kinds == [wm.Watch, m.Assign]


def test_fast_jobs_are_sent_ahead_and_slow_ones_recalled() -> None:
    """Jobs behind one that turns out slow are taken back within 50 ms, uncounted."""
    world = fast_world()
    jobs = [world.job() for _ in range(5)]
    world.ring()
    slot = world.machine.slots[0]
    assert len(slot.queue) == 5
    world.wait(0.06)
    assert [c.slot for c in world.took(m.Recall)] == [0]
    world.recalled(0, list(slot.queue)[1:])
    assert [job.lease.id for job in slot.queue] == [jobs[0].id]
    settled = len(world.settled)
    world.wait(1.0)
    back = world.settled[settled:]
    assert [(s.id, s.state, s.outcome) for s in back] == [
        (job.id, JobState.RUNNABLE, None) for job in jobs[1:]
    ]


def test_a_recall_that_comes_back_empty_is_not_repeated_at_once() -> None:
    """A recall of jobs that have all begun must not keep the core busy with itself."""
    world = fast_world()
    for _ in range(3):
        world.job()
    world.ring()
    world.wait(0.06)
    assert len(world.took(m.Recall)) == 1
    world.recalled(0)
    world.step(m.Tick())
    assert not world.took(m.Recall)
    assert world.machine.next_deadline_s() > world.now_s
    for _ in range(3):
        world.done(0)
    assert len(world.settled) == 19


def test_one_death_one_job() -> None:
    """Of the jobs sent to a child that dies, only the one that had begun pays."""
    world = fast_world()
    jobs = [world.job() for _ in range(4)]
    world.ring()
    settled = len(world.settled)
    queue = list(world.machine.slots[0].queue)
    world.died(
        0, signal=signal.SIGSEGV, never_begun=tuple(job.seq for job in queue[1:])
    )
    blamed = [s for s in world.settled[settled:] if s.outcome is not None]
    assert [(s.id, s.outcome) for s in blamed] == [(jobs[0].id, Outcome.CRASHED)]
    again = [job.lease.id for job in world.machine.slots[0].queue]
    assert again == [job.id for job in jobs[1:]]


def test_a_repeated_end_is_nobody_elses_crash() -> None:
    """What an earlier handler left behind says is not the next one's crash."""
    world = fast_world()
    first, second = world.job(), world.job()
    world.ring()
    seq = world.machine.slots[0].queue[0].seq
    settled = len(world.settled)
    world.done(0)
    world.done(0, seq=seq, token=first.token)
    assert world.took(m.Kill)
    world.died(0, signal=signal.SIGKILL)
    ended = {s.id: s.outcome for s in world.settled[settled:]}
    assert ended == {first.id: Outcome.SUCCEEDED, second.id: Outcome.INTERRUPTED}


def test_what_a_zygote_ends_at_the_fence_is_no_crash() -> None:
    """A supervisor that was stopped, or asleep, may hear of the death first."""
    world = World(pool("cpu", 1)).up()
    world.job()
    world.ring()
    killed = Exit(signal=signal.SIGKILL)
    world.step(m.ChildExited(slot=0, exit=killed, fenced=True))
    assert [s.outcome for s in world.settled] == [Outcome.INTERRUPTED]


def test_a_child_without_a_job_may_die_at_the_fence() -> None:
    """One that did not retire, and was killed for that: nobody is to blame."""
    world = World(pool("cpu", 1)).up()
    world.deaf_children = True
    world.step(m.Drain("SIGTERM"))
    world.wait(RETIRE_LATE_S + 1)
    assert world.took(m.Kill)
    killed = Exit(signal=signal.SIGKILL)
    world.step(m.ChildExited(slot=0, exit=killed, fenced=True))
    assert world.machine.slots[0].state is SlotState.EMPTY
    assert world.settled == []


def test_a_child_that_begins_nothing_is_replaced() -> None:
    """Somebody has stopped it: jobs are not sent to it and taken back for ever."""
    world = fast_world()
    for _ in range(3):
        world.job()
    world.ring()
    settled = len(world.settled)
    for _ in range(30):
        world.wait(0.06)
        if not world.took(m.Recall):
            break
        slot = world.machine.slots[0]
        world.recalled(0, slot.queue)
    assert world.took(m.Kill)
    assert {s.outcome for s in world.settled[settled:]} <= {None}


def test_another_slots_success_does_not_cancel_a_retry() -> None:
    """A slot whose child failed gets another, also if the next one elsewhere starts."""
    world = World(pool("cpu", 2)).up()
    world.job()
    world.ring()
    world.deaf_forks = True
    world.died(0, signal=signal.SIGSEGV)
    world.died(1, signal=signal.SIGKILL)
    world.deaf_forks = False
    world.step(m.ChildForked(0))
    world.step(m.FramesArrived(0, [Ready(20 * MIB)]))
    world.wait(1.0)
    assert [slot.state for slot in world.machine.slots] == [SlotState.IDLE] * 2


def test_nobody_is_blamed_between_attempts() -> None:
    """A child that dies before it took the next ticket costs no job anything."""
    world = World(pool("cpu", 1)).up()
    job = world.job()
    world.ring()
    seq = world.machine.slots[0].queue[0].seq
    world.died(0, signal=signal.SIGKILL, never_begun=(seq,))
    assert world.settled == []
    assert [j.lease.id for j in world.machine.slots[0].queue] == [job.id]


def test_a_timeout_dumps_then_kills_and_settles_only_after_the_death() -> None:
    """Stacks are asked for just before the hard limit, which kills at once."""
    world = World().up()
    world.job(timeout_s=5.0)
    world.ring()
    world.wait(4.89)
    assert not world.took(m.Dump)
    world.wait(0.02)
    assert len(world.took(m.Dump)) == 1
    assert not world.took(m.Kill)
    world.wait(0.09)
    assert world.took(m.Kill)
    assert not world.took(m.Dump)
    assert world.settled == []
    world.died(0, signal=signal.SIGKILL)
    assert [s.outcome for s in world.settled] == [Outcome.TIMED_OUT]


def test_memory_is_confirmed_by_the_outcome() -> None:
    """A child over its memory limit is killed, and the figures are in the reason."""
    world = World().up()
    world.job()
    world.ring()
    seq = world.machine.slots[0].queue[0].seq
    world.step(wm.OverMemory(0, seq - 1, 600 * MIB))
    assert not world.took(m.Dump)
    world.step(wm.OverMemory(0, seq, 600 * MIB))
    world.wait(0.01)
    assert world.took(m.Kill)
    world.died(0, signal=signal.SIGKILL)
    (settlement,) = world.settled
    assert settlement.outcome is Outcome.OUT_OF_MEMORY
    assert "600MiB" in (settlement.evidence.reason or "")


def test_a_last_word_beats_the_kill() -> None:
    """A complete result that crossed our kill on the way is accepted."""
    world = World().up()
    world.job(timeout_s=5.0)
    world.ring()
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
    world.ring()
    for _ in range(5):
        world.wait(1.5)
        world.step(m.FramesArrived(0, [Beat(job.token, b"1", None)]))
    assert not world.took(m.Dump)
    world.wait(2.1)
    world.died(0, signal=signal.SIGKILL)
    assert [s.outcome for s in world.settled] == [Outcome.STALLED]


def test_the_last_checkpoint_is_written_before_a_bad_end() -> None:
    """What the next attempt needs is recorded before this one is settled."""
    world = World().up()
    job = world.job()
    world.ring()
    world.step(m.FramesArrived(0, [Beat(job.token, None, b"1")]))
    world.step(m.FramesArrived(0, [Beat(job.token, None, b"2")]))
    world.died(0, signal=signal.SIGSEGV)
    order = [
        c.progress.checkpoint if isinstance(c, m.Record) else "settled"
        for c in world.commands
        if isinstance(c, (m.Record, m.Settle))
    ]
    assert order[-2:] == [b"2", "settled"]


def test_a_false_end_is_a_protocol_breach() -> None:
    """A child that reports another job's end is killed, and its own job pays."""
    world = World().up()
    world.job()
    world.ring()
    world.done(0, token=999)
    assert world.took(m.Kill)
    world.died(0, signal=signal.SIGKILL)
    assert [s.outcome for s in world.settled] == [Outcome.CRASHED]


def test_a_dirty_end_is_settled_after_the_tree_is_gone() -> None:
    """A result whose attempt left processes waits until they are gone."""
    world = World().up()
    world.job()
    world.ring()
    world.done(0, surprise="left 2 processes")
    assert world.settled == []
    world.died(0, signal=signal.SIGKILL)
    assert [s.state for s in world.settled] == [JobState.SUCCEEDED]


def test_a_child_is_replaced_after_its_share_of_jobs() -> None:
    """Recycle = 1 gives every job a fresh child, and a spare waits for the next."""
    world = World(pool("cpu", 1, recycle_jobs=1)).up()
    assert len(world.took(m.Fork)) == 2
    world.job()
    world.job()
    world.ring()
    assert [len(s.queue) for s in world.machine.slots] == [1, 0]
    world.done(0)
    assert len(world.took(m.Fork)) == 1
    assert sum(len(s.queue) for s in world.machine.slots) == 1
    assert [len(world.sent.get(slot, [])) for slot in (0, 1)] in ([2, 0], [1, 1])
    assert len({s.child for s in world.machine.slots}) == 2


def test_a_child_that_grew_is_replaced() -> None:
    """Memory that stays after a job makes room for a fresh child."""
    world = World(pool("cpu", 1, recycle_growth_bytes=10 * MIB)).up()
    world.took(m.Fork)
    world.job()
    world.ring()
    world.done(0, rss_bytes=31 * MIB)
    assert len(world.took(m.Fork)) == 1


def test_drain_lets_running_jobs_end_and_leases_nothing() -> None:
    """After a drain has begun nothing new starts, and what runs is settled."""
    world = World(pool("cpu", 1)).up()
    world.job()
    world.ring()
    world.job()
    world.step(m.Drain("SIGTERM"))
    world.ring()
    assert world.finish is None
    world.done(0)
    assert world.finish is not None
    assert world.finish.exit_code == 0
    assert len(world.queue["cpu"]) == 1


def test_the_drain_window_ends() -> None:
    """What still runs when the window is over is interrupted, without penalty."""
    world = World(pool("cpu", 1, drain_s=3.0)).up()
    world.job()
    world.ring()
    world.step(m.Drain("SIGTERM"))
    world.wait(2.9)
    assert not world.took(m.Kill)
    world.wait(0.2)
    assert world.took(m.Kill)
    world.died(0, signal=signal.SIGKILL)
    (settlement,) = world.settled
    assert (
        settlement.outcome,
        settlement.state,
    ) == (Outcome.INTERRUPTED, JobState.PENDING)
    assert world.finish is not None


def test_a_second_request_stops_at_once() -> None:
    """A second Ctrl-C does not wait for the drain window."""
    world = World(pool("cpu", 1)).up()
    world.job()
    world.ring()
    world.step(m.Drain("SIGINT"))
    world.step(m.Drain("SIGINT"))
    world.wait(0.01)
    assert world.took(m.Kill)


def test_the_end_waits_for_the_store() -> None:
    """A drain is over only when every settlement is durable."""
    world = World(pool("cpu", 1)).up()
    world.job()
    world.ring()
    world.hold_settled = True
    world.done(0)
    world.step(m.Drain("SIGTERM"))
    world.wait(60.0)
    assert world.finish is None
    world.step(m.Settled(1))
    assert world.finish is not None
    assert world.finish.exit_code == 0


def test_a_stop_does_not_wait_for_ever() -> None:
    """A store that stays away cannot keep a stop from ending; it is told."""
    world = World(pool("cpu", 1)).up()
    world.job()
    world.ring()
    world.hold_settled = True
    world.done(0)
    world.step(m.Stop("SIGQUIT"))
    world.wait(11.0)
    assert world.finish is not None
    assert (world.finish.exit_code, world.finish.leases_held) == (1, 1)


def test_burst_ends_when_nothing_is_due() -> None:
    """With burst the supervisor drains once every pool came back empty-handed."""
    world = World(pool("cpu", 1), burst=True)
    jobs = [world.job() for _ in range(3)]
    world.up()
    for _ in jobs:
        assert world.finish is None
        world.done(0)
    world.wait(3.0)
    assert world.finish is not None
    assert len(world.settled) == 3


def test_cancel_kills_the_running_and_hands_back_the_waiting() -> None:
    """A canceled job that runs is killed, its outcome canceled."""
    world = World(pool("cpu", 1)).up()
    job = world.job()
    world.ring()
    world.step(m.CancelAsked((job.token,)))
    world.wait(0.01)
    world.died(0, signal=signal.SIGKILL)
    assert [s.state for s in world.settled] == [JobState.CANCELED]


def test_a_child_that_cannot_start_blames_no_job() -> None:
    """Starts that fail are tried again, ever more rarely, and charged to nobody."""
    world = World(pool("cpu", 1))
    world.deaf_forks = True
    world.up()
    world.step(m.ChildForked(0))
    world.step(m.FramesArrived(0, [StartFailed("a hook raised", "")]))
    world.died(0, code=1)
    assert any(
        isinstance(e, ev.Alarm) and "a hook raised" in e.text for e in world.said
    )
    assert len(world.took(m.Fork)) == 1
    world.wait(0.2)
    assert len(world.took(m.Fork)) == 1
    assert world.settled == []


def test_an_app_that_does_not_load_ends_the_start() -> None:
    """Before anything ran, a broken application is an error, not a loop."""
    world = World()
    world.step(m.ZygoteLost("cpu", "no module named jobs", "Traceback …"))
    assert world.finish is not None
    assert isinstance(world.finish.error, AppError)


def test_a_zygote_lost_later_is_replaced() -> None:
    """Once the application has run, a lost zygote is started again."""
    world = World().up()
    world.took(m.StartZygote)
    world.step(m.ZygoteLost("cpu", "killed"))
    assert world.finish is None
    world.wait(1.0)
    assert len(world.took(m.StartZygote)) == 1


def test_an_unknown_pool_is_refused() -> None:
    """A handler whose pool nobody has configured ends the start, with the remedy."""
    world = World()
    spec = world.report.handlers[0]
    bad = type(spec)(kind="x", pool="gpu")
    world.step(m.ZygoteLoaded("cpu", type(world.report)(handlers=(bad,))))
    assert world.finish is not None
    assert isinstance(world.finish.error, ConfigError)
    assert "gpu=N" in str(world.finish.error)


def test_a_limit_below_a_bare_child_is_refused() -> None:
    """A memory limit that a bare child would pass ends the start, with the figure."""
    world = World(pool(limits=PoolLimits(timeout_s=1, memory_bytes=21 * MIB)))
    world.step(m.ZygoteLoaded("cpu", world.report))
    assert world.finish is not None
    assert "28MiB" in str(world.finish.error)


def test_a_pool_grows_while_jobs_wait_and_shrinks_without_killing() -> None:
    """A range is used as far as the host allows, and given back by retiring."""
    world = World(pool("cpu", 1, size_max=4, idle_shrink_s=5.0)).up()
    for _ in range(8):
        world.job()
    world.ring()

    def seen(idle_share: float) -> None:
        world.step(
            m.HostSeen(
                due={"cpu": len(world.queue["cpu"])},
                cpu_idle_share=idle_share,
                available_bytes=2**34,
            )
        )

    seen(0.01)
    assert world.machine.pools["cpu"].size == 1
    seen(0.9)
    assert world.machine.pools["cpu"].size == 2
    seen(0.9)
    assert world.machine.pools["cpu"].size == 4
    assert sum(len(s.queue) for s in world.machine.slots) == 4
    for _ in range(2):
        for slot in range(4):
            if world.machine.slots[slot].queue:
                world.done(slot)
    for _ in range(20):
        world.wait(2.0)
        seen(0.9)
    assert world.machine.pools["cpu"].size == 1
    assert world.machine.pools["cpu"].children == 1
    assert not world.took(m.Kill)


def test_the_kernel_out_of_memory_kill_is_nobodys_crash() -> None:
    """A SIGKILL while the host ran out of memory interrupts; alone it is a crash."""
    for host_oom, expected in ((True, Outcome.INTERRUPTED), (False, Outcome.CRASHED)):
        world = World().up()
        world.job()
        world.ring()
        world.died(0, signal=signal.SIGKILL, host_oom=host_oom)
        assert [s.outcome for s in world.settled] == [expected]


def test_a_quarantine_is_said_as_an_error() -> None:
    """The crash that uses up the budget quarantines, with an ERROR event."""
    world = World(policy=Policy(max_crashes=1)).up()
    world.job()
    world.ring()
    world.died(0, signal=signal.SIGSEGV)
    (event,) = [e for e in world.said if isinstance(e, ev.JobQuarantined)]
    assert event.level is ev.Level.ERROR
    assert world.settled[0].state is JobState.QUARANTINED


def test_a_failed_attempt_is_not_a_crash() -> None:
    """An exception spends an attempt, and keeps its child."""
    world = World().up()
    world.took(m.Fork)
    world.job()
    world.ring()
    world.done(0, error=Raised(["builtins.ValueError"], "no", "…"))
    assert [s.outcome for s in world.settled] == [Outcome.FAILED]
    assert not world.took(m.Fork)


def test_what_cannot_happen_is_said_aloud() -> None:
    """An event that a state must not meet is a bug, by name."""
    world = World().up()
    with pytest.raises(JobpoolBug, match="cpu/0"):
        world.step(m.ForkRefused(0, "late"))


def test_an_exit_in_words() -> None:
    """An idle child's death is an alarm that names how it ended."""
    world = World().up()
    world.step(m.ChildExited(slot=0, exit=Exit(signal=signal.SIGTERM)))
    assert any(isinstance(e, ev.Alarm) and "SIGTERM" in e.text for e in world.said)


def test_a_reload_replaces_children_when_they_are_idle() -> None:
    """After a reload idle children end at once, busy ones after their job."""
    world = World(pool("cpu", 2)).up()
    world.job()
    world.ring()
    world.took(m.Fork)
    world.took(m.StartZygote)
    world.step(m.Reload(world.settings))
    assert [c.pool for c in world.took(m.StartZygote)] == ["cpu"]
    assert not world.took(m.Fork)
    world.step(m.ZygoteLoaded("cpu", world.report, reloading=True))
    assert world.took(m.TakeOver)
    assert [c.slot for c in world.took(m.Fork)] == [1]
    world.done(0)
    assert [c.slot for c in world.took(m.Fork)] == [0]
    assert [s.state for s in world.settled] == [JobState.SUCCEEDED]


def test_a_reload_that_fails_changes_nothing() -> None:
    """A new application that does not load is an alarm; the old one works on."""
    world = World(pool("cpu", 1)).up()
    world.took(m.Fork)
    world.step(m.Reload(world.settings))
    world.step(m.ZygoteLost("cpu", "no module named nonsense", reloading=True))
    assert any(isinstance(e, ev.Alarm) and "nonsense" in e.text for e in world.said)
    world.job()
    world.ring()
    world.done(0)
    assert [s.state for s in world.settled] == [JobState.SUCCEEDED]
    assert not world.took(m.Fork)


def test_a_reload_that_does_not_fit_keeps_the_old_code() -> None:
    """New code that contradicts the settings never takes over."""
    world = World(pool("cpu", 1)).up()
    world.step(m.Reload(world.settings))
    spec = world.report.handlers[0]
    bad = type(world.report)(handlers=(type(spec)(kind="x", pool="gpu"),))
    world.step(m.ZygoteLoaded("cpu", bad, reloading=True))
    assert world.took(m.DropZygote)
    assert not world.took(m.TakeOver)
    assert world.machine.registry is not None
    assert world.machine.registry.knows("cpu.work")


def streaming_world() -> tuple[World, list[int]]:
    """Return a world with four fast jobs at one child, and their numbers."""
    world = fast_world()
    for _ in range(4):
        world.job()
    world.ring()
    return world, [job.seq for job in world.machine.slots[0].queue]


def ended(world: World, slot: int, place: int) -> None:
    """The child ends the job at a place of its queue while it is being killed."""
    job = world.machine.slots[slot].queue[place]
    world.done(slot, seq=job.seq, token=job.lease.token)


def test_every_end_that_a_dying_child_reports_counts() -> None:
    """Jobs that ended between the decision to kill and the kill are settled so."""
    world, seqs = streaming_world()
    before = len(world.settled)
    world.step(m.Stop("SIGQUIT"))
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


def test_a_kill_is_for_one_attempt() -> None:
    """A job that began behind the one that is killed is interrupted, not blamed."""
    world, seqs = streaming_world()
    before = len(world.settled)
    world.step(wm.OverMemory(0, seqs[0], 600 * MIB))
    ended(world, 0, 0)
    world.died(0, signal=signal.SIGKILL, never_begun=tuple(seqs[2:]))
    assert [s.outcome for s in world.settled[before:]] == [
        Outcome.SUCCEEDED,
        Outcome.INTERRUPTED,
    ]


def test_a_kill_recalls_what_is_behind() -> None:
    """Once a kill is decided, the child shall begin nothing more."""
    world, seqs = streaming_world()
    world.step(wm.OverMemory(0, seqs[0], 600 * MIB))
    assert [c.slot for c in world.took(m.Recall)] == [0]


def test_a_canceled_job_that_is_recalled_is_not_sent_again() -> None:
    """It goes back to the store, which knows that it is canceled."""
    world, _seqs = streaming_world()
    before = len(world.settled)
    behind = world.machine.slots[0].queue[2]
    world.step(m.CancelAsked((behind.lease.token,)))
    world.recalled(0, list(world.machine.slots[0].queue)[1:])
    assert [s.id for s in world.settled[before:]] == [behind.lease.id]
    left = [job.lease.id for job in world.machine.slots[0].queue]
    assert behind.lease.id not in left


def test_a_flood_of_requests_is_a_breach() -> None:
    """A child of ours asks one thing at a time; whoever floods is ended."""
    world = World(pool("cpu", 1)).up()
    job = world.job()
    world.ring()
    for ask in range(8):
        world.step(m.FramesArrived(0, [Ask(ask, job.token, [])]))
    assert len(world.took(m.Enqueue)) == 8
    world.step(m.FramesArrived(0, [Ask(9, job.token, [])]))
    assert not world.took(m.Enqueue)
    assert world.took(m.Kill)


def test_a_job_too_long_to_send_is_dead_and_blocks_nobody() -> None:
    """A payload beyond what a frame can carry ends its own job only."""
    world = World(pool("cpu", 1)).up()
    world.job(payload=b"x" * (13 * MIB))
    small = world.job()
    world.ring()
    assert [s.state for s in world.settled] == [JobState.DEAD]
    assert [frame.id for frame in world.sent[0]] == [small.id]


def test_a_stop_does_not_wait_for_a_child_that_is_being_forked() -> None:
    """A child that appears after the stop is killed at once."""
    world = World(pool("cpu", 1))
    world.deaf_forks = True
    world.up()
    world.step(m.Stop("SIGQUIT"))
    world.step(m.ChildForked(0))
    assert world.took(m.Kill)
    world.died(0, signal=signal.SIGKILL)
    assert world.finish is not None


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, None),
        ({"store": "sqlite:////other.db"}, "store changed"),
        ({"pools": (pool("gpu"),)}, "pools changed"),
        ({"pools": (pool("cpu", 5),)}, "beyond the 2 slots"),
        ({"pools": (pool("cpu", 2, recycle_jobs=1),)}, "fresh and reused"),
        ({"pools": (pool("cpu", 1),)}, None),
    ],
)
def test_what_a_reload_may_change(
    changed: dict[str, object], words: str | None
) -> None:
    """Limits, sizes within the slots and code may change; the rest needs a restart."""
    old = World(pool("cpu", 2)).settings
    problem = reload_problem(old, msgspec.structs.replace(old, **changed))
    assert (problem is None) == (words is None)
    assert words is None or words in (problem or "")
