"""`jobpool init`: an application to start with, and its configuration."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import click

from jobpool.errors import ConfigError
from jobpool.sandbox.system.platform import IS_LINUX

FILES = ("jobs.py", "jobpool.toml")
_START = "run" if IS_LINUX else "dev"
_NEXT = f"""
Next, here:
  jobpool {_START}                              start it; Ctrl-C ends it
  jobpool enqueue example.primes '[1000]'  in another terminal: a job
  jobpool list                             what became of it
Then put your own functions into jobs.py. The manual: jobpool manual start
"""


@click.command()
@click.argument(
    "directory",
    default=".",
    type=click.Path(file_okay=False, path_type=Path),
)
def init(*, directory: Path) -> None:
    """Write jobs.py and jobpool.toml to start with, into DIRECTORY.

    The directory is made if it does not exist; by default it is the present one. A file
    that exists is left as it is.
    """
    here = files("jobpool.cli.launch")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        written = [
            _write(directory / name, (here / f"{name}.txt").read_text("utf-8"))
            for name in FILES
        ]
    except OSError as exc:
        raise ConfigError(
            f"{exc.filename} cannot be written: {exc.strerror}; nothing that existed "
            "was changed"
        ) from exc
    if any(written):
        click.echo(_NEXT.rstrip() if directory == Path() else _there(directory))


def _write(file: Path, text: str) -> bool:
    """Write a file unless there is one; say which."""
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError:
        click.echo(f"exists   {file}: left as it is")
        return False
    click.echo(f"written  {file}")
    return True


def _there(directory: Path) -> str:
    return _NEXT.rstrip().replace("Next, here:", f"Next: cd {directory}")
