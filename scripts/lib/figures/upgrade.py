"""`jobpool migrate` on a full PostgreSQL store, beside the previous release."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from figures.ground import Ground, check, spread
from figures.prune import fill
from jobpool.store.opening import migrate, migration_plan
from support.site.previous_release import previous_release
from support.store.old_stores import make_old, old_versions

TRAFFIC = "from figures.upgrade_traffic import main; main()"
WARM_S = 3.0
CLAIMS_MIN = 3


def beside_traffic(ground: Ground, options: argparse.Namespace) -> dict[str, object]:
    """Claims of an open supervisor's store before and during the migration."""
    with ground.fresh_store(ground.directory) as url:
        make_old(url, max(old_versions("postgres")))
        fill(url, options.finished)
        planned_s = sum(part.about_s for part in migration_plan(url).parts)
        lines: list[str] = []
        with claims_of_previous_release(url) as claims:
            time.sleep(WARM_S)
            before = time.time()
            time.sleep(options.slice)
            began = time.time()
            migrate(url, lines.append)
            ended = time.time()
            time.sleep(WARM_S)
    alone = [ms for at, ms in claims if before <= at < began]
    beside = [ms for at, ms in claims if began <= at < ended]
    check(len(beside) > CLAIMS_MIN, "there was no traffic beside the migration")
    return {
        f"{options.finished:,} jobs migrated, s (planned)": (
            f"{ended - began:.1f} ({planned_s:.1f})"
        ),
        **{
            line.partition(":")[0]: line.rpartition("in ")[2]
            for line in lines
            if ": done in " in line
        },
        "a claim of 10 before: p50 / p99 / max ms": spread(alone),
        "a claim of 10 beside it: p50 / p99 / max ms": spread(beside),
    }


@contextmanager
def claims_of_previous_release(url: str) -> Iterator[list[tuple[float, float]]]:
    """Claim with the previous release; after the block it holds moments and ms."""
    claims: list[tuple[float, float]] = []
    paths = [str(previous_release()), *sys.path]
    process = subprocess.Popen(
        [sys.executable, "-c", TRAFFIC, url],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    check(process.stdout is not None, "no pipe")
    check(process.stdout.readline() == "ready\n", "the traffic did not begin")
    try:
        yield claims
    finally:
        told, _ = process.communicate()
    check(process.returncode == 0, "the traffic of the previous release failed")
    claims += map(tuple, json.loads(told))
