"""One small fault: what it replaces in which file, and what it is called."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Change:
    """A replacement of some bytes of one file.

    Attributes:
        file: below the repository.
        start: the first byte that is replaced.
        end: the first one after it that is not.
        old: what stands there.
        new: what is put there.
        line: where it begins, from 1.
        text: that line, stripped; names the change together with old and new.
        lines: the lines of which a test must reach one; none: all is done at import.
        query: the named statement of an SQL file; none: a migration.
        about: the table or view of a migration's statement.
        nth: which of several that are otherwise called the same.
    """

    file: str
    start: int
    end: int
    old: str
    new: str
    line: int
    text: str
    lines: tuple[int, ...] = ()
    query: str | None = None
    about: str | None = None
    nth: int = 0

    @property
    def key(self) -> str:
        """Its name from run to run: other lines of the file may move."""
        named = "\0".join((self.file, self.text, self.old, self.new, str(self.nth)))
        return hashlib.sha256(named.encode()).hexdigest()[:16]

    def applied_to(self, source: bytes) -> bytes:
        """Return the file's text with the fault in it."""
        return source[: self.start] + self.new.encode() + source[self.end :]

    def summary(self) -> dict[str, Any]:
        """Return what a person wants to know of it."""
        return {
            "file": self.file,
            "line": self.line,
            "text": self.text,
            "change": f"{_brief(self.old)} -> {_brief(self.new) or '(nothing)'}",
        }


def _brief(code: str) -> str:
    first, *more = code.strip().splitlines() or [""]
    return f"{first} …" if more else first


def numbered(changes: Iterable[Change]) -> Iterator[Change]:
    """Tell apart what is otherwise called the same."""
    seen: Counter[tuple[str, str, str]] = Counter()
    for change in changes:
        name = (change.text, change.old, change.new)
        yield replace(change, nth=seen[name])
        seen[name] += 1
