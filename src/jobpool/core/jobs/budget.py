"""How attempts and budgets are counted, and how that is said. Pure.

A job's attempts are numbered from 1, for ever: whatever ended them, and whatever an
operator has done since. A number says which attempt, and never how many are left. What
is left is said of the budget that the attempt was charged to (``failure 2 of 5``): an
interruption leaves the failures alone, a retry rule may have a budget of its own, and
an operator's retry begins all of them anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

RESET = "counters reset"
"""Said where an operator's retry or release has begun a job's budgets anew."""


class Budget(StrEnum):
    """What an attempt that did not succeed can be charged to."""

    FAILURE = "failure"
    CRASH = "crash"
    INTERRUPTION = "interruption"
    RECOVERY = "recovery"


class Spent(msgspec.Struct, frozen=True, gc=False):
    """So much of one budget is spent, the attempt in question included."""

    budget: Budget
    count: int
    of: int
    rule: str | None = None
    """The retry rule whose own budget it is."""

    @property
    def is_used_up(self) -> bool:
        """Whether nothing of it is left."""
        return self.count >= self.of

    def __str__(self) -> str:
        under = f" under {self.rule}" if self.rule else ""
        return f"{budget_words(self.budget, self.count, self.of)}{under}"


def attempt_words(attempt: int) -> str:
    """Name an attempt."""
    return f"attempt {attempt}"


def budget_words(what: str, count: int, of: int | None) -> str:
    """Say how much of a budget is spent; *of* None: nobody knows how large it is.

    More than it holds is not said to be "of" it: some of it was another budget's.
    """
    return f"{what} {count}" if of is None or count > of else f"{what} {count} of {of}"


def spent_words(spent: Iterable[Spent], *, reset: bool) -> str:
    """Say what is spent: ``failure 2 of 5, crash 1 of 3``; "" when nothing is.

    Args:
        spent: of each budget that the attempt was charged to.
        reset: an operator has begun the budgets anew before.
    """
    words = ", ".join(map(str, spent))
    return f"{words} ({RESET})" if words and reset else words
