"""Usual memory: the P99 of a kind, as it is now; unknown rather than too low."""

from __future__ import annotations

import pytest

from jobpool.core.jobs.job import Evidence
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.usage.sketch import GROWTH
from jobpool.supervisor.machine.state.usage import Usage
from jobpool.supervisor.machine.state.usual_memory import MARGIN

MIB = 2**20
PLACE = "work", "cpu"


def used(usage: Usage, mib: int, times: int) -> None:
    """Let attempts succeed that have used so much."""
    for _ in range(times):
        usage.succeeded(*PLACE, [mib * MIB], [0.1])


def is_about(found: int | None, mib: float) -> bool:
    """Say whether it is this with the margin, within a bucket."""
    least = MARGIN * mib * MIB
    return found is not None and least - 1 <= found <= GROWTH * least


def test_one_in_a_hundred_may_use_more() -> None:
    """A second one is usual."""
    usage = Usage()
    used(usage, 30, 159)
    used(usage, 900, 1)
    assert is_about(usage.memory.reserved_bytes(PLACE), 30)
    used(usage, 900, 32)
    assert is_about(usage.memory.reserved_bytes(PLACE), 900)


def test_a_kind_that_has_changed_is_soon_known_as_it_is_now() -> None:
    """What it used before is forgotten, unless the store still knows it."""
    usage = Usage()
    used(usage, 900, 6000)
    used(usage, 30, 40_000)
    assert is_about(usage.memory.reserved_bytes(PLACE), 30)
    usage.memory.know({PLACE: 100 * MIB})
    assert is_about(usage.memory.reserved_bytes(PLACE), 100)


def test_ten_attempts_that_ended_by_themselves_say_what_is_likely() -> None:
    """Twice the most of them; one that was cut short says that nobody knows."""
    usage = Usage()
    used(usage, 30, 9)
    assert usage.memory.likely_bytes(PLACE) is None
    used(usage, 60, 1)
    likely = usage.memory.likely_bytes(PLACE)
    assert likely is not None
    assert 120 * MIB <= likely <= GROWTH * 120 * MIB
    assert usage.memory.reserved_bytes(PLACE) is None
    usage.ended(*PLACE, Outcome.TIMED_OUT, Evidence(peak_rss_bytes=MIB), 512 * MIB)
    assert usage.memory.likely_bytes(PLACE) is None


@pytest.mark.parametrize(("killed", "is_known"), [(1, True), (40, False)])
def test_nothing_is_known_where_many_were_cut_short(
    killed: int, *, is_known: bool
) -> None:
    """They would have used more than they were allowed."""
    usage = Usage()
    used(usage, 30, 160)
    for _ in range(killed):
        usage.ended(*PLACE, Outcome.OUT_OF_MEMORY, Evidence(), 512 * MIB)
    assert (usage.memory.reserved_bytes(PLACE) is not None) is is_known


def test_an_attempt_without_a_measurement_tells_nothing() -> None:
    """Nor does another kind."""
    usage = Usage()
    used(usage, 0, 200)
    used(usage, 30, 64)
    assert usage.memory.reserved_bytes(PLACE) is None
    assert usage.memory.reserved_bytes(("other", "cpu")) is None
