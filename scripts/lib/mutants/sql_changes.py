"""Which small faults a file of SQL can have, line by line.

Unary plus (`+state`) is left alone: it only keeps an index from being used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from mutants.change import Change

_NAME = re.compile(r"-- name: (\w+)")
_ABOUT = re.compile(r"\b(?:CREATE TABLE|CREATE VIEW|ON) (jobpool[._]\w+)")
_SETS = re.compile(r"^\s*(SET|VALUES)\b|\bDO UPDATE SET\b")
_ASKS = re.compile(r"\b(WHERE|AND|OR|ON|WHEN|HAVING|SELECT|CHECK)\b")
_COMPARED = re.compile(r"(?<= )(<=|>=|<>|<|>|=)(?= )")
_OTHER = {"<=": "<", "<": "<=", ">=": ">", ">": ">=", "=": "<>", "<>": "="}
_WORDS = (
    (re.compile(r"\bIS NOT NULL\b"), "IS NULL"),
    (re.compile(r"\bIS NULL\b"), "IS NOT NULL"),
    (re.compile(r"\bNOT EXISTS\b"), "EXISTS"),
    (re.compile(r"(?<!NOT )\bEXISTS(?= \()"), "NOT EXISTS"),
    (re.compile(r"\bNOT IN\b"), "IN"),
    (re.compile(r" DESC\b"), ""),
    (re.compile(r"(?<=ORDER BY )[\w.]+(?!.* DESC)(?=,|$)"), r"\g<0> DESC"),
    (re.compile(r"\bLIMIT [:%]?\(?\w+\)?s?$"), ""),
    (re.compile(r"\bmin(?=\()"), "max"),
    (re.compile(r"\bmax(?=\()"), "min"),
    (re.compile(r"(?<=\w) \+ (?=[\w:%(])"), " - "),
    (re.compile(r"(?<=\w) - (?=[\w:%(])"), " + "),
    (re.compile(r"(?<== )0\b"), "1"),
    (re.compile(r"(?<== )1\b"), "0"),
    (re.compile(r"(?<=^WHERE ).+(?<!\()$"), "TRUE"),
    (re.compile(r"^\s*AND .+"), ""),
    (re.compile(r"^\s*OR .+"), ""),
    (re.compile(r"(?<= )AND(?= )(?!.*BETWEEN)(?<!BETWEEN \w AND)"), "OR"),
    (re.compile(r"\bFOR (KEY SHARE|UPDATE)\b.*"), ""),
    (re.compile(r" SKIP LOCKED\b"), ""),
)
_SETTING = re.compile(r"^\s*(--|PRAGMA\b|fillfactor\b|autovacuum_)")
_ASSIGNED = re.compile(r"^  \w+ = .+,$")


def changes_of(file: str, source: bytes) -> Iterator[Change]:
    """Yield every fault that a file can have, in its order."""
    start, query, about, sets = 0, None, None, False
    for number, raw in enumerate(source.splitlines(keepends=True), 1):
        line = raw.decode().rstrip("\n")
        if named := _NAME.match(line):
            query, sets = named[1], False
        elif not _SETTING.match(line):
            if found := _ABOUT.search(line):
                about = found[1]
            if _SETS.search(line):
                sets = True
            elif _ASKS.search(line):
                sets = False
            for at, end, new in _in_line(line, sets=sets):
                first = start + len(line[:at].encode())
                old = line[at:end]
                yield Change(
                    file=file,
                    start=first,
                    end=first + len(old.encode()),
                    old=old.strip(),
                    new=new,
                    line=number,
                    text=line.strip(),
                    query=query,
                    about=about,
                )
        start += len(raw)


def _in_line(line: str, *, sets: bool) -> Iterator[tuple[int, int, str]]:
    """Yield from where to where something else could stand, and what."""
    if sets and _ASSIGNED.match(line) and _is_whole(line):
        yield 0, len(line), ""
    if not sets:
        for found in _COMPARED.finditer(line):
            yield found.start(), found.end(), _OTHER[found[0]]
    for pattern, new in _WORDS:
        for found in pattern.finditer(line):
            # A condition that goes on in the next line cannot be taken away alone.
            if _is_whole(found[0]):
                yield found.start(), found.end(), found.expand(new)


def _is_whole(text: str) -> bool:
    return text.count("(") == text.count(")") and text.count("'") % 2 == 0
