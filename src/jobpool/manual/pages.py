"""The manual's pages: their list, their text and a search.

A page is the file ``TOPIC.md`` beside this module. ``index.md`` lists them all in
reading order, with a heading per group and a line per page. The command, the site and
the tests use that list.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

INDEX = "index"
_GROUP = re.compile(r"## (.+)")
_ENTRY = re.compile(r"- \[([\w-]+)\]\(\1\.md\): (.+)")
_HEADING = re.compile(r"#+ (.+)")
_FENCE = "```"
_REMARK = re.compile(r"^<!--.*-->\n", re.MULTILINE)


class Entry(NamedTuple):
    """A page's entry in the list."""

    group: str
    topic: str
    summary: str
    """One line."""


class Hit(NamedTuple):
    """A line that contains all the words of a search."""

    topic: str
    heading: str
    """The nearest heading above it."""
    number: int
    """Number of the line in its page, from 1."""
    line: str


def entries() -> list[Entry]:
    """Return every page but the list itself, in the list's order."""
    group = ""
    found = []
    for line in text_of(INDEX).splitlines():
        if heading := _GROUP.fullmatch(line):
            group = heading[1]
        elif entry := _ENTRY.fullmatch(line):
            found.append(Entry(group, entry[1], entry[2]))
    return found


def text_of(topic: str) -> str:
    """Return a page as Markdown, without its remarks for the tests.

    Args:
        topic: as `entries` names it, or `INDEX`.

    Raises:
        FileNotFoundError: there is no such page.
    """
    text = (files(__package__) / f"{topic}.md").read_text("utf-8")
    return _REMARK.sub("", text)


def ready_made() -> dict[str, Path]:
    """Return the ready-made files by name, such as ``postgres/roles.sql``."""
    package = Path(__file__).parents[1]
    # A wheel brings them along; in the repository they are beside the sources.
    folder = package / "conf"
    if not folder.is_dir():
        folder = package.parents[1] / "conf"
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path for path in found}


def search(words: str) -> Iterator[Hit]:
    """Yield the lines that contain all of some words, page by page.

    Args:
        words: separated by spaces; case is ignored, and parts of words match.
    """
    wanted = words.lower().split()
    for entry in entries():
        heading = ""
        is_code = False
        for number, line in enumerate(text_of(entry.topic).splitlines(), 1):
            is_code ^= line.startswith(_FENCE)
            if not is_code and (found := _HEADING.fullmatch(line)):
                heading = found[1]
            if all(word in line.lower() for word in wanted):
                yield Hit(entry.topic, heading, number, line)
