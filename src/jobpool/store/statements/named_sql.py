"""Named SQL from files: ``-- name: lease_jobs``, a comment, then one statement.

Statements are fixed texts: nothing in jobpool builds SQL from strings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from jobpool.errors import JobpoolBug

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_PACKAGE = Path(__file__).parents[__name__.count(".") - 1]
_NAME = re.compile(r"^-- name: (.*)$", re.MULTILINE)
_MIGRATION = re.compile(r"(\d{3})_[a-z_]+\.sql")


def _folder(database: str) -> Traversable:
    place = ("store", database, "sql")
    folder = _PACKAGE.joinpath(*place)
    if folder.is_dir():
        return folder
    # jobpool is in an archive; only then is this import (5 ms) needed.
    from importlib import resources  # noqa: PLC0415 - see above

    return resources.files("jobpool").joinpath(*place)


def parse(text: str) -> dict[str, str]:
    """Read the named statements of one file.

    Args:
        text: the file; everything before the first name is a comment.

    Returns:
        Statements by name, in the file's order, without comment lines.

    Raises:
        JobpoolBug: a name twice, or one without a statement.
    """
    _, *parts = _NAME.split(text)
    queries: dict[str, str] = {}
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        lines = [line for line in body.splitlines() if not line.startswith("--")]
        statement = "\n".join(lines).strip()
        if not statement or name in queries:
            raise JobpoolBug(
                f"query {name!r} is named twice or is empty; please report this"
            )
        queries[name] = statement
    return queries


def load_script(database: str, *place: str) -> str:
    """Read a file of several statements, by its path in a database's folder."""
    return _folder(database).joinpath(*place).read_text("utf-8")


@cache
def load_queries(database: str) -> Mapping[str, str]:
    """Read every query of one database, from all files of its folder.

    Args:
        database: the folder's name, such as ``sqlite``.
    """
    queries: dict[str, str] = {}
    for file in sorted(_folder(database).iterdir(), key=lambda item: item.name):
        if not file.name.endswith(".sql"):
            continue
        found = parse(file.read_text("utf-8"))
        if twice := queries.keys() & found.keys():
            raise JobpoolBug(f"named in two files: {twice}; please report this")
        queries.update(found)
    return MappingProxyType(queries)


@cache
def load_migrations(database: str) -> tuple[str, ...]:
    """Read the migrations of one database: the first one makes schema version 1.

    Raises:
        JobpoolBug: their numbers have a gap.
    """
    files = sorted(
        (file for file in _folder(database).joinpath("migrations").iterdir()),
        key=lambda item: item.name,
    )
    numbers = [
        int(match[1]) for file in files if (match := _MIGRATION.fullmatch(file.name))
    ]
    if numbers != list(range(1, len(files) + 1)):
        raise JobpoolBug(f"migrations are numbered {numbers}; please report this")
    return tuple(file.read_text("utf-8") for file in files)
