"""Runs one scenario of one system, and leaves nothing of it behind.

Theory of operation. A system's program (contenders/) runs in its own session, with a
mark in its environment that all its descendants inherit; at the end every process with
the mark is killed, until none is found. Servers are fresh for every scenario: a Redis
that appends to a file and flushes it every second, a database on one PostgreSQL that
commits to the disk.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

import psycopg
from peers import NotMeasured, environment, want_redis
from psycopg import sql

from support.postgres.server import DATABASE, OWNER, OwnServer

CONTENDERS = Path(__file__).with_name("contenders")
PROGRAMS = {
    "jobpool": "on_jobpool.py",
    "jobpool-postgresql": "on_jobpool.py",
    "quotas": "on_quotas.py",
    "quotas-postgresql": "on_quotas.py",
    "many": "on_many.py",
    "many-postgresql": "on_many.py",
    "flows": "on_flows.py",
    "flows-postgresql": "on_flows.py",
    "slots": "on_slots.py",
    "limit": "on_limit.py",
    "forks": "on_forks.py",
    "celery": "on_celery.py",
    "rq": "on_rq.py",
    "huey": "on_huey.py",
    "pgqueuer": "on_pgqueuer.py",
    "pgqueuer-batched": "on_pgqueuer.py",
    "pebble": "on_pool.py",
    "loky": "on_pool.py",
    "executor": "on_pool.py",
}
PACKAGES: dict[str, tuple[str, ...]] = {
    "celery": (
        "celery==5.7.0",
        "packaging",
        "redis",
    ),  # it forgets to ask for packaging
    "rq": ("rq==2.12.0", "redis"),
    "huey": ("huey==3.5.4",),
    "pgqueuer": ("pgqueuer[asyncpg]==1.6.0",),
    "pebble": ("pebble==5.2.3",),
    "loky": ("loky==3.7.0",),
}
"""Systems that are not listed need nothing but what jobpool needs."""
NEEDS_REDIS = ("celery", "rq")
ON_POSTGRES = (
    "jobpool-postgresql",
    "quotas-postgresql",
    "flows-postgresql",
    "many-postgresql",
    "pgqueuer",
    "pgqueuer-batched",
)
PATIENCE_S = 90.0
POLL_S = 0.02


def measure(system: str, wish: Mapping[str, object]) -> dict[str, float]:
    """Run a scenario; return its figures.

    Raises:
        NotMeasured: the system is not available here, or failed.
    """
    if system in NEEDS_REDIS:
        want_redis()
    python = python_of(system.removesuffix("-batched"))
    directory = Path(tempfile.mkdtemp(prefix="jobpool-bench-"))
    mark = f"BENCH_RUN={uuid.uuid4().hex}"
    env = _environment(system, directory) | dict([mark.split("=")])
    words = [python, str(CONTENDERS / PROGRAMS[system])]
    if system == "pgqueuer-batched":
        wish = {**wish, "safe": False}
    with (directory / "log").open("ab") as log:
        redis = (
            [_start_redis(directory, env, log.fileno())]
            if system in NEEDS_REDIS
            else []
        )
        program = subprocess.Popen(
            [*words, json.dumps(wish)],
            env=env,
            stdout=log,
            stderr=log,
            cwd=directory,
            start_new_session=True,
        )
    try:
        _wait(program, directory)
        found: dict[str, float] = json.loads((directory / "figures").read_text())
        return found
    finally:
        end_carriers(mark)
        for server_process in redis:  # writes its title over its environment
            server_process.kill()
            server_process.wait()
        program.wait()
        shutil.rmtree(directory)


def python_of(system: str) -> str:
    """Return the Python that has a system installed."""
    packages = PACKAGES.get(system)
    return sys.executable if packages is None else environment(system, packages)


def _environment(system: str, directory: Path) -> dict[str, str]:
    found = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("JOBPOOL_", "PG"))
    }
    found |= {
        "BENCH_DIR": str(directory),
        "BENCH_SYSTEM": system,
        "BENCH_REDIS": str(directory / "redis"),
        "PYTHONPATH": str(CONTENDERS),
        "JOBPOOL_STORE": f"sqlite:///{directory / 'jobs.db'}",
        "JOBPOOL_RUN_DIR": str(directory / "run"),
    }
    if system in ON_POSTGRES:
        found["BENCH_POSTGRES"] = found["JOBPOOL_STORE"] = fresh_database()
    return found


def _start_redis(
    directory: Path, env: Mapping[str, str], log: int
) -> subprocess.Popen[bytes]:
    path = directory / "redis"
    words = ["redis-server", "--port", "0", "--unixsocket", str(path), "--save", ""]
    words += ["--appendonly", "yes", "--appendfsync", "everysec"]
    redis = subprocess.Popen(words, env=env, stdout=log, stderr=log, cwd=directory)
    until_s = time.monotonic() + PATIENCE_S
    while not path.exists():
        if redis.poll() is not None or time.monotonic() > until_s:
            redis.kill()
            redis.wait()
            raise NotMeasured("redis-server did not open its socket")
        time.sleep(POLL_S)
    return redis


def _wait(program: subprocess.Popen[bytes], directory: Path) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not (directory / "figures").exists():
        if program.poll() is not None:
            raise NotMeasured(f"its program ended: {_last_words(directory)}")
        if time.monotonic() > until_s:
            raise NotMeasured(
                f"no figures within {PATIENCE_S:.0f} s: {_last_words(directory)}"
            )
        time.sleep(POLL_S)


def _last_words(directory: Path) -> str:
    lines = (directory / "log").read_text(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "it printed nothing"


@functools.cache
def server() -> OwnServer:
    """Return the server of this run; the first call starts it."""
    return OwnServer(durable=True)


def fresh_database() -> str:
    """Create a new database on it; return its URL."""
    name = f"bench_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server().admin_url, autocommit=True) as connection:
        create = sql.SQL("CREATE DATABASE {} OWNER {}")
        connection.execute(create.format(sql.Identifier(name), sql.Identifier(OWNER)))
    return server().tcp_url.replace(f"/{DATABASE}", f"/{name}")


def end_carriers(mark: str) -> None:
    """Kill the processes that have the mark, until there is none."""
    while marked := carriers(mark):
        for pid in marked:
            _kill(pid)
        time.sleep(POLL_S)


def carriers(mark: str) -> list[int]:
    """Return the processes that have the mark in their environment."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (place / "environ").read_bytes().split(b"\0"):
                found.append(int(place.name))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it ended meanwhile, or is not ours
    return found


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
