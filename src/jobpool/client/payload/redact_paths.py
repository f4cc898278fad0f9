"""Checks that what a handler redacts is among its arguments: a slip hides nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from jobpool.core.application.redaction import PATHS_MAX, is_path
from jobpool.errors import ConfigError


def read_redact(redact: Any) -> tuple[str, ...]:
    """Return the paths that a decorator names.

    Raises:
        ConfigError: it is no list of paths, or too long.
    """
    if isinstance(redact, str):
        raise ConfigError(
            f"redact: expected a list of paths, got text; write [{redact[:60]!r}]"
        )
    try:
        paths = tuple(redact)
    except TypeError:
        raise ConfigError(
            f"redact: expected a list of paths, got {type(redact).__name__}"
        ) from None
    for path in paths:
        if not is_path(path):
            raise ConfigError(
                f"redact: {path!r:.60} is no path; expected names separated by dots, "
                'such as "card" or "customer.iban"'
            )
    if len(paths) > PATHS_MAX:
        raise ConfigError(f"redact: {len(paths)} paths; expected at most {PATHS_MAX}")
    return paths


def check_redact(paths: Sequence[str], schema: bytes, kind: str) -> None:
    """Refuse a path that leads nowhere by the arguments' JSON Schema.

    Raises:
        ConfigError: it would hide nothing.
    """
    if not paths:
        return
    whole = msgspec.json.decode(schema)
    for path in paths:
        if not _leads_on(whole, whole, path.split(".")):
            known = ", ".join(whole.get("properties", {})) or "no arguments"
            raise ConfigError(
                f"redact: {path!r} is not among the arguments of {kind} ({known}), "
                "and would hide nothing; mind nested names as well. A path goes "
                "through lists, not through mappings: name these themselves"
            )


def _leads_on(
    node: Mapping[str, Any], whole: Mapping[str, Any], path: Sequence[str]
) -> bool:
    """Say whether a path may lead to a value that fits a part of a schema."""
    if not path:
        return True
    node = referred(node, whole)
    if branches := node.get("anyOf") or node.get("oneOf") or node.get("allOf"):
        return any(_leads_on(branch, whole, path) for branch in branches)
    kinds = node.get("type")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds is None:
        return True  # anything fits
    inside: list[tuple[Any, Sequence[str]]] = []
    if "array" in kinds:
        items = [*node.get("prefixItems", ()), node.get("items", {})]
        inside += [(one, path) for one in items]
    if "object" in kinds:
        properties = node.get("properties", {})
        others = node.get("additionalProperties", not properties)
        # A mapping's values are not in the path: it would have named one of its keys.
        if path[0] in properties or not _declares(others, whole, path[0]):
            inside.append((properties.get(path[0], others), path[1:]))
    return any(
        _leads_on(one, whole, rest) if isinstance(one, dict) else one is True
        for one, rest in inside
    )


def _declares(node: Any, whole: Mapping[str, Any], name: str) -> bool:
    """Say whether the objects that fit a part of a schema have a field of this name."""
    if not isinstance(node, dict):
        return False
    node = referred(node, whole)
    branches = [
        *(one for word in ("anyOf", "oneOf", "allOf") for one in node.get(word, ())),
        *node.get("prefixItems", ()),
        node.get("items"),
    ]
    return name in node.get("properties", {}) or any(
        _declares(one, whole, name) for one in branches
    )


def referred(node: Mapping[str, Any], whole: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of a schema that another one refers to, or that one."""
    if "$ref" not in node:
        return node
    found: Mapping[str, Any] = whole.get("$defs", {}).get(
        node["$ref"].rpartition("/")[2], {}
    )
    return found
