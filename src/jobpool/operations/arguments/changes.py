"""What differs between the arguments of two jobs, and how the audit trail names it.

A path is a JSON pointer, such as ``/items/3/price``. Names of arguments, and of fields
that the schema declares, come from code. Any other name is a key of somebody's mapping,
and so a part of the data: the trail has ``*`` for it, since it never holds payloads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

Step = str | int
MISSING: Final = object()
"""Stands for a value on the side of a difference that has none."""
ALL = "/*"
"""The path of arguments that cannot be compared."""
NAME_MAX = 100
"""Most characters of one name in a path."""
_DEPTH_MAX = 8
"""Most references in a row that are followed: a schema may be recursive."""


class Difference(NamedTuple):
    """One value that differs."""

    steps: tuple[Step, ...]
    """Names and indexes that lead to it."""
    before: Any
    after: Any

    @property
    def path(self) -> str:
        """The whole path, for those who may see the arguments."""
        return "".join(f"/{_escaped(step)}" for step in self.steps)


def differences(before: Any, after: Any) -> Iterator[Difference]:
    """Yield what differs between two JSON values, as deep inside as possible."""
    yield from _differences((), before, after)


def _differences(
    steps: tuple[Step, ...], before: Any, after: Any
) -> Iterator[Difference]:
    pairs: Iterable[tuple[Step, Any, Any]] | None = None
    if isinstance(before, dict) and isinstance(after, dict):
        pairs = (
            (name, before.get(name, MISSING), after.get(name, MISSING))
            for name in {**before, **after}
        )
    # Of lists of different lengths it is not known which items are the same.
    elif (
        isinstance(before, list)
        and isinstance(after, list)
        and len(before) == len(after)
    ):
        pairs = zip(range(len(before)), before, after, strict=True)
    if pairs is not None:
        for step, old, new in pairs:
            yield from _differences((*steps, step), old, new)
    elif type(before) is not type(after) or before != after:  # 1 is not True here
        yield Difference(steps, before, after)


def changed_paths(before: bytes, after: bytes, schema: bytes) -> tuple[str, ...]:
    """Return the paths of what differs between two jobs' arguments, for the trail.

    Args:
        before: JSON; `ALL` if it cannot be read.
        after: JSON.
        schema: JSON Schema of the arguments object.
    """
    try:
        old = msgspec.json.decode(before)
    except (msgspec.DecodeError, RecursionError):
        return (ALL,)
    found = differences(old, msgspec.json.decode(after))
    known = msgspec.json.decode(schema)
    return tuple(dict.fromkeys(trail_path(one.steps, known) for one in found))


def trail_path(steps: Sequence[Step], schema: Any) -> str:
    """Return a path as the audit trail may have it.

    Args:
        steps: names and indexes.
        schema: JSON Schema of the arguments object, decoded.
    """
    nodes = list(_alternatives(schema, schema))
    path = ""
    for depth, step in enumerate(steps):
        if isinstance(step, int):
            inner = [_item(node, step) for node in nodes]
            path += f"/{step}"
        else:
            declared = [node for node in nodes if step in _properties(node)]
            # An argument that the handler does not take is named as somebody's code
            # had it; where all names are taken, they are data.
            is_closed = any(node.get("additionalProperties") is False for node in nodes)
            is_of_code = bool(declared) or (depth == 0 and is_closed)
            path += f"/{_escaped(step)[:NAME_MAX]}" if is_of_code else "/*"
            inner = [_properties(node)[step] for node in declared] or [
                node.get("additionalProperties") for node in nodes
            ]
        nodes = [found for node in inner for found in _alternatives(node, schema)]
    return path


def _alternatives(node: Any, root: Any, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """Yield the schemas that a schema refers to or chooses among."""
    if not isinstance(node, dict) or depth > _DEPTH_MAX:
        return
    yield node
    named = node.get("$ref")
    if isinstance(named, str) and isinstance(root, dict):
        known = root.get("$defs")
        name = named.rpartition("/")[2]
        found = known.get(name) if isinstance(known, dict) else None
        yield from _alternatives(found, root, depth + 1)
    for choice in ("anyOf", "oneOf", "allOf"):
        several = node.get(choice)
        for one in several if isinstance(several, list) else ():
            yield from _alternatives(one, root, depth + 1)


def _properties(node: Mapping[str, Any]) -> Mapping[str, Any]:
    found = node.get("properties")
    return found if isinstance(found, dict) else {}


def _item(node: Mapping[str, Any], index: int) -> Any:
    first = node.get("prefixItems")
    if isinstance(first, list) and index < len(first):
        return first[index]
    return node.get("items")


def _escaped(step: Step) -> str:
    return str(step).replace("~", "~0").replace("/", "~1")
