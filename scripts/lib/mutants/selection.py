"""Which tests judge a mutant: those that reach its line or its statement.

That is watched once for each test file, and again when the file or the source changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from jobpool.store.statements.named_sql import load_queries
from mutants.change import Change

TESTS = (
    "tests/unit/**/test_*.py",
    "tests/store/**/test_*.py",
    "tests/project/test_readme_facts.py",
    "tests/integration/client/test_caller_transaction.py",
)
"""Where the rooms are tested; what is in tests/property takes too long here."""
ROOMS = ("core", "store", "operations", "monitoring", "dashboard")
"""Of src/jobpool: where rules are. What has processes is judged by other means."""
_TEST_S_MAX = 30
"""What takes longer judges nothing."""
_FIRST_S, _FIRST_FILES = 2.0, 3
_WATCHED_AT_ONCE = 30
Record = dict[str, Any]


def hash_of(top: Path, *paths: Path) -> str:
    """Return one hash of files, and of all files in folders.

    Args:
        top: names are taken from here on: another clone has the same hash.
        paths: below it.
    """
    found = hashlib.sha256()
    for path in paths:
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            if file.is_file() and "__pycache__" not in file.parts:
                name = file.relative_to(top).as_posix()
                found.update(f"{name}\0".encode() + file.read_bytes() + b"\0")
    return found.hexdigest()[:16]


class Selection:
    """What every test reaches, and how long it takes."""

    def __init__(self, seen: Iterable[Record], s_max: float) -> None:
        self._s_max = s_max
        self._seconds: dict[str, float] = {}
        self._lines: dict[str, dict[int, set[str]]] = defaultdict(
            lambda: defaultdict(set)
        )
        self._queries: dict[str, set[str]] = defaultdict(set)
        failed: set[str] = set()
        for one in seen:
            self._seconds |= one["seconds"]
            failed |= set(one["failed"])
            for file, lines in one["lines"].items():
                for number, tests in lines.items():
                    self._lines[file][int(number)] |= set(tests)
            for name, tests in one["queries"].items():
                self._queries[name] |= set(tests)
        self._fit = self._seconds.keys() - failed
        self._texts = {
            file: Path(file).read_text(encoding="utf-8")
            for file in {name.partition("::")[0] for name in self._fit}
        }

    def stages(self, change: Change) -> tuple[list[list[str]], float]:
        """Return the tests for a mutant, in the order to run them, and their seconds.

        First a few fast ones of few files, then the rest as far as the time goes.
        """
        wanted = sorted(
            self._reaching(change) & self._fit, key=lambda t: (self._seconds[t], t)
        )
        # One case of each test before a second one of any: they see different things.
        cases: Counter[str] = Counter()
        rank: dict[str, int] = {}
        for test in wanted:
            function = test.partition("[")[0]
            rank[test] = cases[function]
            cases[function] += 1
        wanted.sort(key=rank.__getitem__)
        if change.file.endswith(".py"):
            # Those that are about the module come first.
            named = self._naming(change.file)
            wanted.sort(key=lambda test: test.partition("::")[0] not in named)
        first: list[str] = []
        later: list[str] = []
        files: set[str] = set()
        sum_s = 0.0
        for test in wanted:
            file, took_s = test.partition("::")[0], self._seconds[test]
            if sum_s + took_s > self._s_max:
                continue
            sum_s += took_s
            is_early = sum_s <= _FIRST_S
            if is_early and (file in files or len(files) < _FIRST_FILES):
                files.add(file)
                first.append(test)
            else:
                later.append(test)
        return [stage for stage in (first, later) if stage], sum_s

    def _reaching(self, change: Change) -> set[str]:
        if change.file.endswith(".sql"):
            database = "postgres" if "/postgres/" in change.file else "sqlite"
            if change.query is not None:
                return self._queries[f"{database}:{change.query}"]
            return self._using(database, change.about or "")
        lines = self._lines[change.file]
        reaching = set().union(*(lines.get(number, ()) for number in change.lines))
        if reaching:
            return reaching
        # Done at import, by a function that may be called then only, or by no test.
        named = self._naming(change.file)
        near = {test for test in self._fit if test.partition("::")[0] in named}
        return near.union(*lines.values())

    def _using(self, database: str, table: str) -> set[str]:
        """Return the tests of what a migration makes: by a statement, or by hand."""
        word = re.compile(rf"\b{re.escape(table)}\b")
        asking = (n for n, text in load_queries(database).items() if word.search(text))
        named = {file for file, text in self._texts.items() if word.search(text)}
        by_hand = {test for test in self._fit if test.partition("::")[0] in named}
        return by_hand.union(*(self._queries[f"{database}:{n}"] for n in asking))

    def _naming(self, file: str) -> set[str]:
        """Return the test files that name a module."""
        module = file.removeprefix("src/").removesuffix(".py").replace("/", ".")
        folder, _, name = module.rpartition(".")
        words = (module, f"from {folder} import {name}\n")
        return {
            test
            for test, text in self._texts.items()
            if any(word in text for word in words)
        }


def watched(
    top: Path, cache: Path, environment: Mapping[str, str], jobs: int
) -> list[Record]:
    """Return what each test file's tests reach; watch those that are not known yet."""
    source = hash_of(
        top, top / "src/jobpool", *sorted((top / "tests" / "support").rglob("*.py"))
    )
    known: dict[str, Record] = {}
    if cache.exists():
        known = json.loads(cache.read_text(encoding="utf-8"))
    stamps = {
        str(file.relative_to(top)): hash_of(top, file, *file.parent.glob("conftest.py"))
        + source
        for pattern in TESTS
        for file in sorted(top.glob(pattern))
    }
    known = {f: s for f, s in known.items() if s["stamp"] == stamps.get(f)}
    if missing := [file for file in stamps if file not in known]:
        print(f"mutants: watching {len(missing)} test files", file=sys.stderr)
    for first in range(0, len(missing), _WATCHED_AT_ONCE):
        group = missing[first : first + _WATCHED_AT_ONCE]
        for file, seen in _watch(top, group, environment, jobs).items():
            known[file] = {**seen, "stamp": stamps[file]}
        # What was watched need not be watched again, whatever ends this run.
        cache.parent.mkdir(exist_ok=True)
        cache.write_text(json.dumps(known), encoding="utf-8")
    return list(known.values())


def _watch(
    top: Path, files: list[str], environment: Mapping[str, str], jobs: int
) -> dict[str, Record]:
    """Run test files once, without a fault; return what each reached."""
    with tempfile.TemporaryDirectory(prefix="jobpool-mutants-") as directory:
        words = ["-q", "-p", "no:cacheprovider", "-p", "mutants.witness"]
        words += ["--timeout", str(_TEST_S_MAX), "-n", str(jobs), "--dist", "loadfile"]
        subprocess.run(
            [sys.executable, "-m", "pytest", *words, *files],
            cwd=top,
            env={**os.environ, **environment, "MUTANTS_WITNESS": directory},
            stdout=sys.stderr,
            check=False,  # a test that fails judges nothing
        )
        seen = [
            json.loads(path.read_text("utf-8")) for path in Path(directory).iterdir()
        ]
    return {one["file"]: one for one in seen}
