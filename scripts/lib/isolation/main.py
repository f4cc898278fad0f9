"""Runs the same hostile jobs under several systems and prints one table.

The systems' own reports are not used: handlers write notes to a file, and the kernel
shows what is alive. For each case, beside ten canaries in two slots:

  runs       how often the hostile job began while it was watched; over and over: "∞"
  canaries   how many of ten ended; "+n": so many ran more than once
  limit      whether an endless job was ended (its limit: 2 s)
  MiB        how much the hoarder got (its limit: 256 MiB, of 1024)
  left       processes of the job that were alive at the end of the watch

Not measured: a broker that fails, machines that fail, other versions, other settings.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from peers import NotMeasured, environment, want_redis

from isolation.cases import CASES, ENDLESS, MEMORY
from isolation.systems import CANARIES, RUN

PACKAGES = {
    "celery": [
        "celery",
        "packaging",
        "redis",
    ],  # it does not declare the second as a dependency
    "rq": ["rq", "redis"],
    "pebble": ["pebble"],
    "executor": [],
}
NEEDS_REDIS = ("celery", "rq")
FOREVER_RUNS = 5
"""A system that began a job more often than this has no visible cap."""
POLL_S = 0.1
CLOCK_S = 0.05
"""The kernel's figure for the start of a process is coarse."""


class Found(NamedTuple):
    """The result of one case under one system."""

    runs: int
    canaries: int
    repeated: int
    """Canaries that ran more than once."""
    ended: bool | None
    """Whether the endless job was; None: it is none."""
    held_mib: int | None
    left: int


def main() -> None:
    """Compare, and print."""
    parser = argparse.ArgumentParser(
        prog="scripts/compare-isolation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", action="append", choices=RUN)
    parser.add_argument("--case", action="append", choices=CASES)
    parser.add_argument("--watch", type=float, default=10.0, metavar="SECONDS")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    table: dict[str, dict[str, Found]] = {}
    for system in options.only or RUN:
        try:
            python = _python_of(system)
        except NotMeasured as why:
            print(f"{system}: not measured: {why}", file=sys.stderr)
            continue
        table[system] = {
            case: watched(python, system, case, options.watch)
            for case in options.case or CASES
        }
    if options.json:
        print(
            json.dumps(
                {s: {c: f._asdict() for c, f in of.items()} for s, of in table.items()}
            )
        )
        return
    for line in lines(table):
        print(line)


def watched(python: str, system: str, case: str, watch_s: float) -> Found:
    """Run one case under a system, and watch it from outside."""
    directory = Path(tempfile.mkdtemp(prefix="jobpool-compare-"))
    marker = f"COMPARE_RUN={uuid.uuid4().hex}"
    name, value = marker.split("=")
    lib = str(Path(__file__).parents[1])
    env = {**os.environ, "COMPARE_DIR": str(directory), name: value, "PYTHONPATH": lib}
    with (directory / "log").open("wb") as log:
        words = [python, f"{lib}/isolation/systems.py", system, case]
        process = subprocess.Popen(
            words, env=env, stdout=log, stderr=log, start_new_session=True
        )
    try:
        _wait(directory, watch_s)
        return _judge(case, _notes(directory), _alive(marker, directory))
    finally:
        while pids := _alive(marker, directory):
            for pid in pids:
                _kill(pid)
            time.sleep(POLL_S)
        process.wait()
        shutil.rmtree(directory)


def _wait(directory: Path, watch_s: float) -> None:
    """Wait for some time after the hostile job began."""
    until_s = time.monotonic() + 30 + watch_s
    while not any(n[0] == "began" for n in _notes(directory)):
        if time.monotonic() > until_s:
            return
        time.sleep(POLL_S)
    time.sleep(watch_s)


def _judge(case: str, notes: list[list[str]], alive: dict[int, str]) -> Found:
    began = [note for note in notes if note[0] == "began"]
    sung = Counter(note[1] for note in notes if note[0] == "canary")
    held = [int(note[1]) for note in notes if note[0] == "holds"]
    pids = {int(note[-2]) for note in began}
    over_s = time.monotonic() - float(began[-1][-1]) if began else 0.0
    # The last try may have begun just now; it has its time, and a second more.
    due = pids if over_s > 4 else {int(n[-2]) for n in began[:-1]}  # noqa: PLR2004 - twice its limit
    # Nor are the processes of a try that still has its time left over.
    last_s = float("inf") if due == pids else float(began[-1][-1])
    return Found(
        runs=len(began),
        canaries=len(sung),
        repeated=sum(count > 1 for count in sung.values()),
        ended=None if case not in ENDLESS or not began else not due & set(alive),
        held_mib=max(held, default=None) if case in MEMORY else None,
        left=sum(
            command.startswith("sleep") and _born_s(pid) < last_s - CLOCK_S
            for pid, command in alive.items()
        ),
    )


def lines(table: dict[str, dict[str, Found]]) -> Iterable[str]:
    """Return the table in Markdown, one row per case."""
    yield (
        f"| runs; canaries of {CANARIES}; ended, MiB, left | "
        + " | ".join(table)
        + " |"
    )
    yield "|---|" + "---|" * len(table)
    cases = dict.fromkeys(case for of in table.values() for case in of)
    for case in cases:
        cells = [cell(of[case]) if case in of else "" for of in table.values()]
        yield f"| {case.replace('_', ' ')} | " + " | ".join(cells) + " |"


def cell(found: Found) -> str:
    """Return the table's cell of one case."""
    if not found.runs:
        return "did not begin"
    parts = [
        "∞" if found.runs > FOREVER_RUNS else str(found.runs),
        f"{found.canaries}" + (f" (+{found.repeated})" if found.repeated else ""),
    ]
    if found.ended is not None:
        parts.append("ended" if found.ended else "**runs on**")
    if found.held_mib is not None:
        parts.append(f"{found.held_mib} MiB")
    if found.left:
        parts.append(f"**{found.left} left**")
    return "; ".join(parts)


def _notes(directory: Path) -> list[list[str]]:
    path = directory / "notes"
    return (
        [line.split() for line in path.read_text().splitlines()]
        if path.exists()
        else []
    )


def _alive(marker: str, directory: Path) -> dict[int, str]:
    """Return the commands of living processes with this variable or directory.

    The directory is for Redis, which overwrites its environment with its title.
    """
    found = {}
    for place in Path("/proc").iterdir():
        if not place.name.isdigit():
            continue
        try:
            variables = (place / "environ").read_bytes().split(b"\0")
            command = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if marker.encode() in variables or f"{directory}/" in command:
            found[int(place.name)] = command
    return found


def _born_s(pid: int) -> float:
    """Return when a process began, as `time.monotonic` counts."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return float("inf")
    ticks = int(stat.rpartition(")")[2].split()[19])
    return ticks / os.sysconf("SC_CLK_TCK")


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _python_of(system: str) -> str:
    """Return the Python of a system's environment, made at first use."""
    if system == "jobpool":
        return sys.executable
    if system in NEEDS_REDIS:
        want_redis()
    return environment(system, PACKAGES[system])
