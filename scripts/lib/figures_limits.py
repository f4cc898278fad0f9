"""Figures of the hard limits: how late a kill is, and how far memory goes over.

Memory is the kernel's own figure (ru_maxrss of the child), for allocators of three
manners: large zeroed pieces, larger blocks that C code fills, and many small objects.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from figures import MIB, Application, Ground, application, check, spread, supervisor

HANGS = ("busy", "gil", "deaf", "stopped")
HOGS = {
    "hog_small": "bytearrays of 1 MiB",
    "hog_large": "bytearrays of 64 MiB",
    "hog_blocks": "blocks of 64 MiB, "
    + ("numpy" if find_spec("numpy") else "bytes, no numpy here"),
    "hog_objects": "many small objects",
}
OTHERS = 6
"""Processes that want a core each, beside the ones that are killed."""


def kill_lateness(ground: Ground, options: argparse.Namespace) -> dict[str, object]:
    """How long after its hard limit an attempt was over, process tree and all."""
    with application(ground) as app, supervisor(ground.directory, "cpu=2"):
        return _lateness(app, options.kills, "")


def kill_lateness_busy(
    ground: Ground, options: argparse.Namespace
) -> dict[str, object]:
    """The same beside processes that want more cores than there are."""
    with (
        application(ground) as app,
        supervisor(ground.directory, "cpu=2"),
        busy(OTHERS),
    ):
        return _lateness(app, options.kills, f", {OTHERS} busy processes")


def _lateness(app: Application, kills: int, beside: str) -> dict[str, object]:
    found: dict[str, object] = {}
    app.warm()
    for kind in HANGS:
        app.enqueue(kind, kills)
        rows = app.ended(kind, kills, timeout_s=30 + 2 * kills)
        late = [1000 * (row["duration_s"] - app.LIMIT_S) for row in rows]
        outcomes = {row["outcome"] for row in rows}
        check(outcomes == {"timed_out"}, f"{kind}: {outcomes}")
        found[f"kill lateness{beside}, {kind}: p50 / p99 / max ms"] = spread(late)
    return found


def memory_overshoot(ground: Ground, options: argparse.Namespace) -> dict[str, object]:
    """The kernel's peak of full-speed allocators under a limit of 256 MiB."""
    found: dict[str, object] = {}
    with application(ground) as app, supervisor(ground.directory, "cpu=1"):
        app.warm()
        for kind, what in HOGS.items():
            app.enqueue(kind, options.kills)
            rows = app.ended(kind, options.kills, timeout_s=30 + 5 * options.kills)
            outcomes = {row["outcome"] for row in rows}
            check(outcomes == {"out_of_memory"}, f"{kind}: {outcomes}")
            over = [100 * (row["peak_rss_bytes"] / (256 * MIB) - 1) for row in rows]
            found[f"memory over 256 MiB, {what}: p50 / p99 / max %"] = spread(over)
    return found


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Run processes that never rest."""
    others = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(count)
    ]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()
