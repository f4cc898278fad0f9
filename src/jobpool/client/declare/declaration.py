"""Reads the options of ``@jobs.job(...)``, so that errors point to the decorator."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

from jobpool.client.declare.elsewhere import OF_HANDLERS, words_for
from jobpool.client.declare.retry import RetryRules, checked_count, read_rules
from jobpool.core.application.handler_spec import INTERNAL_PREFIX, check_kind
from jobpool.core.config.readers import growth_factor, soft_size
from jobpool.core.rules.limits import Limits
from jobpool.core.rules.policy import Policy, Rerun
from jobpool.core.units import DurationLike, SizeLike, duration_s, size_bytes
from jobpool.errors import ConfigError


def read_limits(
    *,
    timeout: DurationLike | None,
    soft_timeout: DurationLike | None,
    memory: SizeLike | None,
    memory_growth: float | None,
    memory_soft: str | float | None,
    heartbeat_timeout: DurationLike | None,
) -> Limits:
    """Return the limits that a decorator declares.

    Raises:
        ConfigError: one is out of range, or the soft timeout is not the shorter one.
    """
    limits = Limits(
        timeout_s=positive_s(timeout, "timeout"),
        soft_timeout_s=positive_s(soft_timeout, "soft_timeout"),
        memory_bytes=None if memory is None else size_bytes(memory, "memory"),
        memory_growth=None
        if memory_growth is None
        else growth_factor(memory_growth, "memory_growth"),
        memory_soft=None
        if memory_soft is None
        else soft_size(memory_soft, "memory_soft"),
        heartbeat_timeout_s=positive_s(heartbeat_timeout, "heartbeat_timeout"),
    )
    soft_s, hard_s = limits.soft_timeout_s, limits.timeout_s
    if soft_s is not None and hard_s is not None and soft_s >= hard_s:
        raise ConfigError(
            f"soft_timeout: {soft_s:g} s is not below timeout, {hard_s:g} s; the hard "
            "limit would always come first"
        )
    return limits


def read_policy(
    *,
    max_attempts: int | None,
    retry: RetryRules | None,
    max_crashes: int | None,
    crash_window: DurationLike | None,
    rerun: str,
) -> Policy:
    """Return the policy that a decorator declares, with defaults for the rest.

    Raises:
        ConfigError: a value is out of range or unknown.
    """
    default = Policy()
    if rerun not in list(Rerun):
        raise ConfigError(
            f'rerun: {str(rerun)[:40]!r} is unknown; expected "always", or "never" for '
            "at most once"
        )
    return Policy(
        max_attempts=checked_count(max_attempts, "max_attempts")
        or default.max_attempts,
        max_crashes=checked_count(max_crashes, "max_crashes") or default.max_crashes,
        crash_window_s=positive_s(crash_window, "crash_window")
        or default.crash_window_s,
        rerun=Rerun(rerun),
        retry=read_rules(retry),
    )


def refuse_unknown(unknown: Mapping[str, object], function: Callable[..., Any]) -> None:
    """Refuse options that a decorator does not have.

    Raises:
        ConfigError: there are some; names the option that was surely meant.
    """
    for name in unknown:
        hint = words_for(name, OF_HANDLERS)
        if hint is None:
            known = inspect.signature(function).parameters
            # Late: it brings tomllib along, which declaring handlers does not need.
            from jobpool.core.config.layers import nearest  # noqa: PLC0415

            hint = nearest(name, known.keys() - {"self", "unknown"})
        raise ConfigError(
            f"job: there is no option {name!r}; {hint}. Nothing was registered"
        )


def positive_s(value: DurationLike | None, what: str) -> float | None:
    """Return a duration in seconds, or None.

    Raises:
        ConfigError: not a duration, or zero.
    """
    if value is None:
        return None
    seconds = duration_s(value, what)
    if seconds == 0:
        raise ConfigError(f"{what}: 0 is too short; leave it out for the default")
    return seconds


def check_function(function: Any) -> None:
    """Refuse what cannot be a handler.

    Raises:
        ConfigError: not callable, a class, or a generator that a call would not run.
    """
    if not callable(function) or isinstance(function, type):
        raise ConfigError(
            f"a handler must be a function, got {type(function).__name__}; write "
            '@jobs.job("cpu") above a def'
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(
            f"{kind_of(function)} is a generator: calling it would run nothing; return "
            "a value instead of yielding"
        )


def checked_kind(kind: str) -> str:
    """Return a kind that an application may use.

    Raises:
        ConfigError: it is not a valid name, or is reserved for jobpool.
    """
    if not isinstance(kind, str):
        raise ConfigError(f"kind: expected text, got {type(kind).__name__}")
    if kind.startswith(INTERNAL_PREFIX):
        raise ConfigError(
            f"kind {kind[:60]!r} begins with {INTERNAL_PREFIX!r}, which is reserved "
            "for jobpool's own jobs; choose another"
        )
    return check_kind(kind)


def kind_of(function: Callable[..., Any]) -> str:
    """Return the default kind, ``module:name``.

    A script's own module is named as the supervisor will import it.

    Raises:
        ConfigError: the function has no stable name.
    """
    name = getattr(function, "__qualname__", "")
    module = getattr(function, "__module__", None) or ""
    if module == "__main__":
        module = _main_module()
    if not name or not module or "<" in name:
        raise ConfigError(
            f"{name or 'this callable'} has no name by which another process could "
            'find it; give it one: @jobs.job("cpu", kind="shop.thumbnail")'
        )
    try:
        return checked_kind(f"{module}:{name}")
    except ConfigError as exc:
        raise ConfigError(
            f'{exc}; or name it: @jobs.job("cpu", kind="shop.thumbnail")'
        ) from None


def _main_module() -> str:
    """Return the name under which ``__main__`` can be imported; "" if it cannot."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name)
    from pathlib import PurePath  # noqa: PLC0415 - a script's handlers alone need it

    return PurePath(getattr(main, "__file__", None) or "").stem
