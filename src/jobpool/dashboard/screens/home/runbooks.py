"""Runbooks: what the manual says to do about an incident, to be read on its page. Pure.

They are sections of ``alerts.md``, in the little of Markdown that these use. A link
leads to another page of the manual, which `jobpool manual` shows: its text stays.
"""

from __future__ import annotations

import re
import shlex
from functools import lru_cache
from typing import NamedTuple

from jobpool.manual.pages import text_of
from jobpool.monitoring.alerts.catalogue import Rule

_TOPIC = "alerts"
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
_CODE = re.compile(r"(`[^`]+`)")
_PLACE = re.compile(r"(?<=--kind )K\b|(?<=--pools )NAME\b|(?<=schedules show )NAME\b")


class Words(NamedTuple):
    """A part of a line."""

    text: str
    is_code: bool


class Line(NamedTuple):
    """A sentence or two."""

    words: tuple[Words, ...]
    is_item: bool
    """Of a list: a step."""


def runbook_of(rule: Rule, subject: str = "") -> tuple[Line, ...]:
    """Return what the manual says of a rule's incidents; nothing if it says nothing.

    Args:
        rule: the rule.
        subject: what the incident is about; it takes the place of ``K`` or ``NAME`` in
            commands, which can be pasted so. "": more than one thing.
    """
    if not subject:
        return _section(rule)
    name = shlex.quote(subject)
    return tuple(
        line._replace(
            words=tuple(
                one._replace(text=_PLACE.sub(lambda _: name, one.text))
                if one.is_code
                else one
                for one in line.words
            )
        )
        for line in _section(rule)
    )


@lru_cache
def _section(rule: Rule) -> tuple[Line, ...]:
    parts = _HEADING.split(text_of(_TOPIC))
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    lines = sections.get(rule.section, "").splitlines()
    return tuple(map(_line, filter(None, map(str.strip, lines))))


def _line(text: str) -> Line:
    is_item = text.startswith("- ")
    plain = _LINK.sub(r"\1", text.removeprefix("- "))
    words = (
        Words(part.strip("`") if part.startswith("`") else part, part.startswith("`"))
        for part in _CODE.split(plain)
        if part
    )
    return Line(tuple(words), is_item)
