"""Sources: all layers of settings, and the lookup of a value in force."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from jobpool.core.config.file import ConfigFile, ReadFile, find_file
from jobpool.core.config.layers import NAMED, Layer, layers, lookup, quoted
from jobpool.core.config.options import TOP, Option
from jobpool.errors import ConfigError

DEFAULT = "default"
"""Prefix of the origin of a value that is not set."""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Resources of the machine that this process may use."""

    cores: int
    """By affinity and cgroup quota; at least 1."""
    memory_bytes: int
    """Of the host or of the cgroup, whichever is smaller."""


class Value(msgspec.Struct, frozen=True):
    """A value in force."""

    value: Any
    shown: str
    origin: str


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """All layers of settings, read but not yet validated."""

    stack: tuple[Layer, ...]
    file: ConfigFile | None
    directory: str
    """The launch directory, absolute."""


def read_sources(
    flags: Mapping[str, str | None],
    *,
    env: Mapping[str, str],
    directory: str,
    read_file: ReadFile,
    config: str | None = None,
) -> Sources:
    """Collect the layers.

    Args:
        flags: by option name (``size`` for ``--pools``); None: not given.
        env: the environment.
        directory: the launch directory, absolute.
        read_file: reads a file.
        config: the value of ``--config``.

    Raises:
        ConfigError: a file is missing or not TOML, or an option is unknown.
    """
    file = find_file(config, env=env, directory=directory, read_file=read_file)
    return Sources(stack=layers(flags, env, file), file=file, directory=directory)


def top_value(sources: Sources, key: str, default: Any) -> Value:
    """Return the value in force of a top-level option.

    Args:
        sources: the layers.
        key: one of `options.TOP`.
        default: its default, as it would be written.

    Raises:
        ConfigError: the value is wrong; the message names its origin.
    """
    return value_of(sources.stack, (key,), TOP[key], default)


_RENAMED = {"recycle": "recycle_jobs"}


def field_of(record: type[msgspec.Struct], key: str) -> str:
    """Return the field that holds an option: its name with a unit."""
    name = _RENAMED.get(key, key)
    # Not msgspec.structs.fields: it evaluates all annotations again at each call.
    fields = record.__struct_fields__
    return next(f for f in (name, f"{name}_s", f"{name}_bytes") if f in fields)


def value_of(
    stack: Sequence[Layer],
    path: tuple[str, ...],
    option: Option,
    default: Any,
    default_origin: str = DEFAULT,
) -> Value:
    """Return the value in force at *path*.

    Args:
        stack: the layers, strongest first.
        path: as in `layers.Layer`.
        option: how it is read and shown.
        default: its default, as it would be written; None: there is none.
        default_origin: the origin of the default.

    Raises:
        ConfigError: the value is wrong or missing; the message names its origin.
    """
    found = lookup(stack, *path)
    if found is None:
        if default is None:
            raise ConfigError(
                f"pool {path[1]!r} has no size; add it to --pools, or size = 4 to "
                f"[pools.{path[1]}] (only cpu and io have a default)"
            )
        value = option.read(default, path[-1])
        return Value(value, option.show(value), default_origin)
    what = subject_of(found.origin)
    if path[0] == "pools" and found.origin.startswith(("flag ", "env ")):
        what = f"{what} {path[1]}"
    value = option.read(found.raw, what)
    return Value(value, option.show(value), found.origin)


def subject_of(origin: str) -> str:
    """Return an origin as the subject of an error message."""
    return origin.removeprefix("flag ").removeprefix("env ")


def named_tables(
    sources: Sources, section: str, values: dict[str, Value]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the tables of a section of `NAMED`, with the value of each option set.

    Adds their values to *values*, by dotted name.

    Raises:
        ConfigError: a value is wrong.
    """
    paths = [path for layer in sources.stack for path in layer if path[0] == section]
    for name in dict.fromkeys(path[1] for path in paths):
        found: dict[str, Any] = {}
        for key, option in NAMED[section].items():
            if (section, name, key) in paths:
                value = value_of(sources.stack, (section, name, key), option, None)
                values[f"{section}.{quoted(name)}.{key}"] = value
                found[key] = value.value
        yield name, found
