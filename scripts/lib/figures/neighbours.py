"""Measures how much noisy jobs slow small ones in another pool.

Every few milliseconds a small job is enqueued, whether or not the earlier ones have
ended. The job records when it begins; a reader that polls the store every half
millisecond records when its end is stored. Beside it run noisy jobs or, in their place,
controls that leave jobpool nothing to do: the same processor time, as many bytes to the
disk (once; SQLite writes them twice). All take turns, each with its own store and
supervisor; ratios are taken within rounds.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import os
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from figures.ground import MIB, Ground, check, p99, supervisor

APP = Path(__file__).with_name("neighbours_app.py")
MODULE = f"figures.{APP.stem}"
POOLS = "small=2,noisy=1"
LASTS_S = 10.0
EVERY_S = 0.01
POLL_S = 0.0005
WARM_JOBS = 50
PATIENCE_S = 30.0
PAUSE_S = 0.025
PRINTED: Mapping[str, object] = {"lasts_s": LASTS_S, "size_bytes": 1024 * MIB}


class Case(NamedTuple):
    """What runs beside the small jobs."""

    name: str
    kind: str = ""
    """The kind of the noisy jobs; none: there are none."""
    many: int = 0
    """Of those: more than there is time for, or one that takes all of it."""
    arguments: Mapping[str, object] = {}
    is_control: bool = False
    """Of the case before it."""
    takes_cpu: bool = False
    """It gets as an argument how much processor time that one took."""


ALONE = Case("alone")
CASES = (
    ALONE,
    Case("1 MiB results", "results", 5000, {"pause_s": 0.0}),
    Case("1 MiB files", "results.bare", 5000, {"pause_s": 0.0}, is_control=True),
    Case("1 MiB results, 25 ms apart", "results", 500, {"pause_s": PAUSE_S}),
    Case(
        "1 MiB files, 25 ms apart",
        "results.bare",
        500,
        {"pause_s": PAUSE_S},
        is_control=True,
    ),
    Case("1 GiB printed in 10 s", "prints", 1, PRINTED),
    Case(
        "1 GiB to /dev/null", "prints.bare", 1, PRINTED, is_control=True, takes_cpu=True
    ),
)


class Sample(NamedTuple):
    """One small job's times, in seconds of the monotonic clock."""

    asked_s: float
    stored_s: float
    """When enqueue() returned."""
    begun_s: float
    settled_s: float


Rounds = Sequence[Mapping[str, Sequence[Sample]]]
"""In each round: by case, the small jobs."""
Part = Callable[[Sample], float]
PARTS: Mapping[str, Part] = {  # each from the end of the one before it
    "enqueue()": lambda job: job.stored_s - job.asked_s,
    "begun": lambda job: job.begun_s - job.stored_s,
    "settled": lambda job: job.settled_s - job.begun_s,
    "in all": lambda job: job.settled_s - job.asked_s,
}


def slowed(ground: Ground, options: argparse.Namespace) -> dict[str, object]:
    """Let small jobs run alone, beside noisy ones and beside their controls."""
    rounds: list[dict[str, list[Sample]]] = []
    noise: dict[str, list[Noise]] = {case.name: [] for case in CASES}
    for _ in range(options.rounds):
        samples: dict[str, list[Sample]] = {}
        cpu_s = 0.0
        for case in CASES:
            with stage(ground) as on:
                samples[case.name] = on.watch(case, cpu_s)
                made = on.noise(case)
            noise[case.name].append(made)
            cpu_s = made.cpu_s
        rounds.append(samples)
    found: dict[str, object] = {}
    for case, after in itertools.zip_longest(CASES, CASES[1:]):
        bases = [] if case is ALONE else [ALONE]
        if after and after.is_control:
            bases.append(after)
        for name, part in PARTS.items():
            found[f"{case.name}: {name}"] = "; ".join(
                [_figures(rounds, case, part)]
                + [_ratio(rounds, case, base, part) for base in bases]
            )
        if case.kind:
            found[f"{case.name}: noisy jobs ended; CPU s"] = (
                f"{statistics.median(made.ended for made in noise[case.name]):.0f}; "
                f"{statistics.median(made.cpu_s for made in noise[case.name]):.2f}"
            )
    return found


def _figures(rounds: Rounds, case: Case, part: Part) -> str:
    """Format p50 and p99: the medians over the rounds."""
    took = [[1000 * part(job) for job in samples[case.name]] for samples in rounds]
    middle = statistics.median(map(statistics.median, took))
    return f"p50 {middle:.2f} ms, p99 {statistics.median(map(p99, took)):.2f} ms"


def _ratio(rounds: Rounds, case: Case, base: Case, part: Part) -> str:
    """Format the ratio of p99 to another case's, taken within rounds."""
    ratios = sorted(
        p99([part(job) for job in samples[case.name]])
        / p99([part(job) for job in samples[base.name]])
        for samples in rounds
    )
    return (
        f"{statistics.median(ratios):.2f} times {base.name} "
        f"({ratios[0]:.2f} to {ratios[-1]:.2f})"
    )


class Noise(NamedTuple):
    """How many noisy jobs ended, and their processor time."""

    ended: int
    cpu_s: float


class Stage:
    """A store, its reader and its enqueuer.

    Args:
        directory: has the witness file.
        url: of the store.
        app: the application, which is told by its environment where these are.
    """

    def __init__(self, directory: Path, url: str, app: ModuleType) -> None:
        self._stamps = directory / "stamps"
        self._app = app
        self._reader = sqlite3.connect(
            url.removeprefix("sqlite:///"), isolation_level=None
        )
        self._version = -1
        self._last_id = 0
        """Jobs up to this one were for warming up."""
        self._settled: dict[int, float] = {}
        """When the end of a small job was seen, by its id."""

    def close(self) -> None:
        """Close the connections to the store."""
        self._reader.close()
        self._app.jobs.close()

    def warm(self) -> None:
        """Wait until the supervisor has run jobs in both pools."""
        for _ in range(WARM_JOBS):
            self._app.small.enqueue(0)
        self._last_id = self._app.results.enqueue(0.0).id
        self._wait("small", WARM_JOBS, after_id=0)
        self._wait("results", 1, after_id=0)

    def watch(self, case: Case, cpu_s: float) -> list[Sample]:
        """Enqueue small jobs for a while beside noisy ones; return their times."""
        if case.kind:
            extra = {"cpu_s": cpu_s} if case.takes_cpu else {}
            handler = getattr(self._app, case.kind.replace(".", "_"))
            items = [{**case.arguments, **extra}] * case.many
            self._app.jobs.enqueue_many(handler, items)
        asked: dict[int, tuple[float, float]] = {}
        next_s = time.monotonic()
        until_s = next_s + LASTS_S
        while next_s < until_s or len(self._settled) < len(asked):
            check(time.monotonic() < until_s + PATIENCE_S, "small jobs do not end")
            self._note_settled(asked)
            asked_s = time.monotonic()
            if next_s <= asked_s and next_s < until_s:
                job = self._app.small.enqueue(len(asked))
                asked[job.id] = asked_s, time.monotonic()
                next_s += EVERY_S
            time.sleep(POLL_S)
        begun = dict(map(str.split, self._stamps.read_text().splitlines()))
        return [
            Sample(*moments, float(begun[str(number)]), self._settled[job_id])
            for number, (job_id, moments) in enumerate(asked.items())
        ]

    def noise(self, case: Case) -> Noise:
        """Return how many noisy jobs ended, and their processor time."""
        if case.many == 1:
            self._wait(case.kind, 1, after_id=self._last_id)
        return Noise(*self._ended(case.kind, self._last_id))

    def _note_settled(self, asked: Mapping[int, object]) -> None:
        """Note the small jobs whose end has been stored since the last check."""
        ((version,),) = self._reader.execute("PRAGMA data_version")
        oldest = next((one for one in asked if one not in self._settled), None)
        if version == self._version or oldest is None:
            return
        self._version = version
        rows = self._reader.execute(
            "SELECT id FROM jobpool_jobs "
            "WHERE id >= ? AND kind = 'small' AND finished_at_ms IS NOT NULL",
            [oldest],
        ).fetchall()
        seen_s = time.monotonic()
        for (job_id,) in rows:
            self._settled.setdefault(job_id, seen_s)

    def _wait(self, kind: str, count: int, after_id: int) -> None:
        until_s = time.monotonic() + PATIENCE_S
        while self._ended(kind, after_id)[0] < count:
            check(time.monotonic() < until_s, f"{kind} does not end")
            time.sleep(0.05)

    def _ended(self, kind: str, after_id: int) -> tuple[int, float]:
        ((ended, cpu_s),) = self._reader.execute(
            "SELECT count(*), total(cpu_s) FROM jobpool_jobs "
            "WHERE kind = ? AND id > ? AND state = 'succeeded'",
            [kind, after_id],
        )
        return ended, cpu_s


@contextmanager
def stage(ground: Ground) -> Iterator[Stage]:
    """Run a supervisor on a new store; yields once both pools have worked."""
    with tempfile.TemporaryDirectory(dir=ground.directory) as name:
        directory = Path(name)
        with ground.fresh_store(directory) as url:
            os.environ["FIGURES_DIRECTORY"] = name
            os.environ["JOBPOOL_STORE"] = url
            os.environ["JOBPOOL_RUN_DIR"] = str(directory / "run")
            sys.modules.pop(MODULE, None)
            app = importlib.import_module(MODULE)  # it reads what was just set
            with supervisor(directory, POOLS, APP):
                app.small.enqueue(0)  # makes the store
                with closing(Stage(directory, url, app)) as found:
                    found.warm()
                    yield found
