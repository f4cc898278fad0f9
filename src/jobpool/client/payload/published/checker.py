"""ARGS-JSON to a job's payload, checked against the published schema.

Error messages name arguments and what is expected; they never show values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from jobpool.client.payload.strict_json import NotJson, encode
from jobpool.core.application.handler_spec import codec_in
from jobpool.core.units import show_size
from jobpool.errors import ArgumentsRejected

_VERDICTS: Mapping[str, str] = {
    "type": "expected {}",
    "enum": "is none of the values that are allowed",
    "const": "is not the value that is allowed",
    "minimum": "must be at least {}",
    "maximum": "must be at most {}",
    "exclusiveMinimum": "must be above {}",
    "exclusiveMaximum": "must be below {}",
    "multipleOf": "must be a multiple of {}",
    "minLength": "must have at least {} characters",
    "maxLength": "must have at most {} characters",
    "minItems": "must have at least {} items",
    "maxItems": "must have at most {} items",
    "pattern": "must match {}",
    "format": "expected the format {}",
}
_OTHERWISE = "fits none of the types that the handler takes"


class Checker:
    """Checks arguments of one kind.

    Args:
        schema: JSON Schema of the arguments object, as published; ``b"{}"`` takes
            everything.

    Raises:
        ArgumentsRejected: it is not JSON; somebody else has written it.
    """

    def __init__(self, schema: bytes) -> None:
        try:
            self._schema: Any = msgspec.json.decode(schema)
        except (msgspec.DecodeError, RecursionError) as exc:
            raise _no_schema("the arguments", exc) from exc
        self.codec = codec_in(schema)
        """Name of the codec that encodes them in the application; None: none does."""
        self._object = _resolved(self._schema)
        self._validator: Any = None

    @property
    def defaults(self) -> dict[str, Any]:
        """The defaults of arguments, as far as they have a JSON form."""
        found = self._object.get("properties")
        known = found if isinstance(found, dict) else {}
        return {
            name: one["default"]
            for name, one in known.items()
            if isinstance(one, dict) and "default" in one
        }

    def by_name(self, text: str, what: str) -> dict[str, Any]:
        """Return checked arguments by name, in the order of the signature.

        Args:
            text: a JSON object, or an array of arguments by position.
            what: where the text comes from, for error messages.

        Raises:
            ArgumentsRejected: not JSON, or not what the handler takes.
        """
        given = _decode(text, what)
        if isinstance(given, list):
            given = self._named(given, what)
        if not isinstance(given, dict):
            raise ArgumentsRejected(
                f"{what}: expected a JSON object such as "
                '\'{"path": "cat.jpg"}\' or an array such as \'["cat.jpg"]\', got '
                f"{type(given).__name__}"
            )
        self._check(given, what)
        order = {name: n for n, name in enumerate(self._names())}
        return dict(sorted(given.items(), key=lambda kv: order.get(kv[0], len(order))))

    def _names(self) -> list[str]:
        found = self._object.get("properties")
        return list(found) if isinstance(found, dict) else []

    def _named(self, values: list[Any], what: str) -> dict[str, Any]:
        names = self._names()
        if not names and values:
            raise ArgumentsRejected(
                f"{what}: arguments by position need a published kind with named "
                'arguments; give an object, such as \'{"path": "cat.jpg"}\''
            )
        if len(values) > len(names):
            raise ArgumentsRejected(
                f"{what}: {len(values)} arguments by position, expected at most "
                f"{len(names)}: {', '.join(names)}"
            )
        return dict(zip(names, values, strict=False))

    def _check(self, given: dict[str, Any], what: str) -> None:
        if self._schema in ({}, True):
            return
        # Only here: it takes 100 ms to import.
        from jsonschema import Draft202012Validator  # noqa: PLC0415
        from jsonschema.exceptions import best_match  # noqa: PLC0415
        from referencing import Registry  # noqa: PLC0415

        try:
            if self._validator is None:
                # A registry of its own: the usual one would fetch what is not in it.
                self._validator = Draft202012Validator(
                    self._schema, registry=Registry()
                )
            error = best_match(self._validator.iter_errors(given))
            verdict = error and self._verdict(error, given)
        except Exception as exc:
            raise _no_schema(what, exc) from exc
        if verdict:
            raise ArgumentsRejected(f"{what}: {verdict}")

    def _verdict(self, error: Any, given: dict[str, Any]) -> str:
        """Say what is wrong without showing a value."""
        path = ".".join(str(step) for step in error.absolute_path)
        where = f"argument {path!r}" if path else "arguments"
        expected = error.validator_value
        if error.validator == "required":
            missing = [name for name in expected if name not in error.instance]
            return f"{where} lack {', '.join(map(repr, missing))}"
        if error.validator == "additionalProperties" and not path:
            extra = sorted(set(given) - set(self._names()))
            return (
                f"there is no argument {extra[0][:60]!r}; the handler takes "
                f"{', '.join(self._names()) or 'none'}"
            )
        words = _VERDICTS.get(error.validator, _OTHERWISE)
        if isinstance(expected, list):
            expected = " or ".join(map(str, expected))
        return f"{where}: {words.format(expected)}"


def encoded(arguments: dict[str, Any], max_bytes: int, what: str) -> bytes:
    """Encode arguments as a payload.

    Raises:
        ArgumentsRejected: longer than *max_bytes*, or nested too deeply.
    """
    try:
        payload = encode(arguments)
    except NotJson as exc:
        raise ArgumentsRejected(f"{what}: {exc}") from exc
    if len(payload) > max_bytes:
        raise ArgumentsRejected(
            f"{what}: {show_size(len(payload))} of arguments, at most "
            f"{show_size(max_bytes)} are allowed; pass a reference (a path, an id) or "
            "raise payload_max"
        )
    return payload


def _no_schema(what: str, error: Exception) -> ArgumentsRejected:
    return ArgumentsRejected(
        f"{what} cannot be checked: the published schema of this kind is none "
        f"({type(error).__name__}); start a supervisor, which publishes it anew"
    )


def _decode(text: str, what: str) -> Any:
    try:
        return msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as exc:
        raise ArgumentsRejected(
            f"{what} is not JSON: {exc}; quote it for the shell, such as "
            '\'{"path": "cat.jpg"}\''
        ) from exc


def _resolved(schema: Any) -> dict[str, Any]:
    """Return the object schema that a top-level ``$ref`` points to."""
    found = schema
    if isinstance(schema, dict) and isinstance(schema.get("$ref"), str):
        named = schema.get("$defs")
        name = schema["$ref"].rpartition("/")[2]
        found = named.get(name) if isinstance(named, dict) else None
    return found if isinstance(found, dict) else {}
