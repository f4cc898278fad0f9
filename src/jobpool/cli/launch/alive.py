"""`jobpool alive`: a probe that uses neither the store nor the application.

A database outage must not get a supervisor killed: its jobs go on. So the probe reads
only what a supervisor leaves on this machine: a lock that it holds as long as it lives,
and its sign of life (`heartbeat_file`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import click

from jobpool.cli.context import own_sources
from jobpool.cli.exits import Exit
from jobpool.cli.flags import store_flags
from jobpool.cli.launch.heartbeat_file import Sign, Stage, read_sign
from jobpool.core.clock import SystemClock
from jobpool.core.config.load import store_of, without_password
from jobpool.core.units import duration_s, show_duration
from jobpool.monitoring.looking.presence import holder
from jobpool.store.opening import run_root

WITHIN = "30s"
RUN_DIR_VARIABLE = "JOBPOOL_RUN_DIR"
_NOT_READY = {
    Stage.LOADING: "it is loading the application, or cannot open its store yet",
    Stage.WAITING: "it cannot use its store at the moment",
    Stage.ENDING: "it is shutting down and takes no more jobs",
}


@click.command()
@click.option(
    "--within",
    metavar="TIME",
    default=WITHIN,
    show_default=True,
    help="Its loop must have turned within this time.",
)
@click.option("--ready", is_flag=True, help="It must also be taking jobs.")
@store_flags
def alive(*, within: str, ready: bool, store: str | None, config: str | None) -> None:
    """Report whether a supervisor runs here and its loop turns: exit 0 if so, else 1.

    For liveness probes. It does not use the database, so a database outage does not
    get running jobs killed.
    """
    within_s = duration_s(within, "--within")
    problem = ""
    for folder in _run_directories(store, config):
        pid = holder(folder)
        if pid is None:
            continue
        sign = _sign(folder)
        if sign is None:
            problem = f"supervisor {pid} has given no sign of life yet"
        elif (age_s := _age_s(sign)) > within_s:
            problem = (
                f"supervisor {pid} hangs: its loop turned {show_duration(age_s)} ago, "
                f"expected within {show_duration(within_s)}"
            )
        elif ready and sign.stage is not Stage.READY:
            problem = f"supervisor {pid} is not ready: {_NOT_READY[sign.stage]}"
        else:
            click.echo(
                f"supervisor {pid} is {sign.stage.value}; its loop turned "
                f"{show_duration(age_s)} ago"
            )
            return
    click.echo(problem or _nobody(store, config))
    raise click.exceptions.Exit(Exit.FAILED)


def _nobody(store: str | None, config: str | None) -> str:
    url = without_password(store_of(own_sources(store, config)).value)
    return f"no supervisor of {url} runs here: no process has a run directory locked"


def _run_directories(store: str | None, config: str | None) -> Iterator[Path]:
    """Yield the run directories of this machine.

    The variable comes first; if it is set, no configuration is read, because a
    configuration that was just broken is no reason to kill what runs.
    """
    if RUN_DIR_VARIABLE in os.environ:
        yield from _below(Path(os.environ[RUN_DIR_VARIABLE]))
    yield from _below(run_root(store_of(own_sources(store, config)).value))


def _below(root: Path) -> Iterator[Path]:
    """Yield the run directories in a root, or in each root that is in it."""
    for pattern in ("*/lock", "*/*/lock"):
        for lock in root.glob(pattern):
            yield lock.parent


def _sign(folder: Path) -> Sign | None:
    """Return a run's sign of life; None when none can be read."""
    with suppress(OSError, ValueError):
        return read_sign(folder)
    return None


def _age_s(sign: Sign) -> float:
    return max(0.0, SystemClock().monotonic_s() - sign.turned_s)
