"""The limits on jobs that wait, as configured: the same for whoever enqueues."""

from __future__ import annotations

from typing import Any

from jobpool.core.config.layers import lookup
from jobpool.core.config.options import ADMISSION, BOUND, POOL
from jobpool.core.config.sources import Sources, Value, value_of
from jobpool.core.rules.admission import NO_BOUND, Admission, Bound

_DEFAULT = Admission()
_SECTIONS = ("pools", "kinds", "tenants")


def admission_of(sources: Sources, values: dict[str, Value]) -> Admission:
    """Return the limits in force, and add those of the whole queue to *values*.

    Raises:
        ConfigError: a value is wrong.
    """
    defaults: dict[str, Any] = {
        "depth_max": _DEFAULT.depth_max,
        "age_max": "none",
        "on_full": _DEFAULT.on_full,
    }
    found = {
        key: value_of(sources.stack, ("admission", key), option, defaults[key])
        for key, option in ADMISSION.items()
    }
    values |= {f"admission.{key}": value for key, value in found.items()}
    return Admission(
        depth_max=found["depth_max"].value,
        age_max_s=found["age_max"].value,
        on_full=found["on_full"].value,
        **{section: _bounds(sources, section) for section in _SECTIONS},
    )


def _bounds(sources: Sources, section: str) -> dict[str, Bound]:
    names = [path[1] for layer in sources.stack for path in layer if path[0] == section]
    bounds = {name: _bound(sources, section, name) for name in dict.fromkeys(names)}
    return {name: bound for name, bound in bounds.items() if bound != NO_BOUND}


def _bound(sources: Sources, section: str, name: str) -> Bound:
    options = POOL if section == "pools" else BOUND
    found: dict[str, Any] = {}
    for key in BOUND:
        path = (section, name, key)
        if lookup(sources.stack, *path) is not None:
            found[key] = value_of(sources.stack, path, options[key], None).value
    return Bound(depth_max=found.get("depth_max"), age_max_s=found.get("age_max"))
