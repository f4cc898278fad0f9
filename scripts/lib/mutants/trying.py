"""Mutants in throw-away copies of the repository, several at a time."""

from __future__ import annotations

import compileall
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from mutants.change import Change
from mutants.selection import Selection

_COPIED = ("src", "tests", "scripts", "conf", "README.md", "LICENSE", "pyproject.toml")
_BASE_S, _TIMES = 30.0, 6.0
"""A trial's deadline: so long, and so many times what its tests took."""
_CONTROL_EVERY = 10


class Judge:
    """One copy, with the process that tries mutants in it."""

    def __init__(self, top: Path, directory: Path, environment: dict[str, str]) -> None:
        for name in _COPIED:
            copy = shutil.copytree if (top / name).is_dir() else shutil.copy2
            copy(top / name, directory / name)
        compileall.compile_dir(directory / "src", quiet=2)
        self._directory = directory
        self._nth = 1_000_000_000
        path = [str(directory / name) for name in ("src", "tests", "scripts/lib")]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mutants.judge", str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                **environment,
                "PYTHONPATH": os.pathsep.join(path),
                "HYPOTHESIS_PROFILE": "ci",
            },
        )

    def try_one(
        self, change: Change, stages: list[list[str]], tests_s: float, *, fault: bool
    ) -> dict[str, Any]:
        """Return what came of it; without the fault, the tests should pass."""
        source = (self._directory / change.file).read_bytes()
        self._nth += 1
        order = {
            "file": change.file,
            "source": (change.applied_to(source) if fault else source).decode(),
            "nth": self._nth,
            "stages": stages,
            "s_max": _BASE_S + _TIMES * tests_s,
        }
        assert self._process.stdin  # noqa: S101 - both are pipes
        assert self._process.stdout  # noqa: S101
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the judge ended with {self._process.wait()}")
        return json.loads(answer)

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


class Trials:
    """Tries mutants; after some that are killed, the same tests without the fault."""

    def __init__(
        self,
        top: Path,
        environment: dict[str, str],
        selection: Selection,
        jobs: int,
    ) -> None:
        self._top = top
        self._environment = environment
        self._selection = selection
        self._jobs = jobs
        self._free: SimpleQueue[Judge] = SimpleQueue()
        self._kills = 0

    def run(
        self, changes: Iterable[Change], may_begin: Callable[[], bool]
    ) -> Iterator[tuple[Change, dict[str, Any]]]:
        """Yield each mutant's verdict as it comes, until no other may begin."""
        waiting = iter(changes)
        with ExitStack() as stack:
            threads = stack.enter_context(ThreadPoolExecutor(self._jobs))
            for _ in range(self._jobs):
                made = tempfile.TemporaryDirectory(prefix="jobpool-mutants-")
                directory = Path(stack.enter_context(made))
                directory.chmod(0o755)
                judge = Judge(self._top, directory, self._environment)
                stack.callback(judge.close)
                self._free.put(judge)
            running: set[Future[tuple[Change, dict[str, Any]]]] = set()
            while True:
                while len(running) < self._jobs and may_begin():
                    if (change := next(waiting, None)) is None:
                        break
                    running.add(threads.submit(self._try, change))
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()

    def _try(self, change: Change) -> tuple[Change, dict[str, Any]]:
        stages, tests_s = self._selection.stages(change)
        if not stages:
            return change, {"verdict": "survived", "seen_by": "", "seconds": 0}
        judge = self._free.get()
        try:
            verdict = judge.try_one(change, stages, tests_s, fault=True)
            if verdict["verdict"] != "survived":
                self._kills += 1
                if self._kills % _CONTROL_EVERY == 0:
                    whole = judge.try_one(change, stages, tests_s, fault=False)
                    verdict["control"] = whole["verdict"]
                    if whole["verdict"] != "survived":
                        print(f"mutants: without a fault: {whole}", file=sys.stderr)
        finally:
            self._free.put(judge)
        return change, verdict
