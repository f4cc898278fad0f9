"""Whether every order is accounted for: flows against the shop's ledger. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from jobpool.core.jobs.flow import FlowState
from jobpool.store.records.flows import FlowRow


class Entry(NamedTuple):
    """A row of the shop's ledger."""

    number: int
    what: str
    cents: int


class Fate(NamedTuple):
    """A way in which an order can end."""

    words: str
    state: FlowState
    happens: tuple[str, ...]
    """What must have happened to it, once each, and nothing else."""


_BEFORE = ("charged", "reserved", "invoiced")
FATES = (
    Fate("shipped", FlowState.SUCCEEDED, (*_BEFORE, "shipped", "mailed")),
    Fate("refunded", FlowState.FAILED, (*_BEFORE, "refunded")),
    Fate("not approved", FlowState.FAILED, ()),
)


class Account(NamedTuple):
    """What has become of all orders."""

    orders: Mapping[str, Sequence[FlowRow]]
    """By the words of their fate."""
    earned_cents: int
    problems: Sequence[str]


def account(
    rows: Iterable[FlowRow], entries: Iterable[Entry], *, placed: int
) -> Account:
    """Compare the flows with what has happened.

    Args:
        rows: all flows.
        entries: the whole ledger.
        placed: so many orders, numbered from 1.
    """
    happened: dict[int, list[Entry]] = {}
    for entry in entries:
        happened.setdefault(entry.number, []).append(entry)
    by_number = {int(row.key or 0): row for row in rows}
    orders: dict[str, list[FlowRow]] = {fate.words: [] for fate in FATES}
    problems = list(_strange(by_number, happened, placed))
    for number, row in sorted(by_number.items()):
        done = [one.what for one in happened.get(number, ())]
        fate = next((one for one in FATES if _is(one, row.state, done)), None)
        if fate is None:
            problems.append(
                f"order {number} is {row.state} and was {', '.join(done) or 'nothing'}"
            )
        else:
            orders[fate.words].append(row)
    earned = sum(one.cents for ones in happened.values() for one in ones)
    return Account(orders, earned, problems)


def _is(fate: Fate, state: FlowState, done: Sequence[str]) -> bool:
    return state is fate.state and sorted(done) == sorted(fate.happens)


def _strange(
    by_number: Mapping[int, FlowRow], happened: Mapping[int, object], placed: int
) -> Iterator[str]:
    """Yield orders that are lost, or that nobody has placed."""
    numbers = set(range(1, placed + 1))
    if lost := sorted(numbers - set(by_number)):
        yield f"orders {lost} have no flow"
    if invented := sorted((set(by_number) | set(happened)) - numbers):
        yield f"orders {invented} were never placed"
