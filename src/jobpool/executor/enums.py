"""Enumerations by value: dill cannot take those apart that nobody can import."""

from __future__ import annotations

from collections.abc import Mapping
from enum import EnumMeta
from types import FunctionType
from typing import Any

_SINGLE = (FunctionType, property, classmethod, staticmethod)


def members_of(cls: EnumMeta) -> dict[str, Any]:
    """Return values by name, aliases included."""
    members: Mapping[str, Any] = cls.__members__
    return {name: member.value for name, member in members.items()}


def methods_of(cls: EnumMeta) -> dict[str, Any]:
    """Return what its author has defined beside the members."""
    return {
        name: value
        for name, value in vars(cls).items()
        if name not in cls.__members__
        and isinstance(value, _SINGLE)
        and (not name.startswith("_") or _is_by(value, cls))
    }


def make_enum(
    bases: tuple[type, ...],
    name: str,
    qualname: str,
    module: str,
    members: Mapping[str, Any],
) -> EnumMeta:
    """Make the class anew, without its methods."""
    meta = type(bases[-1])
    if not issubclass(meta, EnumMeta):
        raise TypeError(f"{name} is no enumeration")
    namespace = meta.__prepare__(name, bases)
    for member, value in members.items():
        namespace[member] = value
    made = meta(name, bases, namespace)
    made.__module__, made.__qualname__ = module, qualname
    return made


def add_methods(cls: EnumMeta, methods: Mapping[str, Any]) -> None:
    """Give it its methods."""
    for name, value in methods.items():
        setattr(cls, name, value)


def _is_by(value: Any, cls: EnumMeta) -> bool:
    """Say whether a method with an underscore stands in the class's own code."""
    return (
        isinstance(value, FunctionType)
        and value.__qualname__ == f"{cls.__qualname__}.{value.__name__}"
    )
