"""The cost of a child at each level of isolation: from the request to its `Ready`."""

from __future__ import annotations

import argparse
import select
import statistics
import time
import uuid
from pathlib import Path

from figures.ground import Ground, check
from jobpool.core.config.settings import PoolSettings, SandboxLevel
from jobpool.core.isolation.measures import Lockdown, plan
from jobpool.core.rules.limits import PoolLimits
from jobpool.sandbox.confinement.features import lacking
from jobpool.sandbox.handles.child import ChildProcess
from jobpool.sandbox.handles.zygote import Zygote
from jobpool.sandbox.protocol.messages import Forked, Go, Loaded, Ready
from jobpool.sandbox.protocol.verdict import Exit

APP = """
from jobpool import JobPool
jobs = JobPool()
@jobs.job("cpu", kind="noop")
def noop():
    pass
"""
PATIENCE_S = 30.0
MEMORY_BYTES = 512 * 2**20
CHILDREN_MIN = 30


def cost(ground: Ground, options: argparse.Namespace) -> dict[str, object]:
    """Start and kill children of all levels in turn; return medians."""
    missing = lacking()
    levels = {
        level: plan(_pool(level), {} if level is SandboxLevel.OFF else missing)[0]
        for level in SandboxLevel
    }
    (ground.directory / "app.py").write_text(APP)
    zygote = Zygote.start(
        "cpu",
        uuid.uuid4().hex,
        app="app.py",
        directory=str(ground.directory),
        preload=True,
    )
    ready: dict[SandboxLevel, list[float]] = {level: [] for level in levels}
    ends: dict[SandboxLevel, list[float]] = {level: [] for level in levels}
    try:
        check(isinstance(_said(zygote)[0], Loaded), "the application did not load")
        for _ in range(max(CHILDREN_MIN, options.kills)):
            for level, lockdown in levels.items():
                up_s, down_s = _one(zygote, lockdown, ground.directory)
                ready[level].append(1000 * up_s)
                ends[level].append(1000 * down_s)
    finally:
        zygote.close()
    base = statistics.median(ready[SandboxLevel.OFF])
    found: dict[str, object] = {}
    for level in levels:
        up, down = statistics.median(ready[level]), statistics.median(ends[level])
        found[f"child, sandbox {level}: ready / added / kill to reaped, p50 ms"] = (
            f"{up:.2f} / {up - base:.2f} / {down:.2f}"
        )
    return found


def _pool(level: SandboxLevel) -> PoolSettings:
    limits = PoolLimits(timeout_s=60, memory_bytes=MEMORY_BYTES)
    return PoolSettings(
        name="cpu", size_min=1, size_max=1, limits=limits, sandbox=level
    )


def _one(zygote: Zygote, lockdown: Lockdown, directory: Path) -> tuple[float, float]:
    """Start a child and kill it; return how long each took, in seconds."""
    began = time.perf_counter()
    child = ChildProcess(0, "cpu/0", str(directory / "mark"), lockdown)
    zygote.fork(0, child.fds_for_child, lockdown.enclosure)
    child.close_child_ends()
    answer = _said(zygote)[0]
    if not isinstance(answer, Forked):
        raise SystemExit(f"figures: no child could be forked: {answer}")
    child.attach(answer.pid)
    go = Go(
        slot_name="cpu/0",
        run_id="figures",
        memory_backstop_bytes=MEMORY_BYTES,
        result_max_bytes=2**20,
        checkpoint_max_bytes=2**16,
        tmp_root=str(directory / "tmp"),
        lockdown=lockdown,
    )
    child.send(go)
    select.select([child], [], [], PATIENCE_S)
    frames = child.receive()
    up_s = time.perf_counter() - began
    check(bool(frames) and isinstance(frames[0], Ready), f"the child said {frames}")
    began = time.perf_counter()
    child.kill_tree()
    ended: Exit | None = None
    while ended is None:
        select.select([child.pidfd], [], [], PATIENCE_S)
        ended = child.reap()
    down_s = time.perf_counter() - began
    child.close()
    return up_s, down_s


def _said(zygote: Zygote) -> list[object]:
    while True:
        select.select([zygote], [], [], PATIENCE_S)
        if messages := zygote.receive():
            return list(messages)
        check(messages is not None, "the zygote is gone")
