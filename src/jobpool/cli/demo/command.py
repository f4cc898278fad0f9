"""`jobpool demo`: prepares a directory, runs a supervisor on it, reports."""

from __future__ import annotations

import contextlib
import signal
import time
from pathlib import Path

import click
from click.core import ParameterSource
from rich.console import Console
from rich.live import Live

from jobpool.cli.demo.dashboard import shown
from jobpool.cli.demo.orders.command import orders
from jobpool.cli.demo.place import place_of
from jobpool.cli.demo.progress import Progress
from jobpool.cli.demo.summary import Report, print_report
from jobpool.cli.demo.supervisor import (
    Memory,
    Supervisor,
    daemons_started,
    processes_left,
)
from jobpool.cli.demo.verdict import judge, problems
from jobpool.cli.demo.view import live, show
from jobpool.cli.demo.workspace import Workspace, prepare
from jobpool.cli.exits import Exit
from jobpool.cli.machine.resources import machine
from jobpool.cli.output import console
from jobpool.core.clock import SystemClock
from jobpool.core.config.load import configure, read_sources
from jobpool.errors import UsageError
from jobpool.sandbox.system.platform import require_linux
from jobpool.store.opening import open_store
from jobpool.store.records.operating import Filter

_SAMPLE_S = 0.2
_STUCK_S = 120.0
"""The demo gives up when no job has ended for this long."""
_CLOCK = SystemClock()


@click.group(invoke_without_command=True)
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Work in this empty directory, and keep it.",
)
@click.option("--pools", default="cpu=2,io=8", show_default=True, metavar="SIZES")
@click.option(
    "--files",
    type=click.IntRange(min=1),
    metavar="N",
    help="Work on at most N modules and N package files; default all and 5,000.",
)
@click.option("--keep", is_flag=True, help="Keep the directory.")
@click.option(
    "--dashboard", is_flag=True, help="Show it in a browser too; prints the link."
)
@click.pass_context
def demo(
    ctx: click.Context,
    /,
    *,
    directory: Path | None,
    pools: str,
    files: int | None,
    keep: bool,
    dashboard: bool,
) -> None:
    """Watch hostile jobs being contained while honest ones finish.

    A supervisor works through the files of Python's standard library and the installed
    packages. Among these jobs are hostile ones: a decompression bomb, a segmentation
    fault, daemons and more. `jobpool demo orders` is about flows.
    """
    if ctx.invoked_subcommand is not None:
        _check_own(ctx)
        return
    require_linux()
    _check_pools(pools)
    screen = Console(stderr=True, highlight=False)
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(place_of(directory, keep=keep))
        work = prepare(place, files)
        screen.print(
            f"{place}: {work.jobs:,} jobs stored, {len(work.hostile_ids)} of them "
            "hostile",
            soft_wrap=True,
        )
        if dashboard:
            stack.enter_context(shown(place, screen))
        report = _report(work, *_run(work, pools, live(screen)))
        kept = keep or directory is not None or bool(report.problems)
        print_report(console(), report, kept=kept)
        if report.problems:
            raise click.exceptions.Exit(Exit.FAILED)


def _check_own(ctx: click.Context) -> None:
    """Refuse what would be ignored.

    Raises:
        UsageError: an option stands before the name of another demo.
    """
    for option in ctx.params:
        if ctx.get_parameter_source(option) is not ParameterSource.DEFAULT:
            raise click.UsageError(
                f"--{'dir' if option == 'directory' else option} belongs behind "
                f"{ctx.invoked_subcommand!r}, if it is an option of that demo"
            )


def _check_pools(pools: str) -> None:
    """Refuse sizes that the supervisor would refuse, or that leave jobs waiting.

    Raises:
        ConfigError: these are no pool sizes.
        UsageError: a pool is missing.
    """
    sources = read_sources(
        {"size": pools, "app": "demo"}, env={}, directory="/", read_file=lambda _: None
    )
    settings = configure(sources, machine=machine(), has_jobs_file=False).settings
    if missing := {"cpu", "io"} - {pool.name for pool in settings.pools}:
        raise UsageError(
            f"--pools {pools!r} has no pool {min(missing)!r}; the demo has jobs for "
            "both, such as --pools cpu=2,io=8"
        )


def _run(work: Workspace, pools: str, screen: Live) -> tuple[float, Memory]:
    """Run a supervisor until nothing is left to do; return its time and memory.

    Raises:
        JobpoolError: it ended by itself, or no job ends any more.
        KeyboardInterrupt: Ctrl-C; nothing is running any more.
    """
    supervisor = Supervisor(work.directory, pools)
    try:
        with contextlib.closing(open_store(work.store, create=False)) as store, screen:
            ran = _watch(Progress(store, work), supervisor, screen)
        if code := supervisor.end():
            raise supervisor.error(f"the supervisor has ended with {code}")
    except KeyboardInterrupt:
        click.echo("draining; Ctrl-C again to stop now", err=True)
        supervisor.end()
        raise
    finally:
        supervisor.end(signal.SIGQUIT)
    return ran


def _watch(
    progress: Progress, supervisor: Supervisor, screen: Live
) -> tuple[float, Memory]:
    began_s = moved_s = _CLOCK.monotonic_s()
    ended = -1
    while True:
        sample, memory = progress.sample(), supervisor.memory()
        now_s = _CLOCK.monotonic_s()
        show(screen, sample, memory, now_s - began_s)
        if sample.is_over:
            return now_s - began_s, memory
        supervisor.check()
        if sample.ended != ended:
            ended, moved_s = sample.ended, now_s
        if now_s - moved_s > _STUCK_S:
            raise supervisor.error(
                f"no job has ended for {_STUCK_S:.0f} s; please report it"
            )
        time.sleep(_SAMPLE_S)


def _report(work: Workspace, seconds: float, memory: Memory) -> Report:
    left = processes_left(work.directory, _CLOCK)
    with contextlib.closing(open_store(work.store, create=False)) as store:
        attempts = {job_id: store.attempts(job_id) for job_id in work.hostile_ids}
        found = judge(store.find(Filter(), limit=2 * work.jobs), attempts)
    return Report(
        work=work,
        found=found,
        seconds=seconds,
        memory=memory,
        daemons=len(daemons_started(work.directory)),
        left=left,
        problems=problems(found, expected_jobs=work.jobs, left=left),
    )


demo.add_command(orders)
