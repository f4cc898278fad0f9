"""Fields of forms, as people fill them in."""

from __future__ import annotations

from collections.abc import Mapping

from jobpool.core.rules.quotas.rate import Rate, parse_rate
from jobpool.core.units import duration_s, size_bytes
from jobpool.errors import ConfigError, UsageError


def text(form: Mapping[str, str], name: str) -> str | None:
    """Return a field's text; None: it is empty."""
    return form.get(name, "").strip() or None


def needed(form: Mapping[str, str], name: str) -> str:
    """Return what a field must have, exactly as it is.

    Raises:
        UsageError: it is not there.
    """
    if name not in form:
        raise UsageError(
            f"the form has no field {name!r}; nothing was changed: open its page again"
        )
    return form[name]


def whole(form: Mapping[str, str], name: str) -> int | None:
    """Return a field's whole number; None: it is empty.

    Raises:
        UsageError: it is none.
    """
    given = text(form, name)
    if given is None:
        return None
    if not (given.isascii() and given.isdigit() and len(given) <= _DIGITS_MAX):
        raise UsageError(
            f"{name}: expected a whole number such as 8, got {given[:40]!r}; nothing "
            "was changed"
        )
    return int(given)


def rate(form: Mapping[str, str], name: str) -> Rate | None:
    """Return a field's rate; None: it is empty.

    Raises:
        ConfigError: it is none.
    """
    given = text(form, name)
    return None if given is None else parse_rate(given, name)


def size(form: Mapping[str, str], name: str) -> int | None:
    """Return a field's size in bytes; None: it is empty.

    Raises:
        ConfigError: it is none.
    """
    given = text(form, name)
    return None if given is None else size_bytes(given, name)


def span_s(form: Mapping[str, str], name: str) -> float | None:
    """Return how long something is to last; None: until it is undone.

    Raises:
        ConfigError: it is no duration, or 0.
    """
    given = text(form, name)
    if given is None:
        return None
    seconds = duration_s(given, name)
    if not seconds:
        raise ConfigError(
            f"{name}: expected more than 0, such as 2h; nothing was changed"
        )
    return seconds


_DIGITS_MAX = 12
