"""`jobpool demo`: prepares a directory, runs a supervisor on it, watches, adds up."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, NoReturn

import click
from rich.console import Console

from jobpool.cli.demo.household import Household, Memory
from jobpool.cli.demo.leftovers import daemons_started, processes_left
from jobpool.cli.demo.setting import LOG, Setting, prepare
from jobpool.cli.demo.summary import Report, as_json, print_report
from jobpool.cli.demo.tally import problems, tally
from jobpool.cli.demo.view import View, view_for
from jobpool.cli.demo.watching import Watcher, all_jobs
from jobpool.cli.exits import Exit
from jobpool.cli.output import console, encodable, print_json
from jobpool.cli.resources import machine
from jobpool.core.clock import SystemClock
from jobpool.core.config import configure, read_sources
from jobpool.errors import JobpoolError, UsageError
from jobpool.sandbox.procfs import require_linux
from jobpool.store import open_store

_LOOK_S = 0.2
_STUCK_S = 120.0
"""The demo gives up after so long without any job's end."""
_CLOCK = SystemClock()


class _Ran(NamedTuple):
    """What was seen while the supervisor ran."""

    seconds: float
    ended: int
    memory: Memory


@click.command()
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Work here and keep it; a demo that was killed goes on.",
)
@click.option("--pools", default="cpu=2,io=8", show_default=True, metavar="SIZES")
@click.option(
    "--files",
    type=click.IntRange(min=1),
    metavar="N",
    help="At most N modules and N package files; default all and 5,000.",
)
@click.option("--keep", is_flag=True, help="Keep the directory.")
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object.")
def demo(
    *, directory: Path | None, pools: str, files: int | None, keep: bool, is_json: bool
) -> None:
    """Watch hostile jobs being contained while honest ones finish.

    A supervisor works through Python's own library and the installed packages; among
    these jobs are a decompression bomb, a segmentation fault, daemons and others.
    """
    require_linux()
    _check_pools(pools)
    view = view_for(Console(stderr=True, highlight=False), quiet=is_json)
    with _place(directory, keep=keep) as place:
        setting = prepare(place, files)
        view.say(_announcement(setting))
        ran = _run(setting, pools, view)
        report = _report(setting, ran, kept=keep or directory is not None)
        if is_json:
            print_json(encodable(as_json(report)))
        else:
            print_report(console(), report)
        if report.problems:
            raise click.exceptions.Exit(Exit.FAILED)


def _check_pools(pools: str) -> None:
    """Refuse what the supervisor would refuse, and what would leave jobs waiting.

    Raises:
        ConfigError: not sizes of pools.
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


@contextmanager
def _place(directory: Path | None, *, keep: bool) -> Iterator[Path]:
    """Give a directory; a temporary one goes again, but only after a success."""
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        yield directory.resolve()
        return
    place = Path(tempfile.mkdtemp(prefix="jobpool-demo-")).resolve()
    yield place
    if not keep:
        shutil.rmtree(place)


def _announcement(setting: Setting) -> str:
    count = len(setting.jobs)
    stored = (
        f"{count:,} jobs of an earlier demo are there: going on"
        if setting.resumed
        else f"{count:,} jobs stored, {len(setting.hostile_ids())} of them hostile"
    )
    return f"{setting.directory}: {stored}"


def _run(setting: Setting, pools: str, view: View) -> _Ran:
    """Run a supervisor until nothing is left to do.

    Raises:
        JobpoolError: it ended by itself, or nothing moves; the jobs are stored.
        Exit: after Ctrl-C.
    """
    with (
        contextlib.closing(open_store(setting.store, create=False)) as store,
        Household(setting.directory, pools) as household,
    ):
        try:
            with view.live():
                ran = _watch(Watcher(store, setting), household, setting, view)
            code = household.drain()
        except KeyboardInterrupt:
            _interrupted(household, setting)
    if code:
        raise _ended(code, household, setting)
    return ran


def _watch(
    watcher: Watcher, household: Household, setting: Setting, view: View
) -> _Ran:
    began_s = moved_s = _CLOCK.monotonic_s()
    look = watcher.look()
    first = ended = look.ended
    while True:
        now_s = _CLOCK.monotonic_s()
        memory = household.memory()
        view.show(look, memory, now_s - began_s)
        if look.is_over:
            return _Ran(now_s - began_s, ended - first, memory)
        if (code := household.exit_code()) is not None:
            raise _ended(code, household, setting)
        if now_s - moved_s > _STUCK_S:
            raise JobpoolError(
                f"no job has ended for {_STUCK_S:.0f} s; please report it with "
                f"{setting.directory / LOG}, which ends:\n{household.last_lines()}"
            )
        time.sleep(_LOOK_S)
        look = watcher.look()
        if look.ended != ended:
            ended, moved_s = look.ended, _CLOCK.monotonic_s()


def _ended(code: int, household: Household, setting: Setting) -> JobpoolError:
    how = (
        f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    )
    return JobpoolError(
        f"the supervisor {how}; no job is lost: go on with {_again(setting)}. Its log, "
        f"{setting.directory / LOG}, ends: {household.last_lines()}"
    )


def _interrupted(household: Household, setting: Setting) -> NoReturn:
    """Let the supervisor drain; at once, if Ctrl-C comes again."""
    click.echo("draining; Ctrl-C again to stop now", err=True)
    try:
        household.drain()
    except KeyboardInterrupt:
        household.stop()
    click.echo(f"stopped; no job is lost: go on with {_again(setting)}", err=True)
    raise click.exceptions.Exit(Exit.INTERRUPTED)


def _again(setting: Setting) -> str:
    return f"jobpool demo --dir {shlex.quote(str(setting.directory))}"


def _report(setting: Setting, ran: _Ran, *, kept: bool) -> Report:
    left = processes_left(setting.directory, _CLOCK)
    with contextlib.closing(open_store(setting.store, create=False)) as store:
        found = tally(
            all_jobs(store),
            {job_id: store.attempts(job_id) for job_id in setting.hostile_ids()},
        )
    wrong = problems(
        found, expected_jobs=len(setting.jobs), resumed=setting.resumed, left=left
    )
    return Report(
        directory=setting.directory,
        kept=kept or bool(wrong),
        resumed=setting.resumed,
        seconds=ran.seconds,
        jobs_ended=ran.ended,
        material=setting.material,
        found=found,
        memory=ran.memory,
        daemons=len(daemons_started(setting.directory)),
        left=left,
        problems=wrong,
    )
