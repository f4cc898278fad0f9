"""Several hosts on one PostgreSQL, a nemesis among them, and a history check.

Each host is a real supervisor with a run directory of its own, which no other sees,
and a network of its own: a proxy that cuts, delays, swallows or refuses. First, in
calm weather, hosts are killed one by one and must be taken over in time. Then comes
the storm: supervisors are killed and stopped, networks harmed, and the server is
restarted under all of them. Then it is quiet; everything must drain, and the history
must show: no job lost, none settled twice, none run side by side before its first
lease had expired, no handler that outlived its lease, nothing left behind.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import psutil

from jobpool.cli.exits import Exit
from many_hosts import history
from many_hosts.host import APP, Host
from many_hosts.nemesis import Nemesis, kill_in_calm, wait_for
from many_hosts.witness import Producer, Watcher
from support.postgres.server import OwnServer, query_of

MARKER = "MANY_HOSTS_DIRECTORY"
DRAIN_S_MAX = 120.0
LEFT_S_MAX = 5.0
CALM_KILLS = 5
TAKEOVER_EXTRA_S = 2.0
"""A killed host's jobs are free after the TTL and so much."""
PROBLEMS_SHOWN_MAX = 40


class Case:
    """One run of everything, from the first supervisor to the last figure."""

    def __init__(
        self, options: argparse.Namespace, directory: Path, server: OwnServer
    ) -> None:
        self._options, self._directory = options, directory
        url = server.fresh_url(server.tcp_url)
        os.environ["MANY_HOSTS_MARKS"] = str(directory / "marks")
        os.environ[MARKER] = str(directory)
        os.environ["JOBPOOL_STORE"] = url
        subprocess.run(
            [sys.executable, "-m", "jobpool", "migrate"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        rng = random.Random(options.seed)  # noqa: S311 - repeatable, not secret
        self._server, self._schema = server, query_of(url)["schema"]
        self.hosts = [
            Host(f"h{n}", directory, server.port, url, f"{options.ttl:g}s")
            for n in range(options.supervisors)
        ]
        self.producer = Producer(
            random.Random(rng.random()),  # noqa: S311 - as above
            options.rate,
            options.ttl,
        )
        self.watcher = Watcher(server.connect, self._schema)
        self.nemesis = Nemesis(
            rng,
            self.hosts,
            server,
            ttl_s=options.ttl,
            run_of=self.watcher.run_of,
            outlast=self.producer.outlast,
        )
        self.drained_s = 0.0

    def read(self, query: str, *values: object) -> list[tuple]:
        """Ask the database, past all proxies."""
        with self._server.connect() as connection:
            return connection.execute(
                query.format(schema=self._schema), values
            ).fetchall()

    def play(self) -> tuple[history.History, list[str]]:
        """Work through calm, storm and quiet; return the history and its problems."""
        with contextlib.ExitStack() as stack:
            for host in self.hosts:
                stack.callback(host.close)
                host.start()
            for witness in (self.watcher, self.producer):
                witness.start()
                stack.callback(witness.finish)
            kills = kill_in_calm(
                self.hosts,
                CALM_KILLS,
                run_of=self.watcher.run_of,
                count_leases=self._count_leases,
            )
            self.nemesis.rage(self._options.blows, 60 * self._options.minutes)
            self.producer.finish()
            began_s = time.monotonic()
            is_drained = wait_for(self._has_drained, DRAIN_S_MAX)
            self.drained_s = time.monotonic() - began_s
            said = [word for host in self.hosts if (word := host.stop())]
        said += [
            f"the supervisor of {host.name} ended by itself with {code}"
            for host in self.hosts
            for code in host.own_ends
            # One that starts while its store cannot be reached says so and ends.
            if code != Exit.STORE
        ]
        litter = sorted(map(str, self._directory.glob("run-*/*/*")))
        said += [f"a run directory is left: {path}" for path in litter]
        if not is_drained:
            said.append(f"it did not drain within {DRAIN_S_MAX:g} s")
        found = self._collect(kills + self.nemesis.kills)
        return found, history.problems(found, processes_left(self._directory)) + said

    def _count_leases(self, run: str) -> int:
        ((count,),) = self.read(
            "SELECT count(*) FROM {schema}.jobs "
            "WHERE state = 'leased' AND supervisor = %s",
            run,
        )
        return count

    def _has_drained(self) -> bool:
        ((done,),) = self.read("SELECT count(finished_at_ms) FROM {schema}.jobs")
        return done >= len(self.producer.acknowledged)

    def _collect(self, kills: Sequence[history.Kill]) -> history.History:
        """Read the store and the marks."""
        attempts = [
            history.Attempt(*row)
            for row in self.read(
                "SELECT job_id, attempt, token, outcome, supervisor, finished_at_ms "
                "FROM {schema}.attempts"
            )
        ]
        ((refused,),) = self.read(
            "SELECT value FROM {schema}.meta WHERE name = 'stale_settlements'"
        )
        marks = (self._directory / "marks").read_text().splitlines()
        return history.History(
            acknowledged=self.producer.acknowledged,
            jobs=[
                history.Job(*row)
                for row in self.read(
                    "SELECT id, key, state, attempt, finished_at_ms FROM {schema}.jobs"
                )
            ],
            attempts=attempts,
            lives=history.read_lives(marks),
            leases=self.watcher.leases,
            # What was held between two looks is known if it ended badly.
            holders=self.watcher.holders | {one.token: one.run for one in attempts},
            kills=kills,
            pauses=[pause for host in self.hosts for pause in host.pauses],
            takeover_ms_max=round((self._options.ttl + TAKEOVER_EXTRA_S) * 1000),
            refused=refused,
        )


def processes_left(directory: Path) -> list[int]:
    """Return processes that were started here and still live, after a moment."""
    marker = os.fsencode(f"{MARKER}={directory}")

    def living() -> list[int]:
        left = []
        for pid in psutil.pids():
            with contextlib.suppress(OSError):  # it has ended, or is somebody else's
                if marker in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    left.append(pid)
        return [pid for pid in left if pid != os.getpid()]

    wait_for(lambda: not living(), LEFT_S_MAX)
    return living()


def report(case: Case, options: argparse.Namespace, found: history.History) -> None:
    """Print one page of figures."""
    calm = history.takeovers_ms(found, is_calm=True)
    storm = history.takeovers_ms(found, is_calm=False)
    late = history.late_ends(found)
    states = Counter(job.state for job in found.jobs)
    rows = {
        "seed": options.seed,
        "minutes / supervisors / TTL": f"{options.minutes:g} / "
        f"{options.supervisors} / {options.ttl:g} s",
        "hosts killed in calm weather": len(calm),
        "  kill to takeover": spread(calm.values()),
        "blows in the storm": case.nemesis.blows.total(),
        **{f"  {sort}": n for sort, n in sorted(case.nemesis.blows.items())},
        "  kill to takeover, or to the host's return": spread(storm.values()),
        "connections that the proxies cut": sum(h.proxy.cuts for h in case.hosts),
        "armed cuts that nothing met": case.nemesis.missed,
        "supervisors that ended by themselves (exit codes)": dict(
            Counter(code for host in case.hosts for code in host.own_ends)
        )
        or 0,
        "jobs acknowledged": len(found.acknowledged),
        "enqueue calls in trouble": dict(case.producer.troubles) or 0,
        "jobs by state": dict(states),
        "attempts that did not succeed": dict(
            Counter(one.outcome for one in found.attempts)
        )
        or 0,
        "handlers that ended after their job was taken": len(late),
        "late or repeated acknowledgements refused": found.refused,
        "overlaps, all after expiry unless named below": len(
            history.overlaps(found.lives)
        ),
        "drained in s": f"{case.drained_s:.1f}",
    }
    for what, figure in rows.items():
        print(f"{what:<50} {figure}")


def spread(took_ms: Iterable[int | None]) -> str:
    """Return the middle and the maximum of what was measured."""
    known = [one / 1000 for one in took_ms if one is not None]
    if not known:
        return "none"
    return f"p50 {statistics.median(known):.2f} s, max {max(known):.2f} s"


def options_of(words: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="scripts/many-hosts", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="of storm")
    parser.add_argument("--blows", type=int, default=30, help="in the storm")
    parser.add_argument("--supervisors", type=int, default=3, help="2 at least")
    parser.add_argument("--ttl", type=float, default=5.0, help="seconds")
    parser.add_argument("--rate", type=float, default=4.0, help="jobs a second")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4)))
    parser.add_argument("--keep", action="store_true", help="keep logs and marks")
    options = parser.parse_args(words)
    if options.supervisors < 2:  # noqa: PLR2004 - the other one
        parser.error("--supervisors: nobody would take over, expected 2 or more")
    if options.blows < 1:
        parser.error("--blows: expected 1 or more")
    return options


def main(words: Sequence[str]) -> int:
    """Run the case; return 0 if the history is as it must be."""
    options = options_of(words)
    sys.path.insert(0, str(APP.parent))
    directory = Path(tempfile.mkdtemp(prefix="jobpool-many-hosts-"))
    server = OwnServer()
    try:
        case = Case(options, directory, server)
        found, said = case.play()
        report(case, options, found)
    finally:
        server.close()
        if options.keep:
            print(f"kept: {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)
    for line in said[:PROBLEMS_SHOWN_MAX]:
        print(f"WRONG: {line}")
    print("history check: " + (f"{len(said)} problems" if said else "passed"))
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
