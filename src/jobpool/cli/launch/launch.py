"""`jobpool --pools …` and `jobpool run`: run a supervisor until it ends."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from jobpool.cli.context import (
    configuration_of,
    opened,
    own_sources,
)
from jobpool.cli.flags import LOG_FORMATS, LOG_LEVELS, LaunchFlags, launch_flags
from jobpool.cli.launch.alerts import watched
from jobpool.cli.launch.heartbeat_file import LifeSign
from jobpool.cli.launch.log import Both, LogWriter, renderer
from jobpool.cli.launch.observers import measured, reported, traced
from jobpool.cli.launch.systemd import ServiceManager
from jobpool.core.config.settings import Settings
from jobpool.core.events.event import Level, Observer
from jobpool.errors import ConfigError, StoreRefused


@click.command()
@launch_flags
@click.pass_obj
def run(group: LaunchFlags, /, **flags: Any) -> None:
    """Start with the configured pools.

    Without any: a cpu pool with one child per core, and an io pool with 16.
    """
    launch(LaunchFlags(**flags).over(group))


def launch(flags: LaunchFlags) -> None:
    """Start a supervisor and block until it has ended.

    Raises:
        ConfigError: the settings are wrong; nothing was started.
        AppError: the application does not load; nothing was started.
        StoreError: the store cannot be used; nothing was started.
    """
    settings = configuration_of(flags).settings
    style = style_of(flags)
    if flags.burst and sys.stderr.isatty() and style.form == "human":
        code = _with_bar(flags, settings, level=style.level, colour=style.colour)
    else:
        render = renderer(style.form, colour=style.colour)
        log = LogWriter(sys.stderr, render, level=style.level)
        try:
            code = _serve(flags, settings, observer=log)
        finally:
            log.close()
    raise click.exceptions.Exit(code)


class Style(NamedTuple):
    """How the log is written."""

    form: str
    colour: bool
    level: Level


def style_of(flags: LaunchFlags) -> Style:
    """Return how the log is written, by flags and variables.

    Raises:
        ConfigError: a variable is none of the choices.
    """
    terminal = sys.stderr.isatty()
    form = "json" if flags.as_json else _chosen("format", flags.log_format, LOG_FORMATS)
    form = form or ("human" if terminal else "json")
    colour = terminal and "NO_COLOR" not in os.environ
    name = _chosen("level", flags.log_level, LOG_LEVELS) or "info"
    return Style(form, colour, Level[name.upper()])


def _chosen(what: str, flag: str | None, choices: Sequence[str]) -> str | None:
    """Return the flag, else the variable's value, else None.

    Raises:
        ConfigError: the variable is none of the choices.
    """
    variable = f"JOBPOOL_LOG_{what.upper()}"
    said = flag or os.environ.get(variable) or None
    if said is not None and said not in choices:
        raise ConfigError(
            f"{variable}: {said[:40]!r} is not known; expected {' or '.join(choices)}"
        )
    return said


def _with_bar(
    flags: LaunchFlags, settings: Settings, *, level: Level, colour: bool
) -> int:
    """Run a burst with a progress bar below the log."""
    from jobpool.cli.launch.progress_bar import BurstBar  # noqa: PLC0415 - only on a terminal

    with BurstBar(_due_now(flags)) as bar:
        log = LogWriter(bar.stream, renderer("human", colour=colour), level=level)
        try:
            return _serve(flags, settings, observer=Both((log, bar)))
        finally:
            log.close()


def _due_now(flags: LaunchFlags) -> int:
    """Return how many jobs are due; 0 when there is no store yet."""
    try:
        with opened(own_sources(flags.store, flags.config)) as store:
            return sum(row.jobs for row in store.waiting() if not row.paused)
    except StoreRefused:
        # The supervisor makes the store, or refuses it with all the details.
        return 0


def _serve(flags: LaunchFlags, settings: Settings, *, observer: Observer) -> int:
    """Run the supervisor; SIGHUP reloads the settings, except on a terminal."""
    # Imports leave hardly any garbage, and what they make stays: the collector would
    # look through it again and again meanwhile, and once more at the end.
    gc.disable()
    try:
        from jobpool.supervisor.serve import serve  # noqa: PLC0415 - only a start needs it
    finally:
        gc.freeze()
        gc.enable()

    sign = LifeSign()
    manager = ServiceManager.from_environment(os.environ)

    def begin(directory: Path) -> Callable[[float], float]:
        sign.begin(directory)
        return lambda now_s: min(sign.turned(now_s), manager.turned(now_s))

    def reread() -> Settings:
        manager.reloading()
        return configuration_of(flags).settings

    try:
        with (
            measured(settings, observer) as counting,
            traced(settings, Both((observer, *counting)).observe) as tracing,
            reported(settings, Both((observer, *counting)).observe) as reporting,
            watched(settings, settings.alerts, observer.observe, first_s=1.0),
        ):
            gc.freeze()  # what these have imported
            return serve(
                settings,
                burst=flags.burst,
                observer=Both(
                    (observer, sign, manager, *counting, *tracing, *reporting)
                ),
                reread=None if sys.stdin.isatty() else reread,
                alive=begin,
            )
    finally:
        sign.close()
        manager.close()
