"""From the command line's surroundings to settings and an open store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from jobpool.cli.flags import LaunchFlags
from jobpool.cli.machine.resources import machine
from jobpool.core.clock import SystemClock
from jobpool.core.config.load import (
    Configuration,
    Sources,
    client_settings,
    configure,
    names_app,
    read_sources,
)
from jobpool.errors import ConfigError, StoreError, StoreRefused
from jobpool.store.protocol import Store


def read_file(path: str) -> str | None:
    """Return a configuration file's text, or None if it does not exist.

    Raises:
        ConfigError: it exists and cannot be read as text.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(
            f"configuration file {path} cannot be read: {exc}; make it a readable "
            "UTF-8 file, or name another with --config"
        ) from exc


def launch_directory() -> str:
    """Return the directory that the command was started in.

    Raises:
        ConfigError: it does not exist any more.
    """
    try:
        return os.getcwd()  # noqa: PTH109 - a text for the pure core
    except FileNotFoundError as exc:
        raise ConfigError(
            "the present directory does not exist any more; change to another"
        ) from exc


def sources_of(flags: LaunchFlags) -> Sources:
    """Collect flags, environment and configuration file."""
    return read_sources(
        flags.options(),
        env=os.environ,
        directory=launch_directory(),
        read_file=read_file,
        config=flags.config,
    )


def configuration_of(flags: LaunchFlags) -> Configuration:
    """Build a supervisor's settings from flags, environment and file."""
    return configured(sources_of(flags))


def configured(sources: Sources) -> Configuration:
    """Build a supervisor's settings from layers that were collected."""
    has_jobs_file = _has_jobs_file(sources)
    return configure(sources, machine=machine(), has_jobs_file=has_jobs_file)


def has_app(sources: Sources) -> bool:
    """Say whether it is known which application is meant."""
    return names_app(sources, has_jobs_file=_has_jobs_file(sources))


def _has_jobs_file(sources: Sources) -> bool:
    return (Path(sources.directory) / "jobs.py").is_file()


def own_sources(store: str | None, config: str | None) -> Sources:
    """Collect the layers for a command that has ``--store`` and ``--config``.

    What was said before the command's name counts as well.
    """
    group = click.get_current_context().find_object(LaunchFlags) or LaunchFlags()
    return sources_of(LaunchFlags(store=store, config=config).over(group))


@contextmanager
def opened(sources: Sources, *, create: bool = False) -> Iterator[Store]:
    """Open the store for one command.

    Args:
        sources: the layers that name it.
        create: make the store if it does not exist.

    Raises:
        StoreRefused: it does not exist, or must not be used; nothing was changed.
        StoreUnavailable: it could not be reached.
    """
    from jobpool.store.opening import open_store  # noqa: PLC0415 - not for --help

    settings = client_settings(sources)
    store = open_store(settings.store, create=create, admission=settings.admission)
    try:
        yield store
    finally:
        store.close()


def published_kinds(sources: Sources) -> tuple[str, ...] | None:
    """Return the kinds that supervisors have published; None: it cannot be asked."""
    try:
        with opened(sources) as store:
            return tuple(record.kind for record in store.kinds())
    except StoreRefused:
        return ()  # there is no store yet, or the start will say what is wrong with it
    except StoreError:
        return None


def now_ms() -> int:
    """Return the wall clock, for ages and for times relative to now."""
    return SystemClock().utc_ms()
