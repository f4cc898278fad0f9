"""How long a supervisor takes to its first success, and what it holds when it idles.

Two pools. The control is a bare interpreter that imports the same, right before: with
nothing to import, and with numpy and pandas.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import requires
from pathlib import Path

from peers import NotMeasured, environment

from bench.report import US, Sample
from bench.running import PATIENCE_S, carriers, end_carriers
from bench.sections import Scale

SOURCE = Path(__file__).resolve().parents[3] / "src"
IMPORTS: Mapping[str, str] = {
    "an empty application": "pass",
    "numpy and pandas": "import numpy, pandas",
}
"""What an application does beside declaring a handler."""
ALLOWED: Mapping[str, float] = {"an empty application": 1.0, "numpy and pandas": 1.2}
"""Times of the bare import that a start may take, before what it adds is counted."""
APP = """
{imports}
import time
from pathlib import Path
from jobpool import JobPool

jobs = JobPool()


@jobs.job("a", kind="first")
def first():
    (Path(__file__).parent / "first").write_text(str(time.monotonic()))
"""
SLOTS = 10
"""In each of two pools."""
PAIRS, PAIRS_QUICK = 7, 2
ENQUEUE = "from app import first; first.enqueue()"
STARTED = '"child_started"'
POLL_S = 0.005
SETTLED_S = 0.5
"""Children that have just been forked still touch pages."""
PSS = re.compile(r"^Pss:\s+(\d+) kB", re.MULTILINE)


def samples(scale: Scale, number: int, old: Path | None) -> Iterator[Sample]:
    """Measure one round.

    Args:
        scale: how much.
        number: the round.
        old: the ``src`` of an older release, to compare with; None: without.

    Raises:
        NotMeasured: numpy and pandas cannot be installed, or a supervisor failed.
    """
    python = environment("analytics", ("numpy", "pandas", *_needed()))
    for source in (SOURCE, *((old,) if old else ())):
        # Else a start compiles, and where PYTHONDONTWRITEBYTECODE is set, each does.
        subprocess.run([python, "-m", "compileall", "-qq", str(source)], check=False)
    for _ in range(PAIRS if scale.rounds > 1 else PAIRS_QUICK):
        for what, imports in IMPORTS.items():
            bare_s = _bare_s(python, imports)
            start_s, pss_mib = _start(python, SOURCE, imports)
            added_s = start_s - ALLOWED[what] * bare_s
            found = {
                "bare import, s": bare_s,
                "to the first success, s": start_s,
                f"s beyond {ALLOWED[what]:g} x the bare import": added_s,
                "idle PSS with 20 slots, MiB": pss_mib,
            }
            if old is not None:
                before_s, before_mib = _start(python, old, imports)
                found["to the first success, over older"] = start_s / before_s
                found["idle PSS with 20 slots, over older"] = pss_mib / before_mib
            for figure, value in found.items():
                yield Sample("start", f"{what}: {figure}", US, number, value)


def _needed() -> list[str]:
    """Return what jobpool itself needs."""
    return [each for each in requires("jobpool") or () if "extra ==" not in each]


def _bare_s(python: str, imports: str) -> float:
    began_s = time.perf_counter()
    subprocess.run([python, "-c", imports], check=True)
    return time.perf_counter() - began_s


def _start(python: str, source: Path, imports: str) -> tuple[float, float]:
    """Start a supervisor that finds a job.

    Returns:
        Seconds from its start until the handler began, and the memory of all its
        processes once they idle, in MiB.
    """
    with tempfile.TemporaryDirectory(prefix="jobpool-bench-") as name:
        place = Path(name)
        (place / "app.py").write_text(APP.format(imports=imports))
        mark = uuid.uuid4().hex
        env = {k: v for k, v in os.environ.items() if not k.startswith("JOBPOOL_")}
        env |= {
            "PYTHONPATH": str(source),
            "JOBPOOL_STORE": f"sqlite:///{place / 'jobs.db'}",
            "JOBPOOL_RUN_DIR": str(place / "run"),
            "BENCH_RUN": mark,
        }
        subprocess.run([python, "-c", ENQUEUE], env=env, cwd=place, check=True)
        with _supervisor(python, place, env, f"BENCH_RUN={mark}") as began_s:
            first, log = place / "first", place / "log"
            _until(lambda: first.exists() and first.read_text(), "success", place)
            _until(
                lambda: log.read_text().count(STARTED) == 2 * SLOTS, "children", place
            )
            time.sleep(SETTLED_S)
            pss_kib = sum(map(_pss_kib, carriers(f"BENCH_RUN={mark}")))
        return float(first.read_text()) - began_s, pss_kib / 1024


@contextmanager
def _supervisor(
    python: str, place: Path, env: Mapping[str, str], mark: str
) -> Iterator[float]:
    """Run a supervisor; yield when it was started."""
    words = ["-m", "jobpool", "run", "--app", "app.py"]
    words += ["--pools", f"a={SLOTS},b={SLOTS}"]
    words += ["--log-format", "json", "--log-level", "debug"]
    with (place / "log").open("wb") as log:
        began_s = time.monotonic()
        process = subprocess.Popen(
            [python, *words], env=env, cwd=place, stdout=log, stderr=log
        )
    try:
        yield began_s
    finally:
        end_carriers(mark)
        process.wait()


def _pss_kib(pid: int) -> int:
    """Return a process's share of the memory that it maps."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = PSS.search(text)
    return int(found[1]) if found else 0


def _until(is_so: Callable[[], object], what: str, place: Path) -> None:
    """Wait for something.

    Raises:
        NotMeasured: it does not come.
    """
    until_s = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > until_s:
            last = (place / "log").read_text(errors="replace")[-300:]
            raise NotMeasured(f"no {what} within {PATIENCE_S:.0f} s: {last}")
        time.sleep(POLL_S)
