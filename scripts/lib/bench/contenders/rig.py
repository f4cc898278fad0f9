"""What every contender of `scripts/bench` shares: its handlers, and how it is driven.

Theory of operation. A contender is a program that runs in its own environment, so this
module needs only the standard library. Handlers append 16 bytes to one witness file:
CLOCK_MONOTONIC, which all processes of a host share, and a value. Every figure comes
from that file, so it is measured in the same way for all systems, whatever they report
themselves, and all pay the same for the witness (some 2 us per job).

``PROGRAM '{"scenario": "drain", …}'`` runs one scenario and writes its figures to the
file ``figures`` in BENCH_DIR. Its processes are ended by the program that started it.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

RECORD = struct.Struct("<qq")
MIB = 2**20
HANG_LIMIT_S = 1
MEMORY_LIMIT_MIB = 256
HOARD_MIB = 1024
STEP_MIB = 8
CRASHED, HUNG, HOARDED = -1, -2, -3
PATIENCE_S = 80.0
WARM_SHARE = 0.1
"""The part of a drain that is left out: workers start at different moments."""
POLL_S = 0.1
HERE = Path(__file__).parent
STARTED: list[subprocess.Popen[bytes]] = []
"""The processes that the measured system has started from this one."""


def directory() -> Path:
    """Return where this run keeps its files."""
    return Path(os.environ["BENCH_DIR"])


class _Witness:
    fd = -1


def note(value: int = 0) -> None:
    """Append the time and a value to the witness file."""
    if _Witness.fd < 0:
        path = directory() / "witness"
        _Witness.fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(_Witness.fd, RECORD.pack(time.monotonic_ns(), value))


def noop(argument: str) -> None:  # noqa: ARG001 - a payload is only carried
    """Do nothing."""
    note()


def spin(argument: str) -> None:
    """Keep a core busy for some milliseconds."""
    note()
    until_s = time.perf_counter() + float(argument) / 1000
    while time.perf_counter() < until_s:
        pass


def nap(argument: str) -> None:
    """Sleep for some milliseconds."""
    note()
    time.sleep(float(argument) / 1000)


def crash(argument: str) -> None:  # noqa: ARG001 - all handlers take one
    """Dereference null."""
    note(CRASHED)
    ctypes.string_at(0)


def hang(argument: str) -> None:  # noqa: ARG001 - all handlers take one
    """Loop until killed."""
    note(HUNG)
    while True:
        pass


def hoard(argument: str) -> None:  # noqa: ARG001 - all handlers take one
    """Take 1 GiB in steps that are written to, 8 MiB each 2 ms."""
    held = []
    for step in range(0, HOARD_MIB, STEP_MIB):
        held.append(b"x" * (STEP_MIB * MIB))
        note(step + STEP_MIB)
        time.sleep(0.002)
    note(HOARDED)


HANDLERS: dict[str, Callable[[str], None]] = {
    each.__name__: each for each in (noop, spin, nap, crash, hang, hoard)
}


class Contender:
    """A measured system; subclasses define how it gets jobs and workers."""

    def __init__(self, wish: dict[str, Any]) -> None:
        self.wish = wish
        self.workers: int = wish.get("workers", 2)
        self.fresh: bool = wish.get("fresh", False)

    def put(self, kind: str, argument: str) -> None:
        """Enqueue one job, as safely as the system can."""
        raise NotImplementedError

    def put_many(self, kind: str, argument: str, count: int) -> None:
        """Enqueue many jobs, in the fastest way that is as safe."""
        for _ in range(count):
            self.put(kind, argument)

    def work(self) -> None:
        """Start the workers."""
        raise NotImplementedError

    def spawn(self, *words: str) -> None:
        """Start a process of the system's."""
        with (directory() / "log").open("ab") as log:
            STARTED.append(
                subprocess.Popen(words, stdout=log, stderr=log, cwd=directory())
            )


def records() -> list[tuple[int, int]]:
    """Return the witness file's records, in order of time."""
    path = directory() / "witness"
    return sorted(RECORD.iter_unpack(path.read_bytes())) if path.exists() else []


def wait_for_records(count: int, poll_s: float = POLL_S) -> None:
    """Wait until the witness file has this many records."""
    path, until_s = directory() / "witness", time.monotonic() + PATIENCE_S
    while True:
        found = path.stat().st_size // RECORD.size if path.exists() else 0
        if found >= count:
            return
        if time.monotonic() > until_s:
            sys.exit(f"bench: {found} of {count} jobs began within {PATIENCE_S:.0f} s")
        if any(process.poll() is not None for process in STARTED):
            sys.exit("bench: a worker ended by itself")
        time.sleep(poll_s)


def drain(system: Contender) -> dict[str, float]:
    """Enqueue all jobs, then start the workers."""
    wish, count = system.wish, system.wish["count"]
    system.put_many(wish["kind"], wish.get("argument", ""), count)
    system.work()
    before_s = 0.0
    if wish.get("is_cpu_asked"):
        wait_for_records(1, poll_s=0.01)  # its start does not belong to the jobs
        before_s = own_cpu_s(STARTED[0].pid)
    wait_for_records(count)
    at = [when for when, _ in records()]
    first = int(WARM_SHARE * count)
    rate = 1e9 * (count - 1 - first) / (at[count - 1] - at[first])
    found = {"jobs/s": rate}
    if wish.get("is_cpu_asked"):
        spent_s = own_cpu_s(STARTED[0].pid) - before_s
        found["us of the first process"] = 1e6 * spent_s / count
    if wish.get("are_children_asked"):
        found["us of a child"] = 1e6 * reaped_cpu_s(STARTED[0].pid) / count
    if wish["kind"] == "spin":
        share = rate * float(wish["argument"]) / 1000 / system.workers
        found["% of workers in handlers"] = 100 * share
    return found


def pick_up(system: Contender) -> dict[str, float]:
    """Enqueue one job at a time while everything is idle."""
    system.work()
    for warm in range(1, 6):
        system.put("noop", "")
        wait_for_records(warm)
    asked = []
    for _ in range(system.wish["count"]):
        time.sleep(system.wish["every_s"])
        asked.append(time.monotonic_ns())
        system.put("noop", "")
    wait_for_records(5 + len(asked))
    begun = [at for at, _ in records()][5:]
    late = sorted((b - a) / 1e6 for a, b in zip(asked, begun, strict=True))
    return {"p50 ms": share_of(late, 0.5), "p99 ms": share_of(late, 0.99)}


def enqueue(system: Contender) -> dict[str, float]:
    """Let producers enqueue jobs for a while, one per call, without workers."""
    wish = system.wish
    system.put("noop", "")
    # Not by fork: a connection to SQLite must not be carried over.
    context = get_context("spawn")
    pipe, theirs = context.Pipe(duplex=False)
    ready = context.Barrier(wish["producers"])
    producers = [
        context.Process(target=_produce, args=(type(system), wish, ready, theirs))
        for _ in range(wish["producers"])
    ]
    for producer in producers:
        producer.start()
    answers = [pipe.recv() for _ in producers]
    for producer in producers:
        producer.join()
    took_ms = sorted(ms for one, _ in answers for ms in one)
    return {
        "jobs/s": len(took_ms) / wish["seconds"],
        "p50 ms": share_of(took_ms, 0.5),
        "worst ms": took_ms[-1],
        "errors": float(sum(errors for _, errors in answers)),
    }


def _produce(
    make: type[Contender], wish: dict[str, Any], ready: Barrier, pipe: Any
) -> None:
    """Run one producer, with its own connection; all start at the same moment."""
    system, took_ms, errors = make(wish), [], 0
    system.put("noop", "")  # it is connected
    ready.wait(PATIENCE_S)
    until_s = time.perf_counter() + wish["seconds"]
    while (began_s := time.perf_counter()) < until_s:
        try:
            system.put("noop", "")
        except Exception as error:  # noqa: BLE001 - whatever a system raises counts
            errors += 1
            print(f"bench: a producer met {error!r}", file=sys.stderr)
        took_ms.append(1000 * (time.perf_counter() - began_s))
    ready.wait(PATIENCE_S)  # an interpreter that ends would hold up the others' last
    pipe.send((took_ms, errors))


def bulk(system: Contender) -> dict[str, float]:
    """Enqueue many jobs at once."""
    system.put("noop", "")
    began_s = time.perf_counter()
    system.put_many("noop", system.wish.get("argument", ""), system.wish["count"])
    return {"jobs/s": system.wish["count"] / (time.perf_counter() - began_s)}


def after(system: Contender) -> dict[str, float]:
    """With one worker, alternate jobs that are killed with honest ones."""
    kind = system.wish["kind"]
    grace_ns = int(HANG_LIMIT_S * 1e9) if kind == "hang" else 0
    system.work()
    system.put("noop", "")
    wait_for_records(1)
    late = []
    for _ in range(system.wish["count"]):
        before = len(records())
        system.put(kind, "")
        system.put("noop", "")
        wait_for_records(before + 2)
        at = [when for when, _ in records()]
        late.append((at[before + 1] - at[before] - grace_ns) / 1e6)
    late.sort()
    return {"p50 ms": share_of(late, 0.5), "worst ms": late[-1]}


def overshoot(system: Contender) -> dict[str, float]:
    """Measure how much memory a job gets that allocates without end."""
    system.work()
    system.put("noop", "")
    wait_for_records(1)
    system.put("hoard", "")
    system.put("noop", "")
    until_s = time.monotonic() + PATIENCE_S
    while [value for _, value in records()].count(0) < 2:  # noqa: PLR2004 - both no-ops
        if time.monotonic() > until_s:
            sys.exit("bench: the slot did not come back after a hoarder")
        time.sleep(POLL_S)
    return {"MiB held": float(max(value for _, value in records()))}


def idle(system: Contender) -> dict[str, float]:
    """Measure the cost of the system's processes, without a broker's, when idle."""
    system.work()
    system.put("noop", "")
    wait_for_records(1)
    time.sleep(2.0)
    before = {pid: own_cpu_s(pid) for pid in family()}
    time.sleep(system.wish["seconds"])
    spent_s = sum(own_cpu_s(pid) - cpu_s for pid, cpu_s in before.items())
    return {
        "% of a core": 100 * spent_s / system.wish["seconds"],
        "PSS MiB": sum(pss_mib(pid) for pid in before),
    }


def family() -> list[int]:
    """Return the system's processes, found by the mark that all of them inherit.

    The producer is left out, unless it is the pool itself.
    """
    mark = f"BENCH_RUN={os.environ['BENCH_RUN']}".encode()
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            marked = mark in (place / "environ").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it ended meanwhile, or is not ours
        if marked and (int(place.name) != os.getpid() or not STARTED):
            found.append(int(place.name))
    return found


def own_cpu_s(pid: int) -> float:
    """Return a process's own CPU time, without its children's."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def reaped_cpu_s(pid: int) -> float:
    """Return the CPU time of a process's children that it has reaped."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def pss_mib(pid: int) -> float:
    """Return a process's PSS: shared pages are divided among the processes."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


def share_of(ranked: Sequence[float], share: float) -> float:
    """Return the nearest-rank quantile of sorted values."""
    return ranked[max(0, -int(-share * len(ranked) // 1) - 1)]


SCENARIOS = {
    each.__name__: each
    for each in (drain, pick_up, enqueue, bulk, after, overshoot, idle)
}


def main(make: type[Contender]) -> None:
    """Run the scenario that the command line asks for."""
    wish = json.loads(sys.argv[1])
    found = SCENARIOS[wish["scenario"]](make(wish))
    partial = directory() / "figures.part"
    partial.write_text(json.dumps(found))
    partial.rename(directory() / "figures")
    time.sleep(PATIENCE_S)  # until the program that started this ends it
