"""The arguments object of a signature, as a msgspec struct.

Struct fields have neutral names (``a0``, ``a1``, …) and are renamed to the
parameters', so that no parameter's name can clash with one of msgspec's own.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from inspect import Parameter, Signature
from typing import Any

import msgspec

from jobpool.client.payload.annotations import is_open
from jobpool.client.payload.strict_json import from_plain, schema_of
from jobpool.errors import ConfigError

_REST = "rest"


class ArgumentShape:
    """Reads and describes the arguments object of one handler.

    Args:
        signature: the handler's signature.
        hints: its annotations, looked up.
        kind: its kind, for messages.

    Raises:
        ConfigError: an annotation cannot be read from JSON.
    """

    def __init__(
        self, signature: Signature, hints: Mapping[str, Any], kind: str
    ) -> None:
        parameters = signature.parameters.values()
        variadic = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
        self._named = [p for p in parameters if p.kind not in variadic]
        self._rest = _only(parameters, Parameter.VAR_POSITIONAL)
        self._extra = _only(parameters, Parameter.VAR_KEYWORD)
        self._hints = hints
        self.names = tuple(p.name for p in parameters if p is not self._extra)
        """Every parameter that is a field of the object."""
        self.open_names = frozenset(
            p.name
            for p in parameters
            if p is not self._extra and is_open(self._annotation(p))
        )
        """Parameters whose values must be plain JSON: no type restores others."""
        extra_type = Any if self._extra is None else self._annotation(self._extra)
        self.extra_is_open = self._extra is not None and is_open(extra_type)
        try:
            self.struct = self._make_struct()
            self._decoder = msgspec.json.Decoder(self.struct, dec_hook=from_plain)
            self._extra_decoder = msgspec.json.Decoder(extra_type, dec_hook=from_plain)
        except TypeError as exc:
            raise ConfigError(
                f"the parameters of {kind} cannot be read from JSON: "
                f"{str(exc).splitlines()[0]}; annotate them with other types"
            ) from exc

    def decode(self, payload: bytes) -> tuple[list[Any], dict[str, Any]]:
        """Return positional and keyword arguments, typed as annotated.

        Raises:
            msgspec.DecodeError: it is not JSON, or (ValidationError) does not fit.
            UnicodeDecodeError: it is not UTF-8.
            RecursionError: it is nested too deeply.
        """
        struct = self._decoder.decode(payload)
        rest: list[Any] = [] if self._rest is None else list(getattr(struct, _REST))
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for index, parameter in enumerate(self._named):
            value = getattr(struct, f"a{index}")
            if _by_position(parameter, has_rest=bool(rest)):
                args.append(parameter.default if value is msgspec.UNSET else value)
            elif value is not msgspec.UNSET:
                kwargs[parameter.name] = value
        if self._extra is not None:
            kwargs |= self._decode_extra(payload)
        return args + rest, kwargs

    def check(self, payload: bytes) -> None:
        """Refuse what `decode` would refuse."""
        self._decoder.decode(payload)
        if self._extra is not None:
            self._decode_extra(payload)

    def schema(self) -> bytes:
        """Return the object's JSON Schema; a type without one allows anything."""
        whole = msgspec.json.schema(self.struct, schema_hook=schema_of)
        definitions = whole["$defs"]
        schema = definitions.pop(self.struct.__name__)
        del schema["title"]
        for parameter in self._named:
            _note_default(schema["properties"][parameter.name], parameter.default)
        _gather_definitions(schema, definitions)
        schema["additionalProperties"] = self._extra is not None
        if definitions:
            schema["$defs"] = definitions
        return msgspec.json.encode(schema)

    def _annotation(self, parameter: Parameter) -> Any:
        return self._hints.get(parameter.name, Any)

    def _make_struct(self) -> type[msgspec.Struct]:
        fields: list[tuple[str, Any, Any]] = []
        for index, parameter in enumerate(self._named):
            annotation = self._annotation(parameter)
            if parameter.default is Parameter.empty:
                fields.append((f"a{index}", annotation, msgspec.NODEFAULT))
            else:
                # UNSET, not the default itself: it may have no JSON form.
                optional = annotation | msgspec.UnsetType
                fields.append((f"a{index}", optional, msgspec.UNSET))
        names = {f"a{i}": parameter.name for i, parameter in enumerate(self._named)}
        if self._rest is not None:
            fields.append((_REST, list[self._annotation(self._rest)], []))  # type: ignore[misc]
            names[_REST] = self._rest.name
        return msgspec.defstruct(
            "Arguments",
            fields,
            kw_only=True,
            forbid_unknown_fields=self._extra is None,
            rename=names,
        )

    def _decode_extra(self, payload: bytes) -> dict[str, Any]:
        raw = msgspec.json.decode(payload, type=dict[str, msgspec.Raw])
        extra = {}
        for name, value in raw.items():
            if name in self.names:
                continue
            try:
                extra[name] = self._extra_decoder.decode(value)
            except msgspec.ValidationError as exc:
                what, _, inside = str(exc).removesuffix("`").partition(" - at `$")
                problem = f"{what} - at `$.{name}{inside}`"
                raise msgspec.ValidationError(problem) from exc.__cause__
        return extra


def _gather_definitions(schema: Any, found: dict[str, Any]) -> None:
    """Move the ``$defs`` within a schema to where its references look for them."""
    parts = schema.values() if isinstance(schema, dict) else schema
    if isinstance(schema, dict):
        own = schema.pop("$defs", {})
        found |= own
        parts = [*parts, *own.values()]
    for part in parts:
        if isinstance(part, (dict, list)):
            _gather_definitions(part, found)


def _only(parameters: Iterable[Parameter], kind: Any) -> Parameter | None:
    return next((p for p in parameters if p.kind is kind), None)


def _by_position(parameter: Parameter, *, has_rest: bool) -> bool:
    """Return whether it must be passed by position, as what precedes ``*args``."""
    if parameter.kind is Parameter.POSITIONAL_OR_KEYWORD:
        return has_rest
    return parameter.kind is Parameter.POSITIONAL_ONLY


def _note_default(schema: dict[str, Any], default: Any) -> None:
    """Add a default that has a JSON form, for readers of the schema."""
    plain = default is None or isinstance(default, (str, int, float, bool))
    if plain and default is not inspect.Parameter.empty and default == default:  # noqa: PLR0124 - NaN
        schema["default"] = default
