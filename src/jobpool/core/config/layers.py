"""Layers of settings: flags over environment over file, each value with its origin.

A layer maps a path to a raw value: ``("store",)``, ``("pools", "cpu", "memory")``,
``("kinds", "shop.pay", "timeout")``, ``("retention", "dead", "age")``. The pool name
``*`` means every pool.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from jobpool.core.application.handler_spec import check_kind, check_pool
from jobpool.core.config.file import ConfigFile
from jobpool.core.config.options import (
    ALIAS,
    COMMAND,
    ENVIRONMENT,
    KIND,
    POOL,
    QUOTA,
    RETENTION,
    SECTIONS,
    TENANT,
    TOP,
    Option,
)
from jobpool.core.rules.quotas.definition import check_name
from jobpool.errors import ConfigError

Path = tuple[str, ...]
EVERY = "*"
DEPTH_MAX = ("admission", "depth_max")
TENANT_MAX_CHARS = 200


class Sourced(msgspec.Struct, frozen=True):
    """A raw value and its origin."""

    raw: Any
    origin: str


Layer = Mapping[Path, Sourced]


def layers(
    flags: Mapping[str, str | None], env: Mapping[str, str], file: ConfigFile | None
) -> tuple[Layer, ...]:
    """Return the layers of settings, strongest first.

    Args:
        flags: option name (``size`` for ``--pools``) to text; None: not given.
        env: the environment; an empty variable counts as unset.
        file: the configuration file, if there is one.

    Raises:
        ConfigError: an unknown option, or text that is not the pools' grammar.
    """
    from_flags: dict[Path, Sourced] = {}
    for option, text in flags.items():
        if text is not None:
            name = "--pools" if option == "size" else f"--{option.replace('_', '-')}"
            from_flags.update(_from_text(option, text, what=name, origin="flag"))
    from_env: dict[Path, Sourced] = {}
    for variable, option in ENVIRONMENT.items():
        if text := env.get(variable):
            from_env.update(_from_text(option, text, what=variable, origin="env"))
    from_file = dict(_from_file(file)) if file else {}
    return (from_flags, from_env, from_file)


def lookup(stack: Sequence[Layer], *path: str) -> Sourced | None:
    """Return the strongest layer's value of a path, or None."""
    for layer in stack:
        if path in layer:
            return layer[path]
        if path[0] == "pools":
            every = (path[0], EVERY, *path[2:])
            if every in layer:
                return layer[every]
    return None


def per_pool(text: str, what: str) -> dict[str, str]:
    """Read ``cpu=…,io=…``.

    Raises:
        ConfigError: it is empty, not of this form, or names a pool twice.
    """
    found: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = (side.strip() for side in part.partition("="))
        if not equals or not name or not value:
            raise ConfigError(
                f"{what}: {text[:60]!r} is not of the form cpu=…,io=…; expected a "
                'pool\'s name, "=" and a value, separated by commas'
            )
        if check_pool(name) in found:
            raise ConfigError(
                f"{what}: pool {name!r} is named twice in {text[:60]!r}; name it once"
            )
        found[name] = value
    return found


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ``"did you mean 'x'?"``, or the list of known words."""
    known = sorted(known)
    close = difflib.get_close_matches(word, known, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return "expected one of " + ", ".join(known) if known else "there are none"


def misspelled_variables(env: Mapping[str, str]) -> Iterator[str]:
    """Yield a message for each ``JOBPOOL_`` variable that looks misspelled."""
    for name in sorted(env):
        if name.startswith("JOBPOOL_") and name not in ENVIRONMENT:
            close = difflib.get_close_matches(name, ENVIRONMENT, n=1, cutoff=0.8)
            if close:
                yield f"{name} is set but has no effect; did you mean {close[0]}?"


def _from_text(
    option: str, text: str, *, what: str, origin: str
) -> Iterator[tuple[Path, Sourced]]:
    """Read a flag or a variable; per pool, or one value for every pool."""
    source = f"{origin} {what}"
    if option == ALIAS:
        yield DEPTH_MAX, Sourced(text, source)
    elif option in TOP:
        yield (option,), Sourced(text, source)
    elif option != "size" and "=" not in text and "," not in text:
        yield ("pools", EVERY, option), Sourced(text, source)
    else:
        for name, value in per_pool(text, what).items():
            yield ("pools", name, option), Sourced(value, source)


def _from_file(file: ConfigFile) -> Iterator[tuple[Path, Sourced]]:
    for key, value in file.values.items():
        if key == "pools":
            yield from _pools_of(file, value)
        elif key in NAMED:
            for name, table in _tables(file, key, value):
                section = f"{key}.{quoted(name)}"
                _CHECK[key](name, f"{file.shown} [{section}]")
                yield from _section(file, (key, name), section, table, NAMED[key])
        elif key == "retention":
            yield from _retention_of(file, value)
        elif key in SECTIONS:
            yield from _section(file, (key,), key, value, SECTIONS[key])
        elif key == ALIAS:
            yield DEPTH_MAX, _former_name(file, value)
        elif key in TOP:
            yield (key,), Sourced(value, f"{file.shown} {key}")
        else:
            known = (*TOP, "pools", *NAMED, "retention", *SECTIONS)
            raise ConfigError(
                f"{file.shown}: unknown option {key!r}; {nearest(key, known)}"
            )


def _former_name(file: ConfigFile, value: Any) -> Sourced:
    """Return a depth under its former name.

    Raises:
        ConfigError: it has its present name as well.
    """
    own = file.values.get("admission")
    if isinstance(own, dict) and "depth_max" in own:
        raise ConfigError(
            f"{file.shown}: {ALIAS} is the former name of [admission] depth_max, and "
            "both are given; leave the former out"
        )
    return Sourced(value, f"{file.shown} {ALIAS}")


def _retention_of(file: ConfigFile, value: Any) -> Iterator[tuple[Path, Sourced]]:
    """Read ``dead = "180d"`` and ``dead = { age = "180d", count = 100000 }``."""
    for path, kept in _section(file, ("retention",), "retention", value, RETENTION):
        if isinstance(kept.raw, dict):
            known = RETENTION[path[-1]]
            yield from _section(file, path, ".".join(path), kept.raw, known)
        else:
            yield (*path, next(iter(RETENTION[path[-1]]))), kept


def _pools_of(file: ConfigFile, value: Any) -> Iterator[tuple[Path, Sourced]]:
    """Read ``pools = "cpu=4"``, ``pools = {cpu = 4}`` and ``[pools.cpu]``."""
    if isinstance(value, str):
        value = per_pool(value, f"{file.shown} pools")
    for name, table in _tables(file, "pools", value, scalars=True):
        check_pool(name)
        if isinstance(table, dict):
            yield ("pools", name), Sourced(None, f"{file.shown} [pools.{name}]")
            yield from _section(file, ("pools", name), f"pools.{name}", table, POOL)
        else:
            yield ("pools", name, "size"), Sourced(table, f"{file.shown} pools.{name}")


def _tables(
    file: ConfigFile, section: str, value: Any, *, scalars: bool = False
) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise ConfigError(
            f"{file.shown}: {section} must be a table, such as [{section}.NAME]"
        )
    for name, table in value.items():
        if not isinstance(table, dict) and not (
            scalars and isinstance(table, (int, str))
        ):
            raise ConfigError(
                f"{file.shown}: {section}.{quoted(name)} must be a table, such as "
                f"[{section}.{quoted(name)}]"
            )
        yield name, table


def _section(
    file: ConfigFile, path: Path, section: str, table: Any, known: Mapping[str, Any]
) -> Iterator[tuple[Path, Sourced]]:
    if not isinstance(table, dict):
        raise ConfigError(f"{file.shown}: [{section}] must be a table")
    for key, value in table.items():
        if key not in known:
            raise ConfigError(
                f"{file.shown} [{section}]: unknown option {key!r}; "
                f"{nearest(key, known)}"
            )
        yield (*path, key), Sourced(value, f"{file.shown} [{section}] {key}")


def _check_tenant(name: str, what: str) -> str:
    if not name.strip() or len(name) > TENANT_MAX_CHARS:
        raise ConfigError(
            f"{what}: expected a tenant's name of 1 to {TENANT_MAX_CHARS} characters, "
            f'or "{EVERY}" for all without a section of their own'
        )
    return name


NAMED: Mapping[str, Mapping[str, Option]] = {
    "kinds": KIND,
    "commands": COMMAND,
    "quotas": QUOTA,
    "tenants": TENANT,
}
"""Sections whose tables have any name, and their options."""
_CHECK: Mapping[str, Callable[[str, str], str]] = {
    "kinds": lambda name, _what: check_kind(name),
    "commands": lambda name, _what: check_kind(name),
    "quotas": check_name,
    "tenants": _check_tenant,
}


def quoted(name: str) -> str:
    """Return a name as a TOML key."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else f'"{name}"'
