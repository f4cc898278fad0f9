"""A handler's arguments: bound, checked and encoded, and decoded again in the child.

They are one JSON object by parameter name, so that a signature may gain parameters
with defaults while jobs wait. Defaults are left out unless given. A datetime, a UUID or
a dataclass arrives as one if the parameter is annotated so; a value that would arrive
as something else is refused.

In a flow, a value may also be one that a step will have (`step_value`). The argument
that it is in, or is part of, is checked in the child alone, once it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec

from jobpool.client.payload.annotations import annotations_of, signature_of
from jobpool.client.payload.schema import ArgumentShape
from jobpool.client.payload.step_value import StepValue
from jobpool.client.payload.strict_json import (
    NotJson,
    NotPlainJson,
    check_objects,
    encode,
    misfit,
    refuse_flaws,
    step_values_in,
)
from jobpool.core.application.placeholders import MARKER, markers_in
from jobpool.core.units import show_size
from jobpool.errors import ArgumentsMisfit, ArgumentsRejected

_MARKER = MARKER.encode()
_IN_FLOWS = (
    "the value of a flow's step is not there yet; give it to handler.call(...), and "
    "that to flow.add(...)"
)
StepValues = Mapping[str, Sequence[StepValue]]
"""The values of steps among arguments, by the arguments' names."""


class Arguments:
    """The parameters of one handler.

    Args:
        function: the handler's function.
        kind: its kind, for messages.
    """

    def __init__(self, function: Callable[..., Any], kind: str) -> None:
        self._function = function
        self._kind = kind
        self._signature = signature_of(function)
        self._loose: dict[frozenset[str], ArgumentShape] = {}

    def encode_call(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], max_bytes: int
    ) -> bytes:
        """Encode a call as the function would receive it.

        Raises:
            ArgumentsRejected: it does not fit the signature or the annotations,
                cannot be JSON, or is longer than *max_bytes*.
        """
        return self._encode(self.by_name(args, kwargs), max_bytes)

    def by_name(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the arguments of a call by name, as their payload will have them.

        Raises:
            ArgumentsRejected: it does not fit the signature.
        """
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as exc:
            raise self._rejected(f"{exc}; expected {self._signature}") from None
        given: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            kind = self._signature.parameters[name].kind
            if kind is kind.VAR_KEYWORD:
                if doubled := value.keys() & set(self._shape.names):
                    raise self._rejected(f"argument {doubled.pop()!r} is given twice")
                given |= value
            elif kind is not kind.VAR_POSITIONAL:
                given[name] = value
            elif value:
                given[name] = list(value)
        return given

    def encode_waiting(
        self, given: Mapping[str, Any], held: StepValues, max_bytes: int
    ) -> bytes:
        """Encode arguments by name, with placeholders for the values of steps.

        Args:
            given: the arguments, as `by_name` returns them.
            held: the values of steps in them, as `step_values_in` finds them.
            max_bytes: most bytes, the placeholders included.

        Raises:
            ArgumentsRejected: as for `encode_call`, of what is there already.
        """
        return self._encode(dict(given), max_bytes, held)

    def encode_named(self, arguments: Mapping[str, Any], max_bytes: int) -> bytes:
        """Encode arguments given by name, as `encode_call` does."""
        if type(arguments) is not dict and not isinstance(arguments, Mapping):
            raise self._rejected(
                "expected a dict of arguments by name, got "
                f"{type(arguments).__qualname__}"
            )
        # In the signature's order, so that equal arguments are equal bytes.
        ordered = {n: arguments[n] for n in self._shape.names if n in arguments}
        if len(ordered) != len(arguments):
            ordered |= dict(arguments)
        return self._encode(ordered, max_bytes)

    def decode(self, payload: bytes) -> tuple[list[Any], dict[str, Any]]:
        """Return positional and keyword arguments, typed as annotated.

        Raises:
            ArgumentsMisfit: the payload does not fit the handler as it is now.
        """
        try:
            return self._shape.decode(payload)
        except msgspec.DecodeError as exc:
            problem = misfit(exc)
        except (UnicodeDecodeError, RecursionError):
            problem = "not valid JSON"
        # Raised out here: a chained cause would carry the payload.
        raise ArgumentsMisfit(
            f"the stored arguments do not fit {self._kind}: {problem}; the handler "
            "has changed since, or the row was written by hand"
        )

    @cached_property
    def schema(self) -> bytes:
        """JSON Schema of the arguments object, encoded as JSON."""
        return self._shape.schema()

    @cached_property
    def _shape(self) -> ArgumentShape:
        hints = annotations_of(self._function, self._kind)
        return ArgumentShape(self._signature, hints, self._kind)

    def _shape_without(self, names: frozenset[str]) -> ArgumentShape:
        """Return the shape that allows any value for these arguments."""
        if names not in self._loose:
            hints = dict(annotations_of(self._function, self._kind))
            for parameter in self._signature.parameters.values():
                is_extra = parameter.kind is parameter.VAR_KEYWORD
                if parameter.name in names or (
                    is_extra and not names.issubset(self._shape.names)
                ):
                    hints[parameter.name] = Any
            self._loose[names] = ArgumentShape(self._signature, hints, self._kind)
        return self._loose[names]

    def _encode(
        self, given: dict[str, Any], max_bytes: int, held: StepValues | None = None
    ) -> bytes:
        shape = self._shape_without(frozenset(held)) if held else self._shape
        try:
            self._refuse_untyped(given)
            check_objects(given, shape.struct)
            payload = encode(given)
            shape.check(payload)
        except msgspec.ValidationError as exc:
            raise self._rejected(self._misplaced(given, held) or misfit(exc)) from None
        except NotJson as exc:
            problem = self._misplaced(given, held) or f"{_culprit(given)}{exc}"
            raise self._rejected(problem) from None
        if _MARKER in payload:
            self._check_markers(payload, given, held)
        if len(payload) > max_bytes:
            raise self._rejected(
                f"they take {len(payload):,} bytes as JSON, at most {max_bytes:,} "
                f"({show_size(max_bytes)}) are allowed; store the data elsewhere and "
                "send a reference to it, or raise payload_max"
            )
        return payload

    def _refuse_untyped(self, given: Mapping[str, Any]) -> None:
        """Refuse values of untyped parameters that would not arrive as sent."""
        shape = self._shape
        if not shape.open_names and not shape.extra_is_open:
            return
        for name, value in given.items():
            own = name in shape.names
            if name in shape.open_names or (not own and shape.extra_is_open):
                try:
                    refuse_flaws(value)
                except NotPlainJson as exc:
                    raise NotJson(
                        f"{exc}; send plain JSON, or annotate {name!r} with the type "
                        "that it should arrive as"
                    ) from None

    def _misplaced(self, given: Mapping[str, Any], held: StepValues | None) -> str:
        """Say that values of steps are not allowed here; "": there are none."""
        return _IN_FLOWS if held is None and step_values_in(given) else ""

    def _check_markers(
        self, payload: bytes, given: Mapping[str, Any], held: StepValues | None
    ) -> None:
        """Refuse data that would be taken for the value of a step."""
        meant = sum(map(len, held.values())) if held else 0
        found = sum(1 for _ in markers_in(msgspec.json.decode(payload)))
        if found != meant:
            raise self._rejected(
                self._misplaced(given, held)
                or f"an object has the key {MARKER!r}, which stands for the value of a "
                "flow's step; give it another name"
            )

    def _rejected(self, problem: str) -> ArgumentsRejected:
        return ArgumentsRejected(
            f"arguments of {self._kind} are refused, nothing was enqueued: {problem}"
        )


def _culprit(given: Mapping[str, Any]) -> str:
    """Return the first argument that cannot be encoded by itself, for a message."""
    for name, value in given.items():
        try:
            encode(value)
            refuse_flaws(value)
        except NotJson:
            return f"argument {name!r}: "
    return ""
