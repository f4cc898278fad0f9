"""`jobpool move`: from a SQLite file to a PostgreSQL server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType

import click
from rich.progress import Progress

from jobpool.cli.flags import json_flag
from jobpool.cli.output import console, print_json, print_line
from jobpool.errors import ConfigError


@click.command()
@click.option(
    "--from", "source", required=True, metavar="URL", help="The queue: sqlite:///…"
)
@click.option("--to", "target", metavar="URL", help="Its new place: postgresql://…")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--abandon", is_flag=True, help="Give an unfinished move up: use the old URL again."
)
@json_flag
def move(
    *, source: str, target: str | None, yes: bool, abandon: bool, as_json: bool
) -> None:
    """Move all jobs, with ids, states, results and history, to PostgreSQL.

    Stop the source's supervisors first. From the first moment on the source takes no
    jobs in: whoever uses its URL is told the new one. The target shows all of them or
    none. Interrupted, the same command goes on; --abandon gives the move up.
    """
    moving = _moving()
    if abandon:
        url = moving.abandon(source, target)
        _say(as_json, {"abandoned": url}, f"{url} takes jobs in again")
        return
    if target is None:
        raise click.UsageError("where to? say --to postgresql://user@host/database")
    if not yes:
        click.confirm(
            "Close the source for good and move its jobs? Producers need the new URL "
            "from now on",
            abort=True,
        )
    with _progress(is_shown=not as_json) as tell:
        moved = moving.move(source, target, tell)
    if as_json:
        print_json(moved)
    elif moved.checksum is None:
        print_line(f"the move of {moved.source} to {moved.target} is done already")
    else:
        print_line(
            f"{moved.jobs} jobs moved to {moved.target}",
            ", ".join(f"{count} {state}" for state, count in moved.states.items()),
            f"checksum {moved.checksum[:16]}",
        )
        for job_id, reason in moved.spoilt.items():
            print_line(f"job {job_id} was put right on the way: {reason}")


def _moving() -> ModuleType:
    try:
        from jobpool.store.move import move as moving  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError(
            "PostgreSQL needs the library psycopg, which cannot be imported "
            f"({error}); install it with `pip install 'jobpool[postgres]'`"
        ) from error
    return moving


def _say(as_json: bool, value: object, line: str) -> None:  # noqa: FBT001 - a flag's
    if as_json:
        print_json(value)
    else:
        print_line(line)


@contextmanager
def _progress(*, is_shown: bool) -> Iterator[Callable[[int, int], None] | None]:
    screen = console()
    if not is_shown or not screen.is_terminal:
        yield None
        return
    with Progress(console=screen, transient=True) as bar:
        task = bar.add_task("Copying jobs", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
