"""The configuration file: which one is used, and parsing. Pure: the caller reads it.

The first that exists of ``conf/jobpool.toml``, ``jobpool.toml`` and
``[tool.jobpool]`` in ``pyproject.toml``, each in the launch directory; or the one
that ``--config`` or ``JOBPOOL_CONFIG`` names.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any

import msgspec

from jobpool.errors import ConfigError

FILE_NAMES = ("conf/jobpool.toml", "jobpool.toml", "pyproject.toml")
_CONFIGURATION_FOLDER = "conf"

ReadFile = Callable[[str], str | None]
"""Returns a file's text, or None if there is none; ConfigError if unreadable."""


class ConfigFile(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration file as read."""

    path: str
    """Absolute."""
    shown: str
    """The path as it was found or given, for people."""
    directory: str
    """Base of relative paths in the configuration: the file's directory, or its
    parent if that is called ``conf``."""
    values: Mapping[str, Any]


def find_file(
    argument: str | None, *, env: Mapping[str, str], directory: str, read_file: ReadFile
) -> ConfigFile | None:
    """Find and parse the configuration file.

    Args:
        argument: the value of ``--config``, if given.
        env: the environment; only ``JOBPOOL_CONFIG`` is used.
        directory: the launch directory, absolute.
        read_file: reads a file.

    Returns:
        The file, or None if there is none and none was asked for.

    Raises:
        ConfigError: the file that was asked for does not exist, or a file is not
            valid TOML.
    """
    asked = argument or env.get("JOBPOOL_CONFIG") or None
    if asked is not None:
        found = _read(asked, directory, read_file)
        if found is None:
            source = "--config" if argument else "JOBPOOL_CONFIG"
            raise ConfigError(
                f"configuration file {asked!r} (from {source}) does not exist or has "
                "no [tool.jobpool]; create it, or leave it out to use the defaults"
            )
        return found
    for name in FILE_NAMES:
        found = _read(name, directory, read_file)
        if found is not None:
            return found
    return None


def _read(name: str, directory: str, read_file: ReadFile) -> ConfigFile | None:
    """Return the file, or None if it does not exist or has no section of jobpool's."""
    path = PurePosixPath(directory) / name
    text = read_file(str(path))
    if text is None:
        return None
    try:
        values: Any = tomllib.loads(text)
    except (ValueError, RecursionError) as exc:
        raise ConfigError(f"{name} is not valid TOML: {exc}") from exc
    shown = name
    if path.name == "pyproject.toml":
        values = values.get("tool", {}).get("jobpool")
        shown = f"{name} [tool.jobpool]"
        if values is None:
            return None
    if not isinstance(values, dict):
        raise ConfigError(f"{shown} must be a table, such as [tool.jobpool.pools.cpu]")
    base = path.parent
    if base.name == _CONFIGURATION_FOLDER:
        base = base.parent
    return ConfigFile(path=str(path), shown=shown, directory=str(base), values=values)
