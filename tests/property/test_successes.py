"""Ends that are accounted for together have the same effect as one after another."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jobpool.core.jobs.job import Settlement
from jobpool.sandbox.protocol.messages import Beat, Done, Raised
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.state.durations import Durations
from jobpool.supervisor.machine.state.slot import Assigned, Slot
from support.machine.world import MIB, World, done_of, pool

FAILURE = Raised(["ValueError"], "no", "")
ENDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "result": {"result": b'"x"'},
    "slow": {"duration_s": 0.003},
    "grown": {"rss_bytes": 400 * MIB},
    "output": {"output": b"said\n"},
    "failure": {"error": FAILURE},
    "complete": {"completed": True},
    "surprise": {"surprise": "a thread"},
    "false": {"token": 1},
}
USUAL = st.sampled_from(("plain", "plain", "result", "slow"))
ANY = st.sampled_from((*ENDS, "beat"))
SEEN = [
    "state",
    "jobs",
    "cpu_s",
    "left_bytes",
    "allowed_bytes",
    "worn",
    "ended_token",
    "idled_s",
    "killed",
    "deadline_s",
    "recall_s",
]


def frame_of(job: Assigned, how: str) -> Done | Beat:
    """Return a child's message about a job."""
    if how == "beat":
        return Beat(job.lease.token, b"1", None)
    return done_of(job, **ENDS[how])


def after(ends: list[str], *, together: bool, suspect: int) -> tuple[Any, ...]:
    """Return the state of a world after these ends were read.

    Together, or one after another by the table of the slots alone.
    """
    world = World(pool("cpu", 1)).up().fast()
    if not together:
        world.machine._fast_path.take = lambda *_: 0
    for number in range(len(ends)):
        world.job(suspect=number == suspect)
    world.notify()
    slot = world.machine.slots[0]
    frames = [frame_of(job, how) for job, how in zip(slot.queue, ends, strict=False)]
    world.settled.clear()
    world.said.clear()
    for part in [frames] if together else [[frame] for frame in frames]:
        world.step(inp.FramesArrived(0, part, peak_rss_bytes=30 * MIB))
    durations = world.machine.pools["cpu"].durations_of("cpu.work")
    return (
        world.settled,
        world.said,
        [job.lease.token for job in slot.queue],
        figures(slot),
        (durations.fast, durations.brisk, durations.ahead, durations.p95_s),
    )


def figures(slot: Slot) -> dict[str, object]:
    """Return the figures that describe a slot."""
    return {name: getattr(slot, name) for name in SEEN}


@given(
    st.lists(st.one_of(USUAL, USUAL, USUAL, ANY), min_size=1, max_size=20),
    st.integers(-40, 20),
)
def test_ends_of_one_read_equal_the_slot_tables_result_for_each(
    ends: list[str], suspect: int
) -> None:
    """Whatever comes between them: nothing is lost, settled twice or reported twice."""
    together = after(ends, together=True, suspect=suspect)
    assert together == after(ends, together=False, suspect=suspect)
    settled: list[Settlement] = together[0]
    assert len({one.token for one in settled}) == len(settled)


@given(
    st.lists(st.lists(st.sampled_from((0.0001, 0.0019, 0.002, 0.05, 0.2)), min_size=1))
)
def test_durations_count_the_same_together_and_one_by_one(
    batches: list[list[float]],
) -> None:
    """Many durations at once have the same effect as one by one."""
    at_once, one_by_one = Durations(), Durations()
    for batch in batches:
        at_once.took(batch)
        for duration_s in batch:
            one_by_one.took([duration_s])
        assert (at_once.fast, at_once.brisk, at_once.ahead, at_once.p95_s) == (
            one_by_one.fast,
            one_by_one.brisk,
            one_by_one.ahead,
            one_by_one.p95_s,
        )
