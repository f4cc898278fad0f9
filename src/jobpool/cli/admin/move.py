"""`jobpool move`: from a SQLite file to a PostgreSQL server."""

from __future__ import annotations

from types import ModuleType

import click

from jobpool.cli.flags import json_flag
from jobpool.cli.output import print_json, print_line
from jobpool.cli.terminal.lasting import lasting
from jobpool.errors import ConfigError
from jobpool.words.figures import counted


@click.command()
@click.option(
    "--from",
    "source",
    required=True,
    metavar="URL",
    help="The queue to move: sqlite:///…",
)
@click.option("--to", "target", metavar="URL", help="Where it moves to: postgresql://…")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--abandon",
    is_flag=True,
    help="Give up an unfinished move; the old URL works again.",
)
@json_flag
def move(
    *, source: str, target: str | None, yes: bool, abandon: bool, as_json: bool
) -> None:
    """Move all jobs, with ids, states, results and history, to PostgreSQL.

    Stop the source's supervisors first. From then on the source accepts no jobs:
    producers that use its URL get an error that names the new one. The target shows
    all jobs or none. If the move is interrupted, run the same command again to go on,
    or add --abandon to give it up.
    """
    moving = _moving()
    if abandon:
        url = moving.abandon(source, target)
        _say(as_json, {"abandoned": url}, f"{url} accepts jobs again")
        return
    if target is None:
        raise click.UsageError(
            "no target given; add --to postgresql://user@host/database"
        )
    if not yes:
        click.confirm(
            "Close the source for good and move its jobs? Producers need the new URL "
            "from now on.",
            abort=True,
        )
    far = _Far()
    with lasting("move", far.count):
        moved = moving.move(source, target, far.note)
    if as_json:
        print_json(moved)
    elif moved.checksum is None:
        print_line(f"the move of {moved.source} to {moved.target} is already done")
    else:
        print_line(
            f"{counted(moved.jobs, 'job')} moved to {moved.target}",
            ", ".join(f"{count} {state}" for state, count in moved.states.items()),
            f"checksum {moved.checksum[:16]}",
        )
        for job_id, reason in moved.spoilt.items():
            print_line(f"job {job_id} was repaired on the way: {reason}")
        for flow_id in moved.spoilt_flows:
            print_line(
                f"flow {flow_id} was repaired on the way: nothing more of it begins"
            )


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


class _Far:
    """How far a move is."""

    def __init__(self) -> None:
        self._state: tuple[int, int | None] = (0, None)

    def note(self, done: int, total: int) -> None:
        """Note how many of the jobs are copied."""
        self._state = (done, total)

    def count(self) -> tuple[int, int | None]:
        """Return that."""
        return self._state
