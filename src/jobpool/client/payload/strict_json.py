"""Strict JSON: values that plain encoding would alter are refused.

msgspec encodes NaN as null, any key as text, and a datetime as text even if no type
restores it. Such values are found here before they are stored. No message ever shows a
value: arguments and results may be secret.
"""

from __future__ import annotations

import contextlib
import functools
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, get_origin

import msgspec

from jobpool.client.payload.step_value import StepValue

DEPTH_MAX = 64
"""Most levels of nested lists and objects, including the arguments object."""

NO_NUL = r"^[^\x00]*$"
NO_OPTION = r"^(?!-)[^\x00]*$"
NO_OPTION_AND_SOME = r"^(?!-)[^\x00]+$"
_PATTERNS = {
    NO_NUL: "it has a NUL, which no program can be given",
    NO_OPTION: "it begins with '-', which the program would take for an option, or has "
    "a NUL; a path can begin with './'",
    NO_OPTION_AND_SOME: "it is empty or begins with '-', so that its word would be an "
    "option, or it has a NUL",
}
"""What is wrong with a text that does not match, for messages."""
_MISFIT = re.compile(r"(?P<what>.*?)(?: - at `(?P<path>\$.*)`)?", re.DOTALL)
_FIELD = re.compile(r"Object (?:contains )?(unknown|missing) .*?field `(.*)`")


class NotJson(Exception):
    """A value cannot be encoded as JSON unaltered; the message says why."""


class NotPlainJson(NotJson):
    """A value has a type that JSON does not have; an annotation would help."""


def to_plain(value: Any) -> Any:
    """Encode a type unknown to msgspec: a path becomes text, a model an object."""
    if _is_path(type(value)):
        return str(value)
    if _is_model(type(value)):
        return value.model_dump(mode="json")
    if type(value) is StepValue:
        return value.packed()
    raise NotJson(f"{_named(value)} has no JSON form")


def from_plain(wanted: Any, value: Any) -> Any:
    """Decode a type unknown to msgspec, or check that the value has it already."""
    plain = get_origin(wanted) or wanted
    if _is_path(plain):
        return plain(value)
    if isinstance(value, plain):
        return value
    if _is_model(plain):
        return plain.model_validate(value)
    raise TypeError(f"expected {plain.__qualname__}")


def _is_path(kind: type) -> bool:
    from pathlib import PurePath  # noqa: PLC0415 - most applications send no paths

    return issubclass(kind, PurePath)


def _is_model(kind: type) -> bool:
    """Say whether it is a pydantic model, without importing pydantic."""
    return hasattr(kind, "__pydantic_validator__") and hasattr(kind, "model_validate")


def schema_of(wanted: Any) -> dict[str, Any]:
    """Describe a type unknown to msgspec; all but paths and models allow anything.

    What a model refers to is in its own ``$defs``.
    """
    plain = get_origin(wanted) or wanted
    if _is_path(plain):
        return {"type": "string"}
    if _is_model(plain):
        described: dict[str, Any] = plain.model_json_schema()
        return described
    return {"title": plain.__name__}


_encoder = msgspec.json.Encoder(enc_hook=to_plain)
_SAME_IN_JSON = frozenset({bool, int, float, str, type(None)})


def _half_a_pair() -> NotJson:
    return NotJson(
        "text with half a surrogate pair, which is not valid Unicode; decode it with "
        'errors="replace", or send bytes'
    )


def check_objects(given: Mapping[str, Any], wanted: type[msgspec.Struct]) -> None:
    """Refuse values of which only the JSON would fit: a datetime for a text.

    Values that are the same in JSON are skipped: checking the payload suffices.

    Raises:
        msgspec.ValidationError: it does not fit.
        NotJson: it has no JSON form.
    """
    if {str}.issuperset(map(type, given)) and _SAME_IN_JSON.issuperset(
        map(type, given.values())
    ):
        return
    try:
        msgspec.convert(given, wanted, dec_hook=from_plain)
    except msgspec.ValidationError:
        raise
    except UnicodeEncodeError:
        raise _half_a_pair() from None  # as in `encode`
    except Exception as exc:  # noqa: BLE001 - msgspec asks any object for its keys
        name = type(exc).__name__
        raise NotJson(f"its values cannot be inspected ({name})") from None


def encode(value: Any) -> bytes:
    """Return *value* as JSON.

    Raises:
        NotJson: it has no faithful JSON form: an unknown type, NaN or infinity, half
            a surrogate pair, keys that are not text, deeper than `DEPTH_MAX`.
    """
    if value is None:  # a fast path: most handlers return it
        return b"null"
    try:
        encoded = _encoder.encode(value)
    except UnicodeEncodeError:
        # Not chained, here and below: the cause carries the value.
        raise _half_a_pair() from None
    except RecursionError:
        raise NotJson(
            f"nested deeper than {DEPTH_MAX} levels, or contains itself"
        ) from None
    except (TypeError, ValueError, OverflowError) as exc:
        raise NotJson(_first_line(exc)) from None
    # A closer check is slow; without one of these signs nothing can be wrong.
    if b"null" in encoded or _may_be_deep(encoded):
        refuse_flaws(msgspec.to_builtins(value, enc_hook=to_plain))
    return encoded


def step_values_in(given: Mapping[str, Any]) -> dict[str, list[StepValue]]:
    """Return the values of steps that would be encoded, by the names of arguments.

    An argument that cannot be encoded is passed over: `encode` says why.
    """
    found: dict[str, list[StepValue]] = {}
    for name, value in given.items():
        held: list[StepValue] = []
        encoder = msgspec.json.Encoder(enc_hook=functools.partial(_noted, held))
        with contextlib.suppress(
            NotJson, TypeError, ValueError, OverflowError, RecursionError
        ):
            encoder.encode(value)
        if held:
            found[name] = held
    return found


def _noted(held: list[StepValue], value: Any) -> Any:
    if type(value) is StepValue:
        held.append(value)
    return to_plain(value)


def _may_be_deep(encoded: bytes) -> bool:
    if len(encoded) <= DEPTH_MAX:
        return False
    return encoded.count(b"[") + encoded.count(b"{") > DEPTH_MAX


def refuse_flaws(value: Any) -> None:
    """Refuse a tree of built-in values that JSON cannot represent.

    Raises:
        NotPlainJson: it has something other than None, bool, int, float, str, list,
            tuple and dict with text keys.
        NotJson: it has NaN or infinity, or is deeper than `DEPTH_MAX`.
    """
    level: list[Any] = [value]
    for _ in range(DEPTH_MAX + 1):
        inner: list[Any] = []
        for one in level:
            inner.extend(_parts(one))
        if not inner:
            return
        level = inner
    raise NotJson(f"nested deeper than {DEPTH_MAX} levels")


def _parts(value: Any) -> Iterable[Any]:
    """Return what *value* contains; raise NotJson if it is itself invalid."""
    if value is None or isinstance(value, (str, int)):
        return ()
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NotJson(f"{value} is not a JSON number; send None or text instead")
        return ()
    if isinstance(value, (list, tuple)):
        return value
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise NotPlainJson(f"an object's key is {_named(key)}, not text")
        return value.values()
    if type(value) is StepValue:
        return ()
    raise NotPlainJson(f"{_named(value)} is not a JSON value")


def misfit(exc: msgspec.DecodeError) -> str:
    """Return what does not fit and where, by names only, never a value."""
    if not isinstance(exc, msgspec.ValidationError):
        return "not valid JSON"
    match = _MISFIT.fullmatch(_first_line(exc))
    what, path = (match["what"], match["path"] or "") if match else ("", "")
    if exc.__cause__ is not None:
        what = f"refused by its type ({type(exc.__cause__).__name__})"
    elif what.startswith("Invalid ") and " value " in what:
        what = "not one of the values that its type allows"
    elif what.startswith("Expected `str` matching regex"):
        what = next((words for p, words in _PATTERNS.items() if repr(p) in what), what)
    elif not path and (field := _FIELD.match(what)):
        return f"{field[1]} argument {field[2]!r}"
    what = f"{what[:1].lower()}{what[1:]}"
    name, dot, inside = path.removeprefix("$").removeprefix(".").partition(".")
    name, bracket, index = name.partition("[")
    if not name:
        return what
    at = f" at {bracket}{index}{dot}{inside}" if bracket or dot else ""
    return f"argument {name!r}{at}: {what}"


def _named(value: Any) -> str:
    kind = type(value)
    name = kind.__qualname__
    if kind.__module__ != "builtins":
        name = f"{kind.__module__}.{name}"
    return f"a value of type {name}"


def _first_line(exc: Exception) -> str:
    return str(exc).partition("\n")[0][:300]
