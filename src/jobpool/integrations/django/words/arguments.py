"""A task's arguments by name, as jobs store them, and as they were passed again.

Jobs have arguments by name, so that people can read, redact and edit them, and quotas
count by them. A `TaskResult` says which were passed by position; so the number of
those is stored with them, if there are any.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature
from typing import Any

POSITIONAL = "_positional"
"""The argument that says how many of the named ones were passed by position."""
_NAMED = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


class Parameters:
    """The parameters of one task.

    Args:
        function: the task's.
        takes_context: its first parameter is the context, which is not stored.

    Raises:
        ValueError: a parameter has the name that is needed here.
    """

    def __init__(self, function: Callable[..., Any], *, takes_context: bool) -> None:
        parameters = list(inspect.signature(function).parameters.values())
        self._own = parameters[1:] if takes_context else parameters
        self._by_position = [one.name for one in self._own if one.kind in _NAMED]
        self._rest = self._only(Parameter.VAR_POSITIONAL)
        if any(one.name == POSITIONAL for one in self._own):
            raise ValueError(f"the parameter {POSITIONAL!r} needs another name")

    @property
    def signature(self) -> Signature:
        """Without annotations: Django passes plain JSON values on as they are."""
        plain = [one.replace(annotation=Parameter.empty) for one in self._own]
        marker = Parameter(POSITIONAL, Parameter.KEYWORD_ONLY, default=0)
        ends_open = plain and plain[-1].kind is Parameter.VAR_KEYWORD
        plain.insert(len(plain) - bool(ends_open), marker)
        return Signature(plain)

    def marked(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments by keyword of a call, with the number of the others.

        Raises:
            ValueError: one has the name that is needed here.
        """
        if POSITIONAL in kwargs:
            raise ValueError(f"the argument {POSITIONAL!r} needs another name")
        count = min(len(args), len(self._by_position))
        return {**kwargs, POSITIONAL: count} if count else dict(kwargs)

    def passed(self, given: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return positional and keyword arguments, as the call had them.

        Args:
            given: by name, as stored.
        """
        named = dict(given)
        count = named.pop(POSITIONAL, 0)
        rest = list(named.pop(self._rest, ())) if self._rest else []
        first = self._by_position[: count if isinstance(count, int) else 0]
        args = [named.pop(name) for name in first if name in named]
        return args + rest, named

    def _only(self, kind: Any) -> str | None:
        return next((one.name for one in self._own if one.kind is kind), None)
