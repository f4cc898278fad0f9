"""The checker of quotas: each promise that is broken on purpose is named."""

from __future__ import annotations

from typing import Any

from support.store.history import (
    Blocked,
    Disturbed,
    Downstream,
    Ended,
    Held,
    History,
    Idled,
    Record,
    Refilled,
    Returned,
    Settled,
    Started,
    Took,
)
from support.store.permits import wrong_permits


def took(token: int, at_s: float = 1.0, n: int = 0, **facts: Any) -> Took:
    """Return a permit of a cap of one, if nothing else is said."""
    numbers: dict[str, Any] = {"cap": 1, "per_s": None, "burst": None, "cost": 1}
    return Took(
        at_s=at_s, job=token, token=token, n=n, bucket="q=", **(numbers | facts)
    )


def started(token: int, at_s: float = 2.0) -> Started:
    return Started(
        at_s=at_s, run="a", host="host0", job=token, token=token, attempt=1, child="x"
    )


def ended(token: int) -> Ended:
    return Ended(at_s=3.0, job=token, token=token, cause="done_ok")


def settled(token: int, **facts: Any) -> Settled:
    return Settled(
        at_s=4.0,
        by="a",
        job=token,
        token=token,
        receipt="accepted",
        outcome="succeeded",
        state="succeeded",
        changed=True,
        **facts,
    )


def broken(*records: Record, **facts: Any) -> set[str]:
    """Return which promises a history breaks."""
    history = History(shared=True, records=list(records), **facts)
    return {found.rule for found in wrong_permits(history)}


def test_a_cap_counts_what_began_until_it_is_over_and_settled() -> None:
    """I20: another one begins after both, not after either."""
    first, second = (took(1), started(1)), (took(2), started(2))
    assert broken(*first, *second) == {"I20"}
    assert broken(*first, ended(1), *second) == {"I20"}
    assert broken(*first, settled(1, by_itself=True), *second) == {"I20"}
    assert broken(*first, ended(1), settled(1), *second) == set()
    assert broken(took(1), *second) == set()  # it never began


def test_a_cap_counts_by_cost_and_as_it_was_when_the_last_was_granted() -> None:
    """I20: what began under a larger cap may go on."""
    assert broken(took(1, cost=2, cap=2), started(1), took(2, cap=2), started(2)) == {
        "I20"
    }
    three = [r for token in (1, 2, 3) for r in (took(token, cap=3), started(token))]
    assert broken(*three) == set()
    assert broken(*three, took(4, cap=2), started(4)) == {"I20"}
    assert broken(took(1, cap=9, closed=True)) == {"I20"}


def test_a_permit_counts_from_when_it_is_known_until_it_is_returned() -> None:
    """I20: within an attempt, and at its end at the latest."""
    first, second = took(1, n=1), (took(2, n=1), Held(at_s=2.0, job=2, token=2, n=1))
    held = Held(at_s=2.0, job=1, token=1, n=1)
    assert broken(first, *second) == set()
    assert broken(first, held, *second) == {"I20"}
    back = Returned(at_s=2.0, job=1, token=1, n=1)
    assert broken(first, held, back, *second) == set()
    assert broken(first, held, ended(1), settled(1), *second) == set()


def test_no_window_has_more_begins_than_the_rate_and_the_burst() -> None:
    """I21: counted when they begin, whenever they were granted."""

    def begins(*times_s: float, granted_s: float = 1.0) -> set[str]:
        numbers = {"cap": None, "per_s": 2.0, "burst": 2}
        return broken(
            *(took(n, granted_s, **numbers) for n, _ in enumerate(times_s)),
            *(started(n, at_s) for n, at_s in enumerate(times_s)),
        )

    assert begins(2.0, 2.0, 2.5, 3.0) == set()
    assert begins(2.0, 2.0, 2.4) == {"I21"}
    assert begins(2.0, 3.0, 3.0, 3.1) == {"I21"}


def test_what_was_asked_for_counts_from_its_grant_unless_it_is_old() -> None:
    """I21: a handler that learns of it late uses it late."""

    def used(*times_s: tuple[float, float]) -> set[str]:
        return broken(
            *(
                took(n, taken_s, n=1, cap=None, per_s=1.0, burst=1)
                for n, (taken_s, _) in enumerate(times_s)
            ),
            *(
                Held(at_s=held_s, job=n, token=n, n=1)
                for n, (_, held_s) in enumerate(times_s)
            ),
        )

    assert used((1.0, 1.5), (2.0, 2.1)) == set()
    assert used((1.0, 2.0), (2.0, 2.1)) == {"I21"}


def test_a_rate_is_counted_anew_after_a_reset() -> None:
    """I21: that is what it is for."""
    numbers = {"cap": None, "per_s": 1.0, "burst": 1}
    two = [(took(n, **numbers), started(n)) for n in (1, 2)]
    reset = Refilled(at_s=2.0, quota="q")
    assert broken(*two[0], *two[1]) == {"I21"}
    assert broken(*two[0], reset, *two[1]) == set()
    assert broken(*two[0], Refilled(at_s=2.0, quota="r"), *two[1]) == {"I21"}


def test_nothing_blocked_is_granted_or_begins_late() -> None:
    """I22: what was leased before may begin for a little while."""
    block = Blocked(at_s=2.0, bucket="q=", after_s=10.0)
    assert broken(block, took(1, 11.0)) == {"I22"}
    assert broken(block, took(1, 12.0)) == set()
    assert broken(took(1), block, started(1, 3.0)) == set()
    assert broken(took(1), block, started(1, 5.0)) == {"I22"}
    asleep = Disturbed(at_s=2.5, where="host0", until_s=4.9)
    assert broken(took(1), block, asleep, started(1, 5.0)) == set()
    assert broken(block, Refilled(at_s=2.0, quota="q"), took(1, 3.0)) == set()


def test_an_open_breaker_grants_nothing_and_then_one_probe() -> None:
    """I22: another one only if of the first, long after its end, nothing was heard."""
    opened = Downstream(at_s=2.0, bucket="q=", pause_s=10.0)
    closed = Downstream(at_s=13.0, bucket="q=", pause_s=None)
    back = Returned(at_s=13.0, job=1, token=1, n=1)
    probe = took(1, 12.0, n=1, cap=None)
    assert broken(opened, took(1, 11.0)) == {"I22"}
    assert broken(opened, probe) == set()
    assert broken(opened, probe, took(2, 99.0, cap=None)) == {"I22"}
    assert broken(opened, probe, back, took(2, 17.0, cap=None)) == {"I22"}
    assert broken(opened, probe, back, took(2, 18.0, cap=None)) == set()
    assert broken(opened, probe, closed, took(2, 13.0, cap=None)) == set()
    assert broken(opened, Refilled(at_s=2.0, quota="q"), took(1, 3.0)) == set()


def test_idleness_and_what_is_left_are_named() -> None:
    """I23 and I24."""
    assert broken(Idled(at_s=9.0, job=1, seconds=3.0)) == {"I23"}
    assert broken(Idled(at_s=9.0, job=1, seconds=1.0)) == set()
    assert broken(permits_left=["job 1 holds one"]) == {"I24"}
