"""What quotas count the jobs of a handler by: values of its arguments, as text.

They are taken from the arguments as they are stored, with the defaults of those that
are not: whoever reads the payload later counts the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from typing import Any

import msgspec

from jobpool.client.payload.annotations import signature_of
from jobpool.client.payload.redact_paths import referred
from jobpool.client.payload.strict_json import NotJson, encode
from jobpool.core.rules.quotas.lanes import value_at
from jobpool.errors import ArgumentsRejected, ConfigError, UsageError

_PLAIN = frozenset({str, int, bool, type(None)})
_COUNTED = frozenset({"string", "integer", "boolean"})


class CountedArguments:
    """What one handler's jobs are counted by.

    Args:
        function: the handler's function.
        kind: its kind, for messages.
        paths: of arguments (``vendor_id``, ``order.vendor``), and by the name of which
            quota.

    Raises:
        ConfigError: it has no such argument, or one whose default cannot be counted.
    """

    def __init__(
        self, function: Callable[..., Any], kind: str, paths: Mapping[str, str]
    ) -> None:
        parameters = signature_of(function).parameters
        self._kind = kind
        self.paths = paths
        self._names = {path.partition(".")[0] for path in paths}
        self._rest = {name for name, one in parameters.items() if one.kind in _REST}
        self._takes_any = any(
            one.kind is one.VAR_KEYWORD for one in parameters.values()
        )
        self._defaults = {
            name: one.default
            for name, one in parameters.items()
            if name not in self._rest
        }
        for path, quota in paths.items():
            self._check(path, quota)

    def values(self, given: Mapping[str, Any]) -> dict[str, str] | None:
        """Return what a job counts by; None: nothing.

        Args:
            given: its arguments by name, as the caller gave them.

        Raises:
            ArgumentsRejected: a value is of a type that cannot be counted by.
        """
        if not self.paths:
            return None
        plain = {name: self._plain(name, given) for name in self._names}
        found: dict[str, str] = {}
        for path, quota in self.paths.items():
            try:
                found[path] = value_at(path, plain)
            except UsageError as exc:
                raise ArgumentsRejected(
                    f"arguments of {self._kind} are refused, since quota {quota!r} "
                    f"counts by one of them: {exc}"
                ) from None
        return found

    def value(self, path: str, given: Mapping[str, Any]) -> str:
        """Return what an argument counts as.

        Raises:
            UsageError: the handler has no such argument, or it cannot be counted by.
        """
        name = path.partition(".")[0]
        if not self._has(name):
            raise UsageError(f"{self._kind} has no argument {name!r}")
        return value_at(path, {name: self._plain(name, given)})

    def _plain(self, name: str, given: Mapping[str, Any]) -> Any:
        value = given[name] if name in given else self._defaults.get(name)
        if type(value) in _PLAIN:
            return value
        if value is Parameter.empty:
            return None
        return msgspec.json.decode(encode(value))

    def _has(self, name: str) -> bool:
        return name in self._defaults or (self._takes_any and name not in self._rest)

    def _check(self, path: str, quota: str) -> None:
        name = path.partition(".")[0]
        if not self._has(name):
            known = ", ".join(self._defaults) or "no arguments"
            raise ConfigError(
                f"quotas: {quota!r} counts by args.{path}, which {self._kind} does not "
                f"have (it has {known})"
            )
        try:
            value_at(path, {name: self._plain(name, {})})
        except (NotJson, UsageError) as exc:
            raise ConfigError(
                f"quotas: {quota!r} counts by args.{path}, and the default of {name!r} "
                f"in {self._kind} cannot be counted by: {exc}"
            ) from None


_REST = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def check_counted(paths: Mapping[str, str], schema: bytes, kind: str) -> None:
    """Refuse a path that by the arguments' JSON Schema leads to nothing to count by.

    Raises:
        ConfigError: names the path, the quota and the kind.
    """
    whole = msgspec.json.decode(schema) if paths else {}
    for path, quota in paths.items():
        if not _leads_on(whole, whole, path.split(".")):
            raise ConfigError(
                f"quotas: {quota!r} counts by args.{path}, but by the annotations of "
                f"{kind} there can be no text, whole number or truth value there; mind "
                "nested names as well"
            )


def _leads_on(
    node: Mapping[str, Any], whole: Mapping[str, Any], path: Sequence[str]
) -> bool:
    """Say whether a path may lead to something to count by."""
    node = referred(node, whole)
    if branches := node.get("anyOf") or node.get("oneOf") or node.get("allOf"):
        return any(_leads_on(branch, whole, path) for branch in branches)
    kinds = node.get("type")
    if kinds is None:
        return True  # anything fits
    kinds = {kinds} if isinstance(kinds, str) else set(kinds)
    if not path:
        return bool(kinds & _COUNTED)
    if "object" not in kinds:
        return False
    properties = node.get("properties", {})
    inner = properties.get(path[0], node.get("additionalProperties", not properties))
    return inner if isinstance(inner, bool) else _leads_on(inner, whole, path[1:])
