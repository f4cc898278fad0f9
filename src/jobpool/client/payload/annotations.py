"""A handler's annotations, resolved at first use."""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from inspect import Parameter, Signature
from typing import Annotated, Any, Literal, TypeVar

from jobpool.errors import ConfigError

if sys.version_info >= (3, 14):
    from annotationlib import Format

_OPEN = (
    Any,
    object,
    Parameter.empty,
    dict,
    list,
    tuple,
    typing.Mapping,
    typing.Sequence,
    typing.Iterable,
)
"""Annotations that do not fix the type of a value or of what it contains."""
_PLAIN = (str, int, float, bool, type(None))


def signature_of(function: Callable[..., Any]) -> Signature:
    """Return the signature; names in its annotations need not be defined yet."""
    if sys.version_info >= (3, 14):
        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)


def annotations_of(function: Callable[..., Any], kind: str) -> Mapping[str, Any]:
    """Return the annotations by parameter name, and the result's as ``return``.

    They are resolved at first use, not at decoration, so that a handler may name types
    that its module defines further down.

    Raises:
        ConfigError: a name in them is not defined at run time.
    """
    target: Any = function
    while isinstance(target, functools.partial):
        target = target.func
    if not inspect.isroutine(target):
        target = type(target).__call__
    try:
        return typing.get_type_hints(target, include_extras=True)
    except (NameError, AttributeError, TypeError, SyntaxError) as exc:
        raise ConfigError(
            f"the annotations of {kind} cannot be resolved ({exc}); jobpool reads "
            "them at run time: import their names outside `if TYPE_CHECKING:`"
        ) from exc


def is_open(annotation: Any) -> bool:
    """Return whether values pass through JSON without a type that restores them.

    True for Any, ``dict``, ``list[Any]``, ``dict[str, Any]`` and the like; False once a
    part names a type that JSON does not have, which msgspec then restores.
    """
    leaves = list(_leaves(annotation))
    return all(leaf in _OPEN or leaf in _PLAIN for leaf in leaves) and any(
        leaf in _OPEN for leaf in leaves
    )


def _leaves(annotation: Any) -> Iterator[Any]:
    origin = typing.get_origin(annotation)
    if isinstance(annotation, TypeVar):
        yield Any
    elif origin is Annotated:
        yield from _leaves(typing.get_args(annotation)[0])
    elif origin is Literal:
        yield str
    elif origin in (set, frozenset):
        yield origin
    elif parts := typing.get_args(annotation):
        for part in parts:
            if part is not Ellipsis:
                yield from _leaves(part)
    else:
        yield annotation
