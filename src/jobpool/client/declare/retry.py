"""Retry rules as an application declares them, by class of exception."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from jobpool.core.config.settings import MAX_ATTEMPTS_MAX
from jobpool.core.rules.policy import RetryRule
from jobpool.core.units import DurationLike, duration_s
from jobpool.errors import ConfigError

_CLASS_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


class Retry:
    """What to do after one class of exception.

    Args:
        delays: time until the next attempt after the 1st, 2nd, … failure of this
            class; the last one repeats. None: the usual back-off.
        max_attempts: a separate budget for failures of this class; None: the job's.
        for_: retry for this time after the first failure of this class, however many
            follow, such as ``"2h"`` for what may still appear; then the job is dead.

    Raises:
        ConfigError: a delay or *for_* is not a duration, the budget is out of range, or
            both limits are given.
    """

    def __init__(
        self,
        delays: Sequence[DurationLike] | None = None,
        *,
        max_attempts: int | None = None,
        for_: DurationLike | None = None,
    ) -> None:
        if isinstance(delays, str) or not isinstance(delays or (), Sequence):
            raise ConfigError(
                'Retry(delays=): expected a list of durations, such as ["10s", "1m"]'
            )
        if delays is not None and not delays:
            raise ConfigError(
                "Retry(delays=): the list is empty; leave it out for the usual "
                'back-off, or write "never" instead of Retry(...)'
            )
        if for_ is not None and max_attempts is not None:
            raise ConfigError(
                "Retry(): max_attempts= and for_= exclude each other; retry by number, "
                "or for a time"
            )
        for_s = None if for_ is None else duration_s(for_, "Retry(for_=)")
        if for_s is not None and not for_s:
            raise ConfigError(
                'Retry(for_=): expected more than no time; write "never" instead of '
                "Retry(...) for no retry"
            )
        self.rule = RetryRule(
            delays_s=tuple(
                duration_s(delay, "Retry(delays=)") for delay in delays or ()
            ),
            max_attempts=checked_count(max_attempts, "Retry(max_attempts=)"),
            for_s=for_s,
        )

    def __repr__(self) -> str:
        delays = list(self.rule.delays_s) or None
        limit = f"max_attempts={self.rule.max_attempts!r}"
        if self.rule.for_s is not None:
            limit = f"for_={self.rule.for_s!r}"
        return f"Retry({delays!r}, {limit})"


RetryLike = Literal["never"] | Sequence[DurationLike] | Retry
"""A rule: dead at once, a list of delays, or delays with a budget."""
RetryRules = Mapping[type[BaseException] | str, RetryLike]
"""Rules by exception class, or its bare or qualified name; the nearest base wins."""


def read_rules(given: RetryRules | None) -> dict[str, RetryRule]:
    """Return the rules by class name.

    Raises:
        ConfigError: a key is not an exception class or its name, or a rule is invalid.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ConfigError(
            'retry: expected a dict such as {ValueError: "never"}, got '
            f"{type(given).__name__}"
        )
    rules: dict[str, RetryRule] = {}
    for key, value in given.items():
        name = _class_name(key)
        if name in rules:
            raise ConfigError(f"retry: {name} is given twice, as a class and as a name")
        rules[name] = _rule(name, value)
    return rules


def checked_count(value: int | None, what: str) -> int | None:
    """Return a number of attempts, or None.

    Raises:
        ConfigError: it is not an int from 1 to `MAX_ATTEMPTS_MAX`.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(
            f"{what}: expected a whole number, got {type(value).__name__}"
        )
    if not 1 <= value <= MAX_ATTEMPTS_MAX:
        raise ConfigError(f"{what} is out of range; expected 1 to {MAX_ATTEMPTS_MAX}")
    return int.__int__(value)  # for an IntEnum, say


def _class_name(key: type[BaseException] | str) -> str:
    if isinstance(key, str) and _CLASS_NAME.fullmatch(key):
        return key
    if isinstance(key, type) and issubclass(key, BaseException):
        # Built-in exceptions are matched by their bare names.
        if key.__module__ == "builtins":
            return key.__qualname__
        return f"{key.__module__}.{key.__qualname__}"
    raise ConfigError(
        f"retry: {str(key)[:60]!r} is not an exception class or its name, such as "
        'ValueError or "shop.VendorDown"'
    )


def _rule(name: str, value: Any) -> RetryRule:
    if isinstance(value, Retry):
        return value.rule
    if value == "never":
        return RetryRule(never=True)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return Retry(value).rule
    raise ConfigError(
        f'retry: the rule for {name} is invalid; expected "never", a list of delays '
        'such as ["10s", "1m"], or Retry(...)'
    )
