"""Figures of the hard limits: how late a kill is, and how far memory overshoots.

Memory is the kernel's own figure (ru_maxrss of the child), for three kinds of
allocation: large zeroed pieces, larger blocks that C code fills, and many small
objects.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from figures.bare import MANNERS, bare_kills
from figures.ground import (
    MIB,
    Application,
    Ground,
    application,
    check,
    spread,
    supervisor,
)

HANGS = ("busy", "gil", "deaf", "stopped")
HOGS = {
    "hog_small": "bytearrays of 1 MiB",
    "hog_large": "bytearrays of 64 MiB",
    "hog_blocks": "blocks of 64 MiB, "
    + ("numpy" if find_spec("numpy") else "bytes, no numpy here"),
    "hog_objects": "many small objects",
}
OTHERS = 6
"""Processes that keep a core busy each, beside the ones that are killed."""
SLOTS = 2
ROUNDS = 5
"""Kinds take turns, so that a noisy minute meets all of them."""


def kill_lateness(ground: Ground, options: argparse.Namespace) -> dict[str, object]:
    """How long after its hard limit an attempt and its process tree had ended."""
    with application(ground) as app, supervisor(ground.directory, f"cpu={SLOTS}"):
        return _lateness(app, options.kills, "")


def kill_lateness_busy(
    ground: Ground, options: argparse.Namespace
) -> dict[str, object]:
    """The same beside processes that keep more cores busy than there are."""
    with (
        application(ground) as app,
        supervisor(ground.directory, f"cpu={SLOTS}"),
        busy(OTHERS),
    ):
        return _lateness(app, options.kills, f", {OTHERS} busy processes")


def _lateness(app: Application, kills: int, beside: str) -> dict[str, object]:
    late: dict[str, list[float]] = {kind: [] for kind in HANGS}
    bare: dict[str, list[float]] = {manner: [] for manner in MANNERS}
    app.warm()
    for so_far in _rounds(kills):
        for kind in HANGS:
            app.enqueue(kind, so_far - len(late[kind]))
            rows = app.ended(kind, so_far, timeout_s=30 + 2 * kills)
            late[kind] = [1000 * (row["duration_s"] - app.LIMIT_S) for row in rows]
            outcomes = {row["outcome"] for row in rows}
            check(outcomes == {"timed_out"}, f"{kind}: {outcomes}")
        for manner, found in bare.items():
            more = bare_kills(manner, so_far - len(found), app.LIMIT_S, SLOTS)
            found += [1000 * late_s for late_s in more]
    return {
        f"kill lateness{beside}, {what}: p50 / p99 / max ms": spread(values)
        for what, values in [
            *late.items(),
            *((f"a bare {manner} process", found) for manner, found in bare.items()),
        ]
    }


def _rounds(kills: int) -> list[int]:
    """Return the number of kills of a kind after each round; no round is empty."""
    return sorted({kills * done // ROUNDS for done in range(1, ROUNDS + 1)} - {0})


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
