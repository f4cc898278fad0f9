"""Which arguments of a kind are hidden wherever jobs are shown. Pure.

Theory of operation. A handler declares paths: ``card``, ``customer.iban``. They are
published in its schema under a keyword of their own, which validators ignore. Two
places use them. The child takes the values at these paths out of an exception's text
and of what the attempt wrote, before anybody else has them. Whatever shows a job hides
the values themselves, and what a child could not clean, such as the output of a killed
attempt. A path goes through lists: ``cards.number`` is meant in each of the cards.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from jobpool.core.application.handler_spec import HOOK_DEAD, HOOK_QUARANTINED

HIDDEN = "[redacted]"
"""Stands where a value was."""
KEYWORD = "x-redact"
_GAP = "\ufdd0"
"""Is never a character of a text."""
PATHS_MAX = 100
SECRET_CHARS_MIN = 4
"""Shorter values are not looked for in texts: a 1 would be found everywhere."""
SECRETS_MAX = 2000
"""So many values of one job are looked for in texts; with more, no text is shown."""
_LINES_MAX = 1000
"""A text that has all lines of a longer secret is hidden: to search it takes long."""
EVERYTHING = [""]
"""Secrets of a job whose texts are hidden as wholes: they cannot all be looked for."""
_CUT = re.compile(r"\[\d+ (?:bytes|characters) before this left out\]\n\ufffd*")
"""Stands before the end of a text."""


class Redaction(msgspec.Struct, frozen=True):
    """What a kind's schema says of redaction."""

    paths: tuple[str, ...]
    aliases: tuple[str, ...] = ()
    """Its former names: jobs may be stored with them."""


def with_redaction(
    schema: bytes, paths: Sequence[str], aliases: Sequence[str]
) -> bytes:
    """Return a kind's schema with the paths that it hides, if any."""
    if not paths:
        return schema
    said = {"paths": list(paths), "aliases": list(aliases)}
    return msgspec.json.encode({**msgspec.json.decode(schema), KEYWORD: said})


def without_redaction(schema: bytes) -> bytes:
    """Return a schema as if nothing were hidden: the arguments are the same."""
    if KEYWORD.encode() not in schema:
        return schema
    try:
        found = msgspec.json.decode(schema)
    except (msgspec.DecodeError, RecursionError):
        return schema
    if not isinstance(found, dict) or found.pop(KEYWORD, None) is None:
        return schema
    return msgspec.json.encode(found)


def redaction_in(schema: bytes) -> Redaction | None:
    """Return what a schema says; None: it hides nothing, or somebody has damaged it."""
    if KEYWORD.encode() not in schema:
        return None
    try:
        return msgspec.json.decode(schema, type=_Schema).said
    except (msgspec.DecodeError, RecursionError):
        return None


class _Schema(msgspec.Struct):
    said: Redaction = msgspec.field(name=KEYWORD)


def hidden(value: Any, paths: Sequence[str], steps: Iterable[str | int] = ()) -> Any:
    """Return a JSON value in which what stands at a path is hidden.

    Args:
        value: the value.
        paths: from the whole that it is a part of.
        steps: names and indexes that lead to it; none: it is the whole.
    """
    inside: list[Sequence[str]] = [path.split(".") for path in paths]
    for step in steps:
        if isinstance(step, str):
            inside = [path[1:] for path in inside if path[0] == step]
            if any(not path for path in inside):
                return HIDDEN
    try:
        return _hidden(value, inside)
    except RecursionError:  # lists in lists without end
        return HIDDEN


def _hidden(value: Any, paths: Sequence[Sequence[str]]) -> Any:
    if isinstance(value, list):
        return [_hidden(one, paths) for one in value]
    if not isinstance(value, dict):
        return value
    shown = {}
    for name, one in value.items():
        inside = [path[1:] for path in paths if path[0] == name]
        is_hidden = any(not path for path in inside)
        shown[name] = HIDDEN if is_hidden else _hidden(one, inside) if inside else one
    return shown


def secrets_in(value: Any, paths: Sequence[str]) -> list[str]:
    """Return the values at some paths, as they may stand in texts: longest first.

    `EVERYTHING`, if they are too many, or stand too deep. Else a long argument that is
    anybody's could keep another one from being hidden.
    """
    try:
        found = {
            text
            for path in paths
            for one in _at(value, path.split("."))
            for text in _texts(one)
            if len(text) >= SECRET_CHARS_MIN
        }
    except RecursionError:
        return EVERYTHING
    if len(found) > SECRETS_MAX:
        return EVERYTHING
    return sorted(found, key=len, reverse=True)


def _at(value: Any, path: Sequence[str]) -> Iterator[Any]:
    if isinstance(value, list):
        for one in value:
            yield from _at(one, path)
    elif not path:
        yield value
    elif isinstance(value, dict) and path[0] in value:
        yield from _at(value[path[0]], path[1:])


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts of all that a value holds: as it is, in a repr, in JSON."""
    if isinstance(value, (list, dict)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _texts(one)
    elif isinstance(value, str):
        yield from (value, repr(value)[1:-1], json.dumps(value)[1:-1])
        yield json.dumps(value, ensure_ascii=False)[1:-1]
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def scrubbed(text: str, secrets: Sequence[str]) -> str:
    """Return a text without secrets, longest first.

    Of a text that has lost its beginning, it may be in the midst of a secret.
    """
    if secrets == EVERYTHING:
        return HIDDEN if text else text
    if secrets and (cut := _CUT.match(text)):
        rest = text[cut.end() :]
        text = f"{cut[0]}{_without_end(rest, secrets)}"
    for secret in secrets:
        # One character meanwhile: a secret may be part of what stands for others.
        text = text.replace(secret, _GAP)
        if "\n" in secret:
            text = _without_indented(text, secret)
    return text.replace(_GAP, HIDDEN)


def _without_indented(text: str, secret: str) -> str:
    """Return a text without a secret of several lines, each of which is indented.

    So a traceback of a group of exceptions has it.
    """
    lines = secret.split("\n")
    if not all(line in text for line in lines):
        return text
    if len(lines) > _LINES_MAX:
        return HIDDEN
    return re.sub(r"\n[ \t|]*".join(map(re.escape, lines)), _GAP, text)


def _without_end(text: str, secrets: Iterable[str]) -> str:
    """Return a text without the end of a secret with which it begins."""
    begin = text[:SECRET_CHARS_MIN]
    longest = 0
    for secret in secrets if len(begin) == SECRET_CHARS_MIN else ():
        place = secret.find(begin)
        while place >= 0 and not text.startswith(secret[place:]):
            place = secret.find(begin, place + 1)
        if place >= 0:
            longest = max(longest, len(secret) - place)
    return _GAP + text[longest:] if longest else text


def scrubbed_json(value: Any, secrets: Sequence[str]) -> Any:
    """Return a JSON value without secrets in any of its texts, names and numbers."""
    if secrets == EVERYTHING:
        return HIDDEN
    if isinstance(value, str):
        return scrubbed(value, secrets)
    if isinstance(value, list):
        return [scrubbed_json(one, secrets) for one in value]
    if isinstance(value, dict):
        return {
            scrubbed(name, secrets): scrubbed_json(one, secrets)
            for name, one in value.items()
        }
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return HIDDEN if is_number and str(value) in secrets else value


class _Subject(msgspec.Struct):
    kind: str = ""
    payload: bytes | None = None


class _Told(msgspec.Struct):
    """The payload of a hook's job, as far as it matters here."""

    job: _Subject


def told_of(kind: str, payload: bytes | None) -> tuple[str, bytes | None]:
    """Return whose arguments a job holds, and these: a hook's job holds another's."""
    if kind not in (HOOK_DEAD, HOOK_QUARANTINED):
        return kind, payload
    try:
        job = msgspec.json.decode(payload or b"", type=_Told).job
    except (msgspec.DecodeError, RecursionError):
        return kind, payload
    return job.kind, job.payload


_PATH = re.compile(r"[^.\s]+(\.[^.\s]+)*")


def is_path(path: Any) -> bool:
    """Say whether this is a path: names, separated by dots."""
    return isinstance(path, str) and _PATH.fullmatch(path) is not None
