"""Settings of pools and kinds: sizes, limits, contradictions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from jobpool.core.config import settings as st
from jobpool.core.config.layers import EVERY, Layer, lookup, nearest
from jobpool.core.config.options import BOUND, KIND, POOL
from jobpool.core.config.readers import Size
from jobpool.core.config.sources import (
    DEFAULT,
    Machine,
    Sources,
    Value,
    field_of,
    subject_of,
    value_of,
)
from jobpool.core.rules.limits import Limits, PoolLimits
from jobpool.core.units import show_duration, show_size
from jobpool.errors import ConfigError


def named_pools(sources: Sources) -> list[str]:
    """Return every pool that a layer names, whether it runs or not."""
    paths = [path for layer in sources.stack for path in layer if path[0] == "pools"]
    return list(dict.fromkeys(path[1] for path in paths if path[1] != EVERY))


def known_pools(sources: Sources) -> tuple[str, ...]:
    """Return the pools that run by these sources, and all others that they name."""
    return tuple(dict.fromkeys((*_pool_names(sources.stack), *named_pools(sources))))


def named_kinds(sources: Sources) -> list[str]:
    """Return every kind that a layer names."""
    paths = [path for layer in sources.stack for path in layer if path[0] == "kinds"]
    return list(dict.fromkeys(path[1] for path in paths))


def pools_of(
    sources: Sources, machine: Machine, values: dict[str, Value]
) -> Iterator[st.PoolSettings]:
    """Yield the pools to run, and add their values to *values* by dotted name.

    Raises:
        ConfigError: a value is wrong, contradicts another, or is missing.
    """
    names = _pool_names(sources.stack)
    _refuse_unknown_pools(sources.stack, names)
    for name in names:
        defaults = _pool_defaults(name, machine)
        found: dict[str, Value] = {}
        for key, option in POOL.items():
            default, why = defaults[key]
            path = ("pools", name, key)
            found[key] = value_of(sources.stack, path, option, default, why)
            values[f"pools.{name}.{key}"] = found[key]
        refuse_contradictions(f"pool {name}", found)
        yield _pool(name, found, machine.memory_bytes // 2)


def _pool_names(stack: Sequence[Layer]) -> list[str]:
    """Return the pools to run: those of the strongest layer that sets any size.

    A file's sections without a size are pools too; if no layer sets a size, ``cpu``
    and ``io`` run as well.
    """
    *above, file = stack
    for layer in above:
        if names := [path[1] for path in layer if path[::2] == ("pools", "size")]:
            return names
    sections = dict.fromkeys(path[1] for path in file if path[0] == "pools")
    if any(path[::2] == ("pools", "size") for path in file):
        return list(sections)
    return list(dict.fromkeys(("cpu", "io", *sections)))


def _refuse_unknown_pools(stack: Sequence[Layer], names: Sequence[str]) -> None:
    """Refuse a flag or variable for a pool that does not run.

    A file may have sections for pools that this start leaves out.
    """
    for layer in stack[:-1]:
        for path, sourced in layer.items():
            is_pool = path[0] == "pools" and path[1] != EVERY
            if is_pool and path[2] != "size" and path[1] not in names:
                raise ConfigError(
                    f"{subject_of(sourced.origin)}: there is no pool {path[1]!r}; "
                    f"{nearest(path[1], names)}"
                )


@cache
def _plain_defaults() -> dict[str, Any]:
    fields = msgspec.structs.fields(st.PoolSettings)
    return {field.name: field.default for field in fields}


def _pool_defaults(name: str, machine: Machine) -> dict[str, tuple[Any, str]]:
    """Return each option's default, as it would be written, and its origin."""
    sizes = {
        "cpu": (machine.cores, "default (the cores)"),
        "io": (st.DEFAULT_IO_SLOTS, DEFAULT),
    }
    memory = st.DEFAULT_MEMORY_BYTES.get(name, st.OTHER_MEMORY_BYTES)
    half = machine.memory_bytes // 2
    memory_origin = "default (half of the memory here)" if half < memory else DEFAULT
    timeout = st.DEFAULT_TIMEOUT_S.get(name, st.OTHER_TIMEOUT_S)
    defaults: dict[str, tuple[Any, str]] = {
        "size": sizes.get(name, (None, "")),
        "memory": (min(memory, half), memory_origin),
        "timeout": (timeout, DEFAULT),
        **dict.fromkeys(("env", "write", "read", "cpus"), ("all", DEFAULT)),
        "max_processes": ("auto", DEFAULT),
        **dict.fromkeys(BOUND, ("none", DEFAULT)),
    }
    for key in POOL:
        if _is_limit(key) and key not in defaults:
            defaults[key] = ("none", DEFAULT)
    plain = _plain_defaults()
    for key in POOL:
        if key == "aging":
            defaults[key] = "none", DEFAULT
        if key not in defaults:
            defaults[key] = (plain[field_of(st.PoolSettings, key)], DEFAULT)
    return defaults


def _pool(
    name: str, found: Mapping[str, Value], growth_max_bytes: int
) -> st.PoolSettings:
    size: Size = found["size"].value
    own = {
        field_of(st.PoolSettings, key): found[key].value
        for key in POOL
        if key != "size" and key not in BOUND and not _is_limit(key)
    }
    limits = {
        field_of(PoolLimits, key): found[key].value for key in POOL if _is_limit(key)
    }
    return st.PoolSettings(
        name=name,
        size_min=size.minimum,
        size_max=size.maximum,
        limits=PoolLimits(**limits, memory_growth_max_bytes=growth_max_bytes),
        **own,
    )


def _is_limit(key: str) -> bool:
    return key.removesuffix("_max") in {
        "memory",
        "memory_growth",
        "memory_soft",
        "timeout",
        "soft_timeout",
        "heartbeat_timeout",
    }


def kinds_of(
    sources: Sources, values: dict[str, Value]
) -> Iterator[tuple[str, st.KindSettings]]:
    """Yield the settings of kinds, and add their values to *values*.

    Raises:
        ConfigError: a value is wrong or contradicts another.
    """
    for name in named_kinds(sources):
        found: dict[str, Value] = {}
        for key, option in KIND.items():
            if lookup(sources.stack, "kinds", name, key):
                found[key] = value_of(sources.stack, ("kinds", name, key), option, None)
                values[f'kinds."{name}".{key}'] = found[key]
        refuse_contradictions(f"kind {name}", found)
        limits = {
            field_of(Limits, key): value.value
            for key, value in found.items()
            if _is_limit(key)
        }
        budgets = {
            key: value.value
            for key, value in found.items()
            if key not in BOUND and not _is_limit(key)
        }
        yield name, st.KindSettings(limits=Limits(**limits), **budgets)


def refuse_contradictions(owner: str, found: Mapping[str, Value]) -> None:
    """Refuse limits that cannot both hold, unless the lower one is a default."""
    for lower, upper, show, strictly in (
        ("timeout", "timeout_max", show_duration, False),
        ("memory", "memory_max", show_size, False),
        ("soft_timeout", "timeout", show_duration, True),
        ("memory_soft", "memory", KIND["memory_soft"].show, True),
    ):
        low, high = found.get(lower), found.get(upper)
        if low is None or high is None or low.value is None or high.value is None:
            continue
        is_set = not low.origin.startswith(DEFAULT)
        over = low.value > high.value or (strictly and low.value == high.value)
        if is_set and over:
            raise ConfigError(
                f"{owner}: {lower} {show(low.value)} ({low.origin}) is not below "
                f"{upper} {show(high.value)} ({high.origin}); lower the first or raise "
                "the second"
            )
