"""The manual's pages: which there are, what each says, where words are found.

A page is the file ``TOPIC.md`` beside this module. ``index.md`` is the list of all: a
heading a group, a line a page, in the order in which to read them. The command, the
site and the tests go by that list.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from typing import NamedTuple

INDEX = "index"
_GROUP = re.compile(r"## (.+)")
_ENTRY = re.compile(r"- \[([\w-]+)\]\(\1\.md\): (.+)")
_HEADING = re.compile(r"#+ (.+)")
_FENCE = "```"
_REMARK = re.compile(r"^<!--.*-->\n", re.MULTILINE)


class Entry(NamedTuple):
    """A page as the list of pages shows it."""

    group: str
    topic: str
    summary: str
    """One line."""


class Hit(NamedTuple):
    """A line that has all the words of a search."""

    topic: str
    heading: str
    """The nearest one above it."""
    number: int
    """Of the line in its page, from 1."""
    line: str


def entries() -> list[Entry]:
    """Return every page but the list itself, in the order of the list."""
    group = ""
    found = []
    for line in text_of(INDEX).splitlines():
        if heading := _GROUP.fullmatch(line):
            group = heading[1]
        elif entry := _ENTRY.fullmatch(line):
            found.append(Entry(group, entry[1], entry[2]))
    return found


def text_of(topic: str) -> str:
    """Return a page as Markdown, without what it says to its tests.

    Args:
        topic: as `entries` names it, or `INDEX`.

    Raises:
        FileNotFoundError: there is no such page.
    """
    text = (files(__package__) / f"{topic}.md").read_text("utf-8")
    return _REMARK.sub("", text)


def search(words: str) -> Iterator[Hit]:
    """Yield the lines that have all of some words, page by page.

    Args:
        words: separated by blanks; case does not count, parts of words do.
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
