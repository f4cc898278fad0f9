"""What due jobs wait for, from what stores and supervisors say."""

from __future__ import annotations

import pytest

from jobpool.core.rules.run_report import KindReport, PoolReport, RunReport
from jobpool.core.rules.waits import HELD_HERE, Cause, Waiting, WaitRow, waits_of

FREE = RunReport(pools={"io": PoolReport(size=1)})
OTHER = RunReport(pools={"cpu": PoolReport(size=1, holds="memory")})


def waiting(**facts: object) -> list[Waiting]:
    """Return ten jobs of a known kind, changed as given."""
    base: dict[str, object] = {"jobs": 10, "known": True, "paused": False}
    return [Waiting("shop.fetch", "io", **(base | facts))]  # type: ignore[arg-type]


def causes(rows: list[WaitRow]) -> dict[str, float]:
    """Return seconds by cause."""
    return {row.cause: row.job_s for row in rows}


def test_what_holds_a_kind_back_goes_before_slots() -> None:
    """Each job is counted once, for one thing."""
    held = {("io", "shop.fetch"): {Cause.QUOTA: 3, Cause.BUDGET: 2}}
    found = waits_of(waiting(), held, [FREE], 10.0)
    assert causes(found) == {"quota": 30.0, "budget": 20.0, "slots": 50.0}
    assert causes(waits_of(waiting(known=False), held, [], 10.0)) == {
        "unknown kind": 100.0
    }
    assert causes(waits_of(waiting(paused=True), held, [], 10.0)) == {"pause": 100.0}
    assert waits_of(waiting(jobs=0), {}, [], 10.0) == []


@pytest.mark.parametrize("cause", sorted(HELD_HERE))
def test_what_holds_jobs_back_on_a_host_counts_if_it_does_on_all(cause: Cause) -> None:
    """On any other they would begin, if there were a slot."""
    pool = RunReport(pools={"io": PoolReport(size=1, holds=cause)})
    kind = RunReport(pools=FREE.pools, kinds={"shop.fetch": KindReport(holds=cause)})
    for reports in ([pool], [kind], [pool, kind], [pool, OTHER]):
        assert causes(waits_of(waiting(), {}, reports, 1.0)) == {cause: 10.0}
    for reports in ([pool, FREE], [], [OTHER]):
        assert causes(waits_of(waiting(), {}, reports, 1.0)) == {"slots": 10.0}
