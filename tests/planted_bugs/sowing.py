"""Plants bugs in a copy of jobpool's source, for programs that are started with it."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import jobpool
from planted_bugs.bug import Edit

SOURCE = Path(jobpool.__file__).parent


class Faded(Exception):
    """The text that a plant replaces is not in the source exactly once."""


def check(edits: Sequence[Edit], source: Path = SOURCE) -> None:
    """Make sure that a plant can be applied.

    Raises:
        Faded: it is older than the source; it was changed only in part.
    """
    for edit in edits:
        times = (source / edit.file).read_text().count(edit.old)
        if times != 1 or edit.new == edit.old:
            raise Faded(
                f"{edit.old!r} stands {times} times in {edit.file}, expected once, and "
                "something else in its place; bring the plant up to date"
            )


@contextlib.contextmanager
def sown(edits: Sequence[Edit]) -> Iterator[Mapping[str, str]]:
    """Change a copy of the source; yield an environment in which it goes first.

    Raises:
        Faded: see `check`.
    """
    with tempfile.TemporaryDirectory(prefix="jobpool-planted-") as name:
        copy = Path(name, "jobpool")
        shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        for edit in edits:
            check([edit], copy)
            path = copy / edit.file
            path.write_text(path.read_text().replace(edit.old, edit.new))
        paths = [name, *filter(None, [os.environ.get("PYTHONPATH")])]
        yield {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
