"""The checker of shares: what is unfair is named, and nothing else."""

from __future__ import annotations

from support.store.history import Dealt, History, Overtook, Record, TurnBack
from support.store.shares import wrong_shares


def dealt(
    starts: dict[str, int], waits: dict[str, float] | None = None, priority: int = 0
) -> Dealt:
    """Return a claim, after which two of equal weight still wait."""
    waits = {"a": 1.0, "b": 1.0} if waits is None else waits
    return Dealt(
        at_s=1.0,
        pool="io",
        priority=priority,
        starts=tuple(starts.items()),
        waits=tuple(waits.items()),
    )


def broken(*records: Record) -> set[str]:
    """Return which promises a history breaks."""
    history = History(shared=True, records=list(records))
    return {found.rule for found in wrong_shares(history)}


def test_turns_are_fair() -> None:
    """By two at most, in either direction, and what was before both waited is not."""
    turns = [dealt({"a": 1}), dealt({"b": 1}), dealt({"a": 1, "b": 1})]
    assert broken(dealt({"a": 50}), *turns * 9) == set()


def test_three_in_a_row_are_unfair() -> None:
    """In one claim or in several, while the other waits."""
    assert broken(dealt({}), dealt({"a": 3})) == {"I25"}
    assert broken(dealt({}), *[dealt({"a": 1})] * 3) == {"I25"}


def test_a_weight_is_minded() -> None:
    """Four to one is right for four times the weight, and for no other."""
    waits = {"a": 4.0, "b": 1.0}
    turns = [dealt({}, waits), *[dealt({"a": 4, "b": 1}, waits)] * 5]
    assert broken(*turns) == set()
    assert broken(dealt({}), *[dealt({"a": 4, "b": 1})] * 2) == {"I25"}


def test_who_does_not_wait_is_owed_nothing() -> None:
    """Nor is there anything between two priorities, or before a turn came back."""
    alone = dealt({"a": 9}, {"a": 1.0})
    assert broken(dealt({}), alone, dealt({"b": 1})) == set()
    other = dealt({"a": 2}, priority=5)
    assert broken(dealt({}), dealt({"a": 2}), other, other) == set()
    back = TurnBack(at_s=1.0, pool="io", priority=0, who="a")
    assert broken(dealt({}), dealt({"a": 2}), back, dealt({"a": 2})) == set()


def test_what_is_overtaken_is_named() -> None:
    """As the simulation sees it."""
    assert broken(Overtook(at_s=1.0, job=7, text="before job 3")) == {"I26"}
