"""Where a chaos run takes place: a directory, a store of either sort, and its faults.

A place knows how its store is reached, by supervisors and past them, and how it can
be harmed; when to do so is the nemesis's business.
"""

import contextlib
import ctypes
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import psycopg

from chaos import audit
from support.postgres.cutting_proxy import CuttingProxy
from support.postgres.server import OwnServer, query_of
from support.site.service import environment

SHM = Path("/dev/shm")
MS_REMOUNT = ctypes.c_ulong(32)
libc = ctypes.CDLL(None, use_errno=True)
DISK_BYTES = 512 << 20
COMMAND_S_MAX = 60
LOCK_S_MAX = 1.0
"""The nemesis waits for a lock at most so long: its holder may be a supervisor that
the nemesis itself has stopped, and that nothing else continues."""
OUTAGE_S_MAX = 20.0
"""Used instead while nothing is harmed: the holder releases it."""
QUERY_S_MAX = 60
HARMED = (sqlite3.OperationalError, psycopg.OperationalError)
"""A store that is harmed already answers the nemesis itself so."""
CONFIGURATION = """\
[pools.io]
fair = "tenant"
aging = "1/m"
"""
"""In one pool jobs have turns by their tenants, in the other they go as they come."""
FINAL = (
    "id, kind, state, attempt, failures, crashes, interruptions, recoveries, "
    "max_attempts"
)
PERMITS = "job_id, token, run_id"
FLOWS = "id, name, state, ending, finished_at_ms IS NOT NULL"
STEPS = "id, flow, number, state, failed"
TICKS = "nominal_at_ms, stored_at_ms, state, job_id"


class LockedOut(Exception):
    """The lock was held by another process for longer than the wait."""


class Place:
    """What both sorts of store have in common.

    Args:
        directory: empty, and the run's own.
        is_alone: this machine's mounts and pids are ours to play with.
    """

    shared = False
    url: str

    def __init__(self, directory, *, is_alone):
        self.directory, self.is_alone = directory, is_alone
        self.marks = directory / "marks"
        self.marks.touch()
        self.tmp = directory / "tmp"
        self.tmp.mkdir()
        (directory / "jobpool.toml").write_text(CONFIGURATION)

    def url_for(self, name):
        """Return the store's URL for one supervisor."""
        return self.url

    def run_directories(self):
        """Return the directories of all runs."""
        return list(self.run_root.glob(self.runs))

    def read_flows(self):
        """Return flows and their steps."""
        prefix = f"{self.schema}." if self.shared else "jobpool_"
        with contextlib.closing(self.observe()) as connection:
            return [
                connection.execute(f"SELECT {columns} FROM {prefix}{table}").fetchall()
                for columns, table in ((FLOWS, "flows"), (STEPS, "steps"))
            ]

    def read_ticks(self):
        """Return the schedule's ticks so far."""
        prefix = f"{self.schema}." if self.shared else "jobpool_"
        with contextlib.closing(self.observe()) as connection:
            return connection.execute(f"SELECT {TICKS} FROM {prefix}ticks").fetchall()

    def migrate(self):
        """Make the store."""
        subprocess.run(
            [sys.executable, "-m", "jobpool", "migrate", "--store", self.url],
            check=True,
            stdout=subprocess.DEVNULL,
            env=environment(),
            cwd=self.directory,
            timeout=COMMAND_S_MAX,
        )

    @contextlib.contextmanager
    def locked(self, wait_s=LOCK_S_MAX):
        """Hold a lock that no writer gets past.

        Args:
            wait_s: so long it may take until it is there.

        Raises:
            LockedOut: it was not available in time.
        """
        raise NotImplementedError

    def close(self):
        """Release everything."""


class SqlitePlace(Place):
    """A database file on a small disk of its own."""

    def __init__(self, directory, *, is_alone):
        super().__init__(directory, is_alone=is_alone)
        self.disk = directory / "disk"
        self.disk.mkdir()
        if is_alone:
            mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}"]
            subprocess.run(
                [*mount, "none", str(self.disk)], check=True, timeout=COMMAND_S_MAX
            )
        self.path = self.disk / "jobpool.db"
        self.url = f"sqlite:///{self.path}"
        self.run_root, self.runs = self.disk / "jobpool.db.run", "*"
        self.migrate()
        with contextlib.closing(sqlite3.connect(self.path)) as connection:
            audit.install_sqlite(connection)

    def observe(self):
        """Open a read-only observer's connection."""
        return sqlite3.connect(self.path, timeout=0.2, isolation_level=None)

    def read_audit(self, connection, after):
        return connection.execute(
            "SELECT * FROM chaos_audit WHERE seq > ? ORDER BY seq", (after,)
        ).fetchall()

    def read_final(self):
        """Return jobs with what they carry, attempts, ticks, permits, and damage."""
        with contextlib.closing(self.observe()) as connection:
            jobs = connection.execute(
                f"SELECT {FINAL}, p.payload, r.result, step FROM jobpool_jobs AS j "
                "LEFT JOIN jobpool_payloads AS p ON p.job_id = j.id "
                "LEFT JOIN jobpool_results AS r ON r.job_id = j.id"
            ).fetchall()
            attempts = connection.execute(
                "SELECT job_id, token, outcome FROM jobpool_attempts"
            ).fetchall()
            (word,) = connection.execute("PRAGMA integrity_check").fetchone()
            permits = connection.execute(f"SELECT {PERMITS} FROM jobpool_permits")
            left = list(map(str, permits))
        return (
            jobs,
            attempts,
            self.read_ticks(),
            left,
            [] if word == "ok" else [f"integrity_check: {word}"],
        )

    @contextlib.contextmanager
    def locked(self, wait_s=LOCK_S_MAX):
        with contextlib.closing(
            sqlite3.connect(self.path, timeout=wait_s, isolation_level=None)
        ) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                    raise
                raise LockedOut from error
            yield
            connection.execute("ROLLBACK")

    def fill_disk(self):
        """Leave no room: the disk shrinks to what is on it."""
        disk = os.statvfs(self.disk)
        self._resize((disk.f_blocks - disk.f_bfree) * disk.f_frsize)

    def empty_disk(self):
        """Give the disk its room back."""
        self._resize(DISK_BYTES)

    def _resize(self, size):
        """Remount it with another size.

        Starts no process: there may be no pids left.
        """
        for more in range(0, 40 << 20, 4096 * 64):
            # What grew since it was measured makes this fail: there is no room then.
            words = (b"none", os.fsencode(self.disk), b"tmpfs", MS_REMOUNT)
            if libc.mount(*words, f"size={size + more}".encode()) == 0:
                return
        raise RuntimeError(f"the disk {self.disk} cannot be made {size} bytes")

    def break_store(self):
        """Block every write from here on; return a function that ends that."""
        stack = contextlib.ExitStack()
        stack.enter_context(self.locked(OUTAGE_S_MAX))
        return stack.close

    def close(self):
        if self.is_alone:
            subprocess.run(
                ["umount", "-l", str(self.disk)], check=True, timeout=COMMAND_S_MAX
            )


class PostgresPlace(Place):
    """A server of our own; each supervisor reaches it through a proxy of its own."""

    shared = True

    def __init__(self, directory, *, is_alone):
        super().__init__(directory, is_alone=is_alone)
        self.server = OwnServer()
        self.url = self.server.fresh_url(self.server.tcp_url)
        self.schema = query_of(self.url)["schema"]
        self.run_root, self.runs = directory / "run", "*.run/*"
        self.proxies = {}
        self.migrate()
        with self.server.connect(self.server.tcp_url) as connection:
            connection.execute(audit.POSTGRES.format(schema=self.schema))

    def url_for(self, name):
        self.proxies[name] = CuttingProxy(self.server.port)
        return self.proxies[name].url(self.url)

    def observe(self):
        """Open an observer's connection that bypasses all proxies."""
        return self.server.connect(
            connect_timeout=5, options=f"-c statement_timeout={QUERY_S_MAX}s"
        )

    def read_audit(self, connection, after):
        return connection.execute(
            f"SELECT * FROM {self.schema}.chaos_audit WHERE seq > %s ORDER BY seq",
            (after,),
        ).fetchall()

    def read_final(self):
        """Return jobs with what they carry, attempts, ticks, permits, and damage."""
        with contextlib.closing(self.observe()) as connection:
            jobs = connection.execute(
                f"SELECT {FINAL}, payload, result, step FROM {self.schema}.jobs"
            ).fetchall()
            attempts = connection.execute(
                f"SELECT job_id, token, outcome FROM {self.schema}.attempts"
            ).fetchall()
            permits = connection.execute(
                f"SELECT {PERMITS} FROM {self.schema}.permits"
            ).fetchall()
        return jobs, attempts, self.read_ticks(), list(map(str, permits)), []

    @contextlib.contextmanager
    def locked(self, wait_s=LOCK_S_MAX):
        with contextlib.closing(self.observe()) as connection:
            connection.execute(f"SET lock_timeout = '{wait_s:g}s'")
            connection.execute("BEGIN")
            try:
                connection.execute(
                    f"LOCK TABLE {self.schema}.jobs IN ACCESS EXCLUSIVE MODE"
                )
            except psycopg.errors.LockNotAvailable as error:
                raise LockedOut from error
            yield
            connection.execute("ROLLBACK")

    def break_store(self):
        """Block every write from here on; return a function that ends that."""
        self.server.stop("fast")
        return self.server.start

    def close(self):
        for proxy in self.proxies.values():
            proxy.close()
        self.server.close()


PLACES = {"sqlite": SqlitePlace, "postgresql": PostgresPlace}


def leftovers(place):
    """Return the files that should be gone once all supervisors have ended."""
    return sorted(map(str, [*place.run_directories(), *place.tmp.iterdir()]))


def wait_for(condition, seconds):
    """Wait until *condition* holds; return whether it did in time."""
    until_s = time.monotonic() + seconds
    while not (holds := condition()) and time.monotonic() < until_s:
        time.sleep(0.02)
    return holds


def shm_entries(options):
    """Return the entries of shared memory; empty if others share it."""
    return {path.name for path in SHM.iterdir()} if options.is_alone else set()
