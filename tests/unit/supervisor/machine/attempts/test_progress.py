"""Progress of running attempts: seen soon, seldom written, and the last of it kept."""

import pytest

from jobpool.core.config.settings import KeepOutput, KindSettings
from jobpool.core.events.jobs import JobEnded, JobOutput
from jobpool.sandbox.protocol.messages import Beat, Raised
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from support.machine.world import World, pool

SEEN_WITHIN_S = 0.5


@pytest.fixture
def world():
    """Two jobs run, each in a child of its own."""
    world = World().up()
    for _ in range(2):
        world.job()
    world.notify()
    return world


def beat(world, slot, progress, checkpoint=None):
    token = world.machine.slots[slot].queue[0].lease.token
    world.step(inp.FramesArrived(slot, [Beat(token, progress, checkpoint)]))


def written(world):
    """Return the progress that was written since the last time."""
    return [c.progress.progress for c in world.took(cmd.Record)]


def test_progress_is_written_soon_while_it_changes(world):
    """Without a checkpoint as well."""
    for step in range(20):
        beat(world, 0, b"%d" % step)
        world.wait(0.3)
    world.wait(SEEN_WITHIN_S)
    found = written(world)
    assert found[-1] == b"19"
    assert len(found) == len(set(found)) >= 20 * 0.3 / SEEN_WITHIN_S - 1


def test_the_progress_of_all_jobs_is_written_together(world):
    """However many report, and whenever: one commit has it."""
    world.wait(0.11)
    beat(world, 0, b"1")
    world.wait(0.13)
    beat(world, 1, b"2")
    assert written(world) == []
    moment_s = world.machine.next_deadline_s()
    assert moment_s <= world.now_s + SEEN_WITHIN_S
    world.now_s = moment_s
    world.step(inp.Tick())
    assert written(world) == [b"1", b"2"]


def test_nothing_is_written_when_nothing_changed(world):
    """A handler may report the same for hours, or nothing, at no cost."""
    for _ in range(20):
        beat(world, 0, b'"copying"')
        beat(world, 1, None)
        world.wait(0.3)
    assert written(world) == [b'"copying"']


def test_a_value_that_changed_back_is_not_written(world):
    """In between no reader has seen anything else."""
    beat(world, 0, b"1")
    world.wait(SEEN_WITHIN_S)
    beat(world, 0, b"2")
    beat(world, 0, b"1")
    world.wait(5)
    assert written(world) == [b"1"]


@pytest.mark.parametrize("output", [b"", b"said"])
def test_the_last_progress_is_written_before_a_good_end(world, output):
    """Whether the end is plain or not: in the same commit, progress first."""
    beat(world, 0, b"1", b'{"page":1}')
    beat(world, 0, b"2", b'{"page":2}')
    world.commands.clear()
    world.done(0, output=output)
    order = [c for c in world.commands if isinstance(c, (cmd.Record, cmd.Settle))]
    assert [type(c) for c in order] == [cmd.Record, cmd.Settle]
    assert (order[0].progress.progress, order[0].progress.checkpoint) == (b"2", None)


def see(world, slot, rss_bytes, output=None):
    seq = world.machine.slots[slot].queue[0].seq
    world.step(inp.AttemptSampled(slot, seq, rss_bytes, output))


def test_memory_and_output_of_running_attempts_are_written_together(world):
    """Together with what they report; of each the last."""
    world.wait(0.11)
    see(world, 0, 1, b"one")
    beat(world, 1, b"7")
    world.wait(0.13)
    see(world, 0, 2)
    see(world, 1, 3)
    assert written(world) == []
    world.now_s = world.machine.next_deadline_s()
    world.step(inp.Tick())
    found = [c.progress for c in world.took(cmd.Record)]
    assert [(p.progress, p.rss_bytes, p.output) for p in found] == [
        (None, 2, b"one"),
        (b"7", 3, None),
    ]
    world.wait(5)
    assert written(world) == []


@pytest.mark.parametrize(
    ("of_pool", "of_kind", "kept"),
    [
        ("failed", None, (False, "good", "bad")),
        ("all", None, (True, "good", "bad")),
        ("none", None, (False, None, None)),
        ("none", "all", (True, "good", "bad")),
        ("all", "none", (False, None, None)),
        ("all", "failed", (False, "good", "bad")),
    ],
)
def test_output_goes_with_the_ends_of_which_it_is_kept(of_pool, of_kind, kept):
    """A kind's setting before its pool's; the log has it in any case."""
    own = KindSettings(keep_output=KeepOutput(of_kind) if of_kind else None)
    cpu = pool(keep_output=KeepOutput(of_pool))
    world = World(cpu, kinds={"cpu.work": own}).up()
    for _ in range(2):
        world.job()
    world.notify()
    see(world, 0, 1, b"so far")
    world.wait(2)
    shown = [c.progress.output for c in world.took(cmd.Record)]
    assert shown == [None if kept[2] is None else b"so far"]
    world.done(0, output=b"good")
    world.done(1, output=b"bad", error=Raised(["ValueError"], "no", ""))
    good, bad = world.settled
    found = (good.keeps_output, good.evidence.output, bad.evidence.output)
    assert found == kept
    assert [e.line for e in world.said if isinstance(e, JobOutput)] == [
        "good",
        "bad",
    ]


def test_output_of_an_encoded_job_is_neither_shown_nor_logged():
    """Until its child has encoded it; the log could not be read at all."""
    world = World(pool()).up()
    world.job(codec="fernet")
    world.notify()
    see(world, 0, 1, b"4711")
    world.wait(2)
    assert [c.progress.output for c in world.took(cmd.Record)] == [None]
    world.done(0, output=b"encoded:AAA=")
    assert [e for e in world.said if isinstance(e, JobOutput)] == []


@pytest.mark.parametrize(("codec", "is_said"), [("fernet", False), (None, True)])
def test_an_encoded_message_is_not_logged(codec, is_said):
    """A plain job's message is, even if it begins like one."""
    world = World(pool()).up()
    world.job(codec=codec)
    world.notify()
    world.done(0, error=Raised(["ValueError"], "encoded:AAA=", ""))
    (ended,) = [e for e in world.said if isinstance(e, JobEnded)]
    assert (ended.error is not None, "encoded:" in ended.reason) == (is_said, is_said)


def test_what_was_shown_of_an_attempt_ends_with_it(world):
    """Its attempt's row has the output; the next attempt has not written it."""
    see(world, 0, 1, b"one")
    seen = inp.AttemptSampled(0, world.machine.slots[0].queue[0].seq, 2, b"two")
    world.done(0, output=b"two")
    world.step(seen)
    world.job()
    world.notify()
    world.step(seen)
    world.wait(5)
    assert written(world) == []


def test_a_job_that_reports_nothing_writes_nothing_at_its_end(world):
    """No statement more than before."""
    world.done(0)
    world.done(1, output=b"said")
    assert written(world) == []
