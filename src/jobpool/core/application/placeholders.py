"""Placeholders: where the results of a flow's step will stand in arguments.

Theory of operation. A member of a flow is stored before the results that it needs
exist. Its payload says where they go: ``{"$jobpool.step": 3}`` is the result of the one
member of step 3, ``{"$jobpool.step": [3]}`` the list of the results of all its members,
in the order in which they were added. Clients write them in the arguments of a call,
and refuse other data with such a key. The child alone fills them in, before it checks
the arguments against the handler: stores and supervisors carry a payload as it is, also
an encoded one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

MARKER = "$jobpool.step"
"""The only key of the object that stands for results."""
_MARKER = MARKER.encode()
_PACKED = re.compile(rb'({"%b":\[?)(\d+)' % re.escape(_MARKER))
"""A placeholder as it is packed, up to its number. Within a text each of these quotes
has a backslash before it, so that no text looks like one."""


class NoResult(Exception):
    """A result that a payload needs is not there; the message says of which step."""


def placeholder(number: int, *, many: bool) -> dict[str, Any]:
    """Return what stands in a payload for the results of a step.

    Args:
        number: the step's, within its flow.
        many: it stands for a list of all results, not for the only one.
    """
    return {MARKER: [number] if many else number}


def steps_in(payload: bytes) -> tuple[int, ...]:
    """Return the numbers of the steps whose results a payload needs, in order.

    Empty also for a payload that is not JSON: whoever decodes it will say so.

    Args:
        payload: arguments as JSON, decoded if there is a codec.
    """
    if _MARKER not in payload:
        return ()
    try:
        found = [_number(what) for what in markers_in(msgspec.json.decode(payload))]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()
    return tuple(sorted({number for number in found if number is not None}))


def filled(payload: bytes, results: Mapping[int, Sequence[bytes]]) -> bytes:
    """Return a payload with results in the place of their placeholders.

    Args:
        payload: arguments as JSON, as `steps_in` takes them.
        results: of each step that `steps_in` names: its results as JSON, decoded if
            there is a codec, in the order of its members.

    Raises:
        NoResult: a step with one member has none.
    """
    if _MARKER not in payload:
        return payload
    return msgspec.json.encode(_filled(msgspec.json.decode(payload), results))


def shifted(payload: bytes, by: int) -> bytes:
    """Return a payload whose placeholders stand for steps of other numbers.

    Args:
        payload: arguments as JSON, as a client has packed them.
        by: what is added to the number of each step.
    """
    return _PACKED.sub(lambda found: b"%b%d" % (found[1], int(found[2]) + by), payload)


def markers_in(value: Any) -> Iterator[Any]:
    """Yield what each object with the key `MARKER` has under it, in JSON values."""
    if isinstance(value, list):
        for one in value:
            yield from markers_in(one)
    elif isinstance(value, dict):
        if MARKER in value:
            yield value[MARKER]
        for one in value.values():
            yield from markers_in(one)


def _filled(value: Any, results: Mapping[int, Sequence[bytes]]) -> Any:
    if isinstance(value, list):
        return [_filled(one, results) for one in value]
    if not isinstance(value, dict):
        return value
    number = _number(value.get(MARKER))
    if number is None or len(value) > 1:
        return {name: _filled(one, results) for name, one in value.items()}
    found = [msgspec.Raw(one) for one in results.get(number, ())]
    if isinstance(value[MARKER], list):
        return found
    if not found:
        raise NoResult(
            f"step {number} of its flow has no result: it was skipped, or its data "
            "was erased"
        )
    return found[0]


def _number(what: Any) -> int | None:
    """Return the step that a marker names; None: it is no marker of jobpool's."""
    if isinstance(what, list) and len(what) == 1:
        what = what[0]
    return what if type(what) is int else None
