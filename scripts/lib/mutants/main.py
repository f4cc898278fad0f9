"""Puts small faults into what has rules, and looks whether a test sees each of them.

A fault is one comparison, constant, condition, statement, table's entry or default
turned into another, in Python or in SQL; it is made in a copy, never here. Only tests
that reach it are run, fastest first, until one fails. The order is the seed's: what was
tried is a sample of all, until tests are written for its survivors; then only another
seed's says how the rest fares. What was found out lies in .mutants/ and is gone on
with: a kill holds until its file changes, a survivor is tried again when a test has
changed.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import signal
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mutants import python_changes, sql_changes
from mutants.change import Change, numbered
from mutants.report import Verdict, as_data, page
from mutants.selection import ROOMS, Selection, hash_of, watched
from mutants.trying import Trials
from support.postgres.server import server

_TOP = Path(__file__).parents[3]
_WORK = _TOP / ".mutants"
_EQUIVALENTS = Path(__file__).with_name("equivalents.toml")
_SAY_EVERY_S = 15.0


def main() -> None:
    """Try what was asked for, and print what came of it."""
    given = _arguments()
    # However it ends, the copies are removed and the server is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    began_s = time.monotonic()
    changes = sorted(_changes(given.files), key=lambda c: _rank(given.seed, c))
    if not changes:
        sys.exit(
            f"mutants: no file of {', '.join(ROOMS)} is called {given.files}; name "
            "some of src/jobpool, such as --files 'core/*'. Nothing was run"
        )
    equivalents = _Equivalents(changes)
    chosen = changes[: given.count]
    records = _Records(given.tests_s)
    postgres = server()
    urls = [postgres.url, postgres.tcp_url, postgres.admin_url]
    environment = {"MUTANTS_POSTGRES": json.dumps(urls)}
    seen = watched(_TOP, _WORK / "witness.json", environment, given.jobs)
    trials = Trials(_TOP, environment, Selection(seen, given.tests_s), given.jobs)
    wanted = [c for c in chosen if not equivalents.why(c) and not records.holds(c)]
    if given.survivors:
        wanted = [change for change in wanted if records.get(change)]
    wanted.sort(key=lambda c: records.get(c) is not None)  # the unknown ones first
    progress = _Progress(len(wanted))
    until_s = time.monotonic() + 60 * (given.minutes or 1e9)
    try:
        for change, found in trials.run(wanted, lambda: time.monotonic() < until_s):
            records.put(change, found)
            progress(found["verdict"])
    except KeyboardInterrupt:
        print("mutants: interrupted; this is what there is", file=sys.stderr)
    verdicts = _verdicts(chosen, equivalents, records)
    controls = Counter(found["control"] for found in records.of(chosen, "control"))
    figures = as_data(verdicts, known=len(changes), controls=controls, seed=given.seed)
    figures["seconds"] = round(time.monotonic() - began_s)
    if given.json:
        given.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    print("\n".join(page(figures)))
    if not given.files and (stale := equivalents.unused()):
        sys.exit(f"mutants: {_EQUIVALENTS.name} names what is no mutant: {stale}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/mutants", description=__doc__)
    parser.add_argument(
        "--files", action="append", help="only these below src/jobpool, as 'core/*'"
    )
    parser.add_argument("--count", type=_some, help="so many of them; default: all")
    parser.add_argument("--minutes", type=float, help="begin none after so long")
    parser.add_argument("--jobs", type=int, default=2, help="copies at work")
    parser.add_argument(
        "--survivors", action="store_true", help="only what has survived so far"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--tests-s", type=float, default=15.0, help="seconds of tests for a mutant"
    )
    parser.add_argument("--json", type=Path, help="write the figures here")
    return parser.parse_args()


def _some(text: str) -> int:
    """Read a number of mutants.

    Raises:
        ValueError: it is no whole number.
        argparse.ArgumentTypeError: it is less than 1.
    """
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more, got {count}")
    return count


def _changes(patterns: list[str] | None) -> Iterator[Change]:
    """Yield every mutant of the files that are asked for."""
    makers = {".py": python_changes.changes_of, ".sql": sql_changes.changes_of}
    for room in ROOMS:
        for path in sorted((_TOP / "src/jobpool" / room).rglob("*")):
            file = str(path.relative_to(_TOP))
            short = file.removeprefix("src/jobpool/")
            asked = patterns or ["*"]
            if path.suffix in makers and any(
                fnmatch.fnmatch(short, pattern) for pattern in asked
            ):
                yield from numbered(makers[path.suffix](file, path.read_bytes()))


def _rank(seed: int, change: Change) -> bytes:
    """Shuffle: a change of the source leaves the order of all others as it was."""
    return hashlib.sha256(f"{seed} {change.key}".encode()).digest()


def _verdicts(
    chosen: list[Change], equivalents: _Equivalents, records: _Records
) -> Iterator[Verdict]:
    """Yield what is known of those that were chosen."""
    for change in chosen:
        if why := equivalents.why(change):
            yield Verdict(change, "equivalent", why)
        elif found := records.get(change):
            yield Verdict(change, found["verdict"], found["seen_by"])


class _Equivalents:
    """The mutants that nobody could see, with the reason."""

    def __init__(self, changes: list[Change]) -> None:
        listed = tomllib.loads(_EQUIVALENTS.read_text(encoding="utf-8"))
        self._why: dict[str, str] = {}
        self._unused: list[str] = []
        for entry in listed.get("equivalent", ()):
            found = [
                change.key
                for change in changes
                if fnmatch.fnmatch(change.file, f"src/jobpool/{entry['file']}")
                and change.text == entry["text"]
                and change.summary()["change"] in entry["changes"]
            ]
            self._why |= dict.fromkeys(found, entry["why"])
            if not found:
                self._unused.append(entry["text"])

    def why(self, change: Change) -> str:
        """Return why nobody could see it, or nothing."""
        return self._why.get(change.key, "")

    def unused(self) -> list[str]:
        """Return the lines that no mutant is in."""
        return self._unused


class _Records:
    """The verdicts, from run to run."""

    def __init__(self, tests_s: float) -> None:
        self._path = _WORK / "verdicts.jsonl"
        sources = hash_of(_TOP, _TOP / "src/jobpool", _TOP / "tests")
        self._stamp = f"{sources} {tests_s}"
        self._hashes: dict[str, str] = {}
        self._known: dict[str, dict[str, Any]] = {}
        if self._path.exists():
            for line in self._path.read_text(encoding="utf-8").splitlines():
                found = json.loads(line)
                self._known[found["key"]] = found

    def get(self, change: Change) -> dict[str, Any] | None:
        """Return the last verdict on this text of the file."""
        found = self._known.get(change.key)
        if found is None or found["hash"] != self._hash_of(change.file):
            return None
        return found

    def of(self, changes: list[Change], what: str) -> Iterator[dict[str, Any]]:
        """Yield the verdicts on some mutants that have something to say of *what*."""
        for change in changes:
            if (found := self.get(change)) and what in found:
                yield found

    def holds(self, change: Change) -> bool:
        """Say whether there is a verdict that no later test can have changed."""
        found = self.get(change)
        if found is None:
            return False
        return found["verdict"] != "survived" or found["stamp"] == self._stamp

    def put(self, change: Change, verdict: dict[str, Any]) -> None:
        """Keep a verdict."""
        found = change.summary() | verdict
        found |= {"key": change.key, "hash": self._hash_of(change.file)}
        found["stamp"] = self._stamp
        self._known[change.key] = found
        self._path.parent.mkdir(exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(found) + "\n")

    def _hash_of(self, file: str) -> str:
        return self._hashes.setdefault(file, hash_of(_TOP, _TOP / file))


class _Progress:
    """Says now and then how far it is."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._tried = 0
        self._survived = 0
        self._next_s = 0.0

    def __call__(self, verdict: str) -> None:
        self._tried += 1
        self._survived += verdict == "survived"
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + _SAY_EVERY_S
            print(
                f"{self._tried} of {self._wanted} mutants, {self._survived} survived",
                file=sys.stderr,
                flush=True,
            )
