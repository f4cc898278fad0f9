"""Reads a migration's phases.

A file is one short transaction, or has sections, each below a line of its own:

- ``-- lock:`` takes the locks of the next section in one bounded statement;
- ``-- expand:`` adds what is new, in one transaction, without reading a table;
- ``-- index: NAME`` and ``-- constraint: NAME`` run alone, outside of any transaction,
  until that index is valid or that constraint validated.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from jobpool.store.postgres.connection.session import migrations_of

_SECTION = re.compile(r"^-- (lock|expand|index|constraint):(?: (\w+))?\n", re.MULTILINE)
_COMMENT = re.compile(r"^ *--.*\n", re.MULTILINE)


class OnlinePart(NamedTuple):
    """What is built beside the traffic."""

    what: str
    """``index`` or ``constraint``."""
    name: str
    statements: tuple[str, ...]
    """Of an index first the one that drops what an interrupted build has left."""


class Step(NamedTuple):
    """One migration."""

    version: int
    lock: str
    """Empty: each statement takes its own locks."""
    expand: str
    online: tuple[OnlinePart, ...]


@cache
def steps_of(schema: str) -> tuple[Step, ...]:
    """Return the migrations for a queue in *schema*, a checked plain name."""
    return tuple(map(read_step, range(1, 1000), migrations_of(schema)))


def read_step(version: int, text: str) -> Step:
    """Read one file.

    Args:
        version: the schema's version that it makes.
        text: the file.
    """
    head, *found = _SECTION.split(text)
    if not found:
        return Step(version, "", text, ())
    sections = list(zip(found[::3], found[1::3], found[2::3], strict=True))
    fixed = {what: body for what, name, body in sections if name is None}
    online = tuple(
        OnlinePart(what, name, _statements(body))
        for what, name, body in sections
        if name is not None
    )
    return Step(version, fixed.get("lock", ""), head + fixed["expand"], online)


def at_once(text: str) -> str:
    """Return a migration for tables that nobody uses yet, for one transaction."""
    return text.replace(" CONCURRENTLY", "")


def _statements(body: str) -> tuple[str, ...]:
    parts = _COMMENT.sub("", body).split(";\n")
    return tuple(part.strip() for part in parts if part.strip())
