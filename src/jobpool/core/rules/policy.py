"""Retry and quarantine rules: pure arithmetic over a job's attempt history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from jobpool.core.jobs.job import PastAttempt
from jobpool.core.jobs.outcome import CHARGES, Outcome
from jobpool.errors import RetryLater

BACKOFF_FIRST_S = 30.0
BACKOFF_FACTOR = 4
BACKOFF_MAX_S = 3600.0
JITTER = 0.2
"""The default back-off varies by this share to either side."""
AFTER_CRASH_MIN_S = 60.0
INTERRUPTIONS_MAX = 20
"""Interruptions after which a job is dead."""


HOST_MEMORY = "host_memory"
"""The rule of an interruption because the host ran short of memory."""
HOST_MEMORY_FREE_S = 86400.0
"""Such interruptions in a row cost nothing for so long after the first of them."""
HOST_MEMORY_FIRST_S, HOST_MEMORY_MAX_S = 5.0, 300.0
"""Delays after them: the first, doubled with each further one, and the longest."""


SNOOZES_MAX = 1000
"""Snoozes in a row after which a job is dead."""
SNOOZED_MAX_S = 7 * 86400.0
"""Time since the first snooze in a row after which one more makes a job dead."""
SNOOZE_MIN_S, SNOOZE_MAX_S = 1.0, 7 * 86400.0
"""Bounds of one snooze: shorter ones are extended, longer ones are refused."""


UNKNOWN_FOR_S = 600.0
"""How long a job waits whose arguments fit no supervisor (`repairs.misfit`)."""


class Rerun(StrEnum):
    """Whether another attempt may follow one whose end is unknown."""

    ALWAYS = "always"
    """At least once."""
    NEVER = "never"
    """At most once: the job is dead instead."""


class RetryRule(msgspec.Struct, frozen=True):
    """What to do after an exception of one class or a subclass, matched by name."""

    never: bool = False
    """Dead at once."""
    delays_s: tuple[float, ...] = ()
    """Delays after the 1st, 2nd, … failure under this rule; the last repeats.

    Empty: the default back-off.
    """
    max_attempts: int | None = None
    """A separate budget for failures under this rule; None: the job's."""
    for_s: float | None = None
    """Failures under this rule are retried for so long after the first of them, however
    many there are; None: by number."""

    @property
    def is_separate(self) -> bool:
        """Whether failures under it count for nothing else."""
        return self.max_attempts is not None or self.for_s is not None


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """When a kind's jobs are retried, quarantined or dead."""

    max_attempts: int = 5
    max_crashes: int = 3
    crash_window_s: float = 72 * 3600.0
    max_lost: int = 5
    unknown_for_s: float = UNKNOWN_FOR_S
    """How long a job waits whose arguments fit no living supervisor's handler."""
    rerun: Rerun = Rerun.ALWAYS
    retry: Mapping[str, RetryRule] = {}
    """By class name, bare (``ValueError``) or qualified (``shop.api.VendorDown``); or
    by outcome (``crashed``, ``timed_out``, ``out_of_memory``, ...)."""


_RETRY_LATER = f"{RetryLater.__module__}.{RetryLater.__qualname__}"


def matching_rule(policy: Policy, class_names: Sequence[str]) -> str | None:
    """Find the retry rule for an exception.

    Args:
        policy: the kind's policy.
        class_names: the exception's class and its bases, nearest first, qualified.

    Returns:
        The key in ``policy.retry`` of the nearest class that has a rule. A "never" of a
        base of `RetryLater` does not hold for what asks to be tried again.
    """
    asks = False
    for qualified in class_names:
        for name in (qualified, qualified.rpartition(".")[2]):
            rule = policy.retry.get(name)
            if rule is not None and not (asks and rule.never):
                return name
        asks = asks or qualified == _RETRY_LATER
    return None


def spent_attempts(
    policy: Policy, history: Sequence[PastAttempt], rule: str | None
) -> tuple[int, int]:
    """Count what is spent of an attempt's budget, and its rule's failures.

    Args:
        policy: the kind's policy.
        history: unsuccessful attempts since the last reset, this one included.
        rule: the rule of this attempt, if one matched.

    Returns:
        ``(spent, under_rule)``: attempts charged to the budget that this attempt
        belongs to, and attempts under the same rule.
    """
    own = {name for name, r in policy.retry.items() if r.is_separate}
    under_rule = sum(1 for past in history if rule is not None and past.rule == rule)
    if rule in own:
        return under_rule, under_rule
    spent = sum(
        1 for past in history if CHARGES[past.outcome].failure and past.rule not in own
    )
    return spent, under_rule


def host_memory_row(history: Sequence[PastAttempt]) -> Sequence[PastAttempt]:
    """Return the attempts in a row, up to the last, that host memory interrupted."""
    row = 0
    for past in reversed(history):
        if past.outcome is not Outcome.INTERRUPTED or past.rule != HOST_MEMORY:
            break
        row += 1
    return history[len(history) - row :]


def host_memory_delay_s(nth: int) -> float:
    """Return how long a job waits after the nth such interruption in a row."""
    doublings = min(nth - 1, 10)
    return min(HOST_MEMORY_FIRST_S * 2.0**doublings, HOST_MEMORY_MAX_S)


def failing_for_s(history: Sequence[PastAttempt], rule: str) -> float:
    """Return how long ago the first failure under a rule was, in seconds.

    Args:
        history: unsuccessful attempts since the last reset, this one last; of older
            ones than it has, the first under each rule is in it.
        rule: the rule of this attempt.
    """
    first_ms = min(past.finished_at_ms for past in history if past.rule == rule)
    return max(0, history[-1].finished_at_ms - first_ms) / 1000


def crashes_in_window(
    policy: Policy, history: Sequence[PastAttempt], now_ms: int
) -> int:
    """Count crashes since *now* minus the crash window, this attempt included."""
    since = now_ms - policy.crash_window_s * 1000
    return sum(
        1
        for past in history
        if CHARGES[past.outcome].crash and past.finished_at_ms >= since
    )


def backoff_s(nth: int, spread: float) -> float:
    """Return the default wait after the *nth* failure.

    30 s, 2 min, 8 min, 32 min, then 1 h, each ±20 %.

    Args:
        nth: failures so far, from 1.
        spread: a number in [-1, 1] that places the wait within its jitter.

    Source: exponential back-off with jitter, AWS Architecture Blog, 2015.
    """
    factor = float(BACKOFF_FACTOR ** min(nth - 1, 10))
    plain = min(BACKOFF_FIRST_S * factor, BACKOFF_MAX_S)
    return plain * (1 + JITTER * max(-1.0, min(1.0, spread)))


def retry_delay_s(
    rule: RetryRule | None, *, nth: int, under_rule: int, crashed: bool, spread: float
) -> float:
    """Return how long to wait before the next attempt.

    Args:
        rule: the rule that matched, if any.
        nth: attempts spent so far, this one included.
        under_rule: failures under the rule so far, this one included.
        crashed: the attempt killed its process: wait at least a minute.
        spread: as for `backoff_s`.
    """
    if rule and rule.delays_s:
        return rule.delays_s[min(under_rule, len(rule.delays_s)) - 1]
    wait_s = backoff_s(max(nth, 1), spread)
    return max(wait_s, AFTER_CRASH_MIN_S) if crashed else wait_s
