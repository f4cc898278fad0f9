"""How decimal numbers are rounded: the default's context, and the child's own.

An attempt runs in a copy of the child's context variables. It makes itself a context
for its decimals from the default, unless the application had one before all attempts:
that would be the same object in every copy.
"""

from __future__ import annotations

import contextvars
import decimal
from operator import attrgetter

_NAMES = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")
_rules = attrgetter(*_NAMES)
_changed_first = attrgetter("prec", "rounding")
"""Who changes anything changes these, as a rule: the rest is not looked at."""


class Arithmetic:
    """The contexts as they are now, to be put back later."""

    def __init__(self) -> None:
        self._default = decimal.DefaultContext.copy()
        self._first = _changed_first(self._default)
        self._own = decimal.getcontext().copy() if _has_context() else None

    def restore(self) -> None:
        """Put back what differs."""
        default, first = decimal.DefaultContext, self._default
        if _changed_first(default) != self._first:
            for name, value in zip(_NAMES, _rules(first), strict=True):
                setattr(default, name, value)
            default.traps.update(first.traps)
        if self._own is not None:
            decimal.setcontext(self._own.copy())


def _has_context() -> bool:
    """Say whether decimals were used outside of any attempt."""
    return not decimal.HAVE_CONTEXTVAR or any(
        variable.name == "decimal_context" for variable in contextvars.copy_context()
    )
