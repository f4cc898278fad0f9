"""Budgets: what attempts are charged to, and how both are written. Pure.

A job's attempts are numbered from 1 and never renumbered. A number says which attempt
it is, not how many are left. How many are left depends on the budget that the attempt
was charged to (``failure 2 of 5``): an interruption costs no failure, a retry rule may
have its own budget, and an operator's retry resets all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

RESET = "counters reset"
"""Marks budgets that an operator's retry or release has reset."""


class Budget(StrEnum):
    """A budget that an unsuccessful attempt can be charged to."""

    FAILURE = "failure"
    CRASH = "crash"
    INTERRUPTION = "interruption"
    RECOVERY = "recovery"


class Spent(msgspec.Struct, frozen=True, gc=False):
    """How much of one budget is spent, including by the attempt in question."""

    budget: Budget
    count: int
    of: int
    rule: str | None = None
    """The retry rule that has this budget."""

    @property
    def is_used_up(self) -> bool:
        """Whether none of it is left."""
        return self.count >= self.of

    def __str__(self) -> str:
        under = f" under {self.rule}" if self.rule else ""
        return f"{budget_words(self.budget, self.count, self.of)}{under}"


def attempt_words(attempt: int) -> str:
    """Name an attempt."""
    return f"attempt {attempt}"


def budget_words(what: str, count: int, of: int | None) -> str:
    """Return how much of a budget is spent; *of* None: its size is not known.

    A count above the size omits it: some of the count was another budget's.
    """
    return f"{what} {count}" if of is None or count > of else f"{what} {count} of {of}"


def spent_words(spent: Iterable[Spent], *, reset: bool) -> str:
    """Return what is spent: ``failure 2 of 5, crash 1 of 3``; "" if nothing is.

    Args:
        spent: one for each budget that the attempt was charged to.
        reset: an operator has reset the budgets before.
    """
    words = ", ".join(map(str, spent))
    return f"{words} ({RESET})" if words and reset else words
