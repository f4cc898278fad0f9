"""Three tenants' starts when one floods the pool: in the plain order, and by shares."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from html import escape
from itertools import pairwise
from pathlib import Path

import msgspec

from figures.ground import Ground, check
from jobpool.core.jobs.job import NewJob
from jobpool.store.opening import open_store
from jobpool.store.protocol import Store

PICTURE = Path(__file__).parents[3] / "src/jobpool/manual/fairness.svg"
SLOTS = 4
WORK_S = 0.05
COMES = (("flood", 0.0, 600), ("small", 1.5, 60), ("late", 2.0, 60))
"""Tenant, when its jobs come, and how many."""
LOOK_S = 10.0
"""Of the first so many seconds after the flood the starts are drawn."""
WIDTH, HEIGHT, LEFT, TOP, GAP = 340, 200, 46, 54, 60
COLOURS = {"flood": "#8c959f", "small": "#1a7f37", "late": "#0969da"}
_APP = f"""\
import time
from jobpool import JobPool
jobs = JobPool()

@jobs.job("io", kind="work")
def work(tenant: str) -> None:
    with open("begun", "a") as begun:
        begun.write(f"{{tenant}} {{time.monotonic()!r}}\\n")
    time.sleep({WORK_S})
"""
Starts = Mapping[str, Sequence[float]]
"""Of each tenant: when its jobs began, in seconds since the flood came."""


def flooded(ground: Ground, options: argparse.Namespace) -> dict[str, object]:
    """Run both, draw them, and say when the last job of each other one began."""
    del options
    found: dict[str, object] = {}
    runs: dict[str, Starts] = {}
    for fair in ("none", "tenant"):
        directory = ground.directory / fair
        directory.mkdir()
        with ground.fresh_store(directory) as url:
            runs[fair] = _run(directory, url, fair)
        for name, came_s, _ in COMES[1:]:
            waited_s = runs[fair][name][-1] - came_s
            found[f'fair = "{fair}": the last of {name} began after, s'] = round(
                waited_s, 2
            )
    PICTURE.write_text(_picture(runs), encoding="utf-8")
    return found


def _run(directory: Path, url: str, fair: str) -> Starts:
    (directory / "jobs.py").write_text(_APP)
    (directory / "jobpool.toml").write_text(
        f'[pools.io]\nsize = {SLOTS}\nfair = "{fair}"\n'
    )
    environment = {**os.environ, "JOBPOOL_STORE": url}
    command = [sys.executable, "-m", "jobpool"]
    supervisor = subprocess.Popen(
        [*command, "run", "--log-level", "warning"], cwd=directory, env=environment
    )
    witness = directory / "begun"
    try:
        with closing(open_store(url)) as store:
            _enqueue(store, "warm", 1)
            _await(witness, 1)  # The supervisor is ready.
            began_s = time.monotonic()
            for name, at_s, count in COMES:
                time.sleep(max(0.0, began_s + at_s - time.monotonic()))
                _enqueue(store, name, count)
        starts = _await(witness, 1 + sum(count for *_, count in COMES))
    finally:
        supervisor.terminate()
        supervisor.wait(60)
    return {
        name: sorted(at_s - began_s for who, at_s in starts if who == name)
        for name, _, _ in COMES
    }


def _enqueue(store: Store, tenant: str, count: int) -> None:
    payload = msgspec.json.encode({"tenant": tenant})
    store.enqueue(
        [NewJob(kind="work", pool="io", payload=payload, tenant=tenant)] * count
    )
    store.wake()


def _await(witness: Path, most: int) -> list[tuple[str, float]]:
    """Wait until so many jobs have begun."""
    deadline_s = time.monotonic() + 120
    lines: list[str] = []
    while len(lines) < most:
        check(time.monotonic() < deadline_s, f"{len(lines)} of {most} jobs have begun")
        time.sleep(0.05)
        lines = witness.read_text().splitlines() if witness.exists() else []
    return [(who, float(at_s)) for who, at_s in map(str.split, lines)]


def _picture(runs: Mapping[str, Starts]) -> str:
    """Draw how many jobs of each have begun, over time: a panel for each run."""
    width = 2 * (LEFT + WIDTH) + GAP
    height = TOP + HEIGHT + 56
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            'font-family="sans-serif" font-size="13">'
        ),
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    most = max(
        sum(at_s <= LOOK_S for at_s in starts)
        for run in runs.values()
        for starts in run.values()
    )
    for place, (fair, run) in enumerate(runs.items()):
        parts += _panel(LEFT + place * (LEFT + WIDTH + GAP / 2), fair, run, most)
    x = LEFT
    for name, at_s, count in COMES:
        text = escape(f"{name}: {count} jobs at {at_s:g} s")
        parts.append(
            f'<rect x="{x}" y="{height - 20}" width="12" height="12" '
            f'fill="{COLOURS[name]}"/><text x="{x + 18}" y="{height - 9}">{text}</text>'
        )
        x += 190
    return "\n".join([*parts, "</svg>", ""])


def _panel(left: float, fair: str, run: Starts, most: int) -> list[str]:
    bottom = TOP + HEIGHT
    parts = [
        f'<text x="{left:g}" y="24" font-weight="bold">fair = "{fair}"</text>',
        f'<text x="{left:g}" y="42">jobs that have begun, over seconds</text>',
        (
            f'<path d="M{left:g} {TOP}V{bottom}H{left + WIDTH:g}" fill="none" '
            'stroke="#57606a"/>'
        ),
    ]
    for second in range(0, round(LOOK_S) + 1, 2):
        x = left + WIDTH * second / LOOK_S
        parts.append(
            f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{second}</text>'
        )
    for count in range(0, most + 1, 100):
        y = bottom - HEIGHT * count / most
        parts.append(
            f'<text x="{left - 6:g}" y="{y + 4:.1f}" text-anchor="end">{count}</text>'
        )
    for name, starts in run.items():
        shown = [at_s for at_s in starts if at_s <= LOOK_S]
        points = [(0.0, 0), *((at_s, n) for n, at_s in enumerate(shown, 1))]
        points.append((LOOK_S, len(shown)))
        steps = [f"M{left:g} {bottom}"]
        for (_, before), (at_s, count) in pairwise(points):
            x = left + WIDTH * at_s / LOOK_S
            steps.append(f"H{x:.1f}")
            if count != before:
                steps.append(f"V{bottom - HEIGHT * count / most:.1f}")
        parts.append(
            f'<path d="{"".join(steps)}" fill="none" stroke-width="2" '
            f'stroke="{COLOURS[name]}"/>'
        )
    return parts
