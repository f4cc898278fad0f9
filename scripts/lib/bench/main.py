"""Measures jobpool beside its peers and a limit program, on this machine, in one run.

Every peer has its own environment, made at first use, and its best safe settings.
Rounds are interleaved, so that noise of the machine meets all systems, and ratios are
taken within rounds: read those. The limit program only leases, pipes and settles: no
such system in Python can be much faster.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from peers import NotMeasured

from bench import (
    admission,
    dashboard,
    fairness,
    flows,
    growth,
    many,
    plot,
    quotas,
    report,
    scraped,
    slots,
    start,
    traced,
)
from bench.report import Sample
from bench.running import measure
from bench.sections import FROM_FIGURES, FULL, NEVER, QUICK, SECTIONS, Scale

ALONE = {
    "growth": growth.samples,
    "fairness": fairness.samples,
    "flows": flows.samples,
    "many": many.samples,
    "slots": slots.samples,
    "metrics": scraped.samples,
    "dashboard": dashboard.samples,
    "traces": traced.samples,
}
COMPARED = {
    "quotas": quotas.samples,
    "admission": admission.samples,
    "start": start.samples,
}
"""Sections that may be compared with an older release."""
NAMES = (*SECTIONS, *ALONE, *COMPARED)
PLOTTED = ("throughput", "no-op: jobs/s")


def main() -> None:
    """Measure the chosen sections, and print the results."""
    options = arguments()
    scale = QUICK if options.quick else FULL
    scale = scale._replace(rounds=options.rounds or scale.rounds)
    names = options.only or list(NAMES)
    found: list[Sample] = []
    missing: dict[str, str] = {}
    also: dict[str, object] = {}
    try:
        with older(options.old) as old:
            measure_all(names, scale, found, missing, only=options.system, old=old)
        also = {} if options.quick else alone(names, scale)
    except KeyboardInterrupt:
        print("bench: interrupted; these are the results so far", file=sys.stderr)
    if options.json:
        everything = report.as_json(found, missing | NEVER, also)
        options.json.write_text(json.dumps(everything, indent=1) + "\n")
    if options.plot and (bars := report.by_system(found).get(PLOTTED)):
        title = "No-op jobs a second, 2 workers, 2 cores"
        options.plot.write_text(plot.bars(title, bars))
    for line in report.table(found, missing | NEVER):
        print(line)
    for what, figure in also.items():
        print(f"jobpool alone: {what:<58} {figure}")
    for line in report.judged(found):
        print(line)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round, few jobs")
    parser.add_argument("--only", action="append", choices=NAMES, help="a section")
    parser.add_argument("--system", action="append", help="only this one, and jobpool")
    parser.add_argument("--rounds", type=int, metavar="N")
    parser.add_argument(
        "--old", metavar="REVISION", help="of git: compare with it what is not in use"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write an SVG")
    return parser.parse_args()


@contextmanager
def older(revision: str | None) -> Iterator[Path | None]:
    """Yield the ``src`` of a revision, in a work tree that is removed at the end."""
    if revision is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="jobpool-bench-") as directory:
        place = Path(directory) / "old"
        subprocess.run(
            ["git", "worktree", "add", "--quiet", "--detach", place, revision],
            check=True,
        )
        try:
            yield place / "src"
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", place], check=True)


def measure_all(
    names: list[str],
    scale: Scale,
    found: list[Sample],
    missing: dict[str, str],
    *,
    only: list[str] | None,
    old: Path | None,
) -> None:
    """Run all rounds; add samples to *found*, and reasons for gaps to *missing*."""
    for number in range(scale.rounds):
        for name in names:
            print(f"bench: round {number + 1}, {name} …", file=sys.stderr, flush=True)
            if name in ALONE:
                found += ALONE[name](scale, number)
                continue
            if name in COMPARED:
                try:
                    found += COMPARED[name](scale, number, old)
                except NotMeasured as why:
                    missing[name] = str(why)
                continue
            for trial in SECTIONS[name](scale):
                label = f"{name}: {trial.what}: {trial.system}"
                if label in missing or (
                    only and trial.system not in (*only, report.US)
                ):
                    continue
                try:
                    figures = measure(trial.system, trial.wish)
                except NotMeasured as why:
                    missing[label] = str(why)
                    continue
                found += [
                    Sample(name, f"{trial.what}: {unit}", trial.system, number, value)
                    for unit, value in figures.items()
                ]


def alone(names: list[str], scale: Scale) -> dict[str, object]:
    """Return what scripts/figures measures of jobpool alone."""
    sections = [each for name in names for each in FROM_FIGURES.get(name, ())]
    if not sections:
        return {}
    words = [f"--only={section}" for section in sections]
    done = subprocess.run(
        [
            *(sys.executable, "-c", "from figures.main import main; main()"),
            *("--json", "--kills", str(scale.kills), *words),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return {"scripts/figures": f"failed: {done.stderr.strip()[-300:]}"}
    found: dict[str, object] = json.loads(done.stdout)
    return found
