"""Several hosts on one PostgreSQL, a nemesis among them, and a history check.

Each host is a real supervisor with a run directory of its own, which no other sees,
and a network of its own: a proxy that is cut, swallows everything, or refuses. The
server is restarted under all of them, and supervisors are killed. Then it is quiet;
everything must drain, and the history must show: no job lost, none settled twice,
none run side by side before its first lease had expired, nothing left behind.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import many_hosts_history as history
import psutil

from cutting_proxy import CuttingProxy
from jobpool.errors import OutcomeUnknown, StoreUnavailable
from postgres_server import OwnServer, query_of

APP = Path(__file__).with_name("many_hosts_app.py")
MARKER = "MANY_HOSTS_DIRECTORY"
DRAIN_S_MAX = 120.0
STOP_S_MAX = 60.0
PERIOD_S = 9.0
"""Between two blows of the nemesis, on average."""


class Host:
    """One host: a network, a run directory, and a supervisor that comes and goes."""

    def __init__(
        self, name: str, directory: Path, port: int, url: str, ttl: str
    ) -> None:
        self.name = name
        self.proxy = CuttingProxy(port)
        self._directory = directory
        self._log = (directory / f"{name}.log").open("ab")
        self._flags = ["--pools", "cpu=3", "--app", str(APP), "--lease-ttl", ttl]
        self._flags += ["--log-format", "json", "--drain", "10s"]
        self._env = os.environ | {
            "JOBPOOL_STORE": self.proxy.url(url),
            "JOBPOOL_RUN_DIR": str(directory / f"run-{name}"),
            "MANY_HOSTS_HOST": name,
        }
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the supervisor, unless it runs."""
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jobpool", *self._flags],
                cwd=self._directory,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """Kill the supervisor without a word to it."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> int:
        """Let the supervisor drain; return its exit code."""
        self.proxy.heal()
        if self.process is None:
            return 0
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(STOP_S_MAX)
        self._log.close()
        self.proxy.close()
        return code


class Producer(threading.Thread):
    """Enqueues jobs under keys, each again until it is told that it is there."""

    def __init__(self, rng: random.Random, per_s: float) -> None:
        super().__init__(name="producer")
        self._rng, self._pause_s = rng, 1 / per_s
        self._ends = threading.Event()
        self.acknowledged: dict[str, int] = {}
        self.troubles: Counter[str] = Counter()

    def run(self) -> None:
        """Enqueue until `finish` is called."""
        import many_hosts_app as app  # noqa: PLC0415 - reads the environment

        number = 0
        while not self._ends.wait(self._pause_s):
            key, lasts_ms = (
                f"job-{number}",
                self._rng.choice([20, 100, 400, 1500, 5000]),
            )
            call = app.step.options(key=key)
            while key not in self.acknowledged:
                try:
                    job = call.enqueue(number, lasts_ms)
                    self.acknowledged[key] = job.id
                except (StoreUnavailable, OutcomeUnknown) as error:
                    self.troubles[type(error).__name__] += 1
                    time.sleep(0.1)
            number += 1
        app.jobs.close()

    def finish(self) -> None:
        """Let the job at hand be stored, and end."""
        self._ends.set()
        self.join()


class Watcher(threading.Thread):
    """Writes down until when each run's lease is published, as an operator sees it."""

    def __init__(self, read: Callable[[str], list[tuple]]) -> None:
        super().__init__(name="watcher")
        self._read = read
        self._ends = threading.Event()
        self.leases: dict[str, list[tuple[int, int]]] = defaultdict(list)

    def run(self) -> None:
        """Look twenty times a second."""
        while not self._ends.wait(0.05):
            with contextlib.suppress(Exception):  # the server is away at times
                for run, at_ms, until_ms in self._read(
                    "SELECT id, floor(extract(epoch FROM clock_timestamp()) * 1000)"
                    "::bigint, lease_until_ms FROM {}.runs WHERE ended_at_ms IS NULL"
                ):
                    self.leases[run].append((at_ms, until_ms))

    def finish(self) -> None:
        """End."""
        self._ends.set()
        self.join()


class Nemesis:
    """Harms hosts, networks and the server, by the seed."""

    def __init__(
        self, rng: random.Random, hosts: list[Host], server: OwnServer
    ) -> None:
        self._rng, self._hosts, self._server = rng, hosts, server
        self.blows: Counter[str] = Counter()
        self._later: list[tuple[float, Callable[[], None]]] = []

    def rage(self, until_s: float, ttl_s: float) -> None:
        """Strike now and then until *until_s*, then leave everything mended."""
        blows: list[Callable[[float], str]] = [
            self._kill, self._kill, self._cut, self._cut_commit,
            self._swallow, self._refuse, self._restart,
        ]  # fmt: skip
        next_s = time.monotonic() + 3
        while (now_s := time.monotonic()) < until_s:
            self._mend(now_s)
            if now_s >= next_s:
                self.blows[self._rng.choice(blows)(ttl_s)] += 1
                next_s = now_s + self._rng.uniform(0.3, 1.7) * PERIOD_S
            time.sleep(0.05)
        self._mend(float("inf"))
        for host in self._hosts:
            host.proxy.heal()
            host.start()

    def _mend(self, now_s: float) -> None:
        for item in [item for item in self._later if item[0] <= now_s]:
            self._later.remove(item)
            item[1]()

    def _after(self, seconds: float, mend: Callable[[], None]) -> None:
        self._later.append((time.monotonic() + seconds, mend))

    def _kill(self, ttl_s: float) -> str:
        host = self._rng.choice(self._hosts)
        host.kill()
        self._after(self._rng.uniform(0, 2 * ttl_s), host.start)
        return "supervisor killed"

    def _cut(self, _: float) -> str:
        self._rng.choice(self._hosts).proxy.cut()
        return "connections cut"

    def _cut_commit(self, _: float) -> str:
        delivered = self._rng.choice([True, False])
        self._rng.choice(self._hosts).proxy.cut_at(b"COMMIT", delivered=delivered)
        return f"commit cut ({'answer' if delivered else 'request'} lost)"

    def _swallow(self, ttl_s: float) -> str:
        host = self._rng.choice(self._hosts)
        is_long = self._rng.choice([True, False])
        host.proxy.black_hole()
        self._after(ttl_s * (1.8 if is_long else 0.6), host.proxy.heal)
        return f"black hole {'longer' if is_long else 'shorter'} than the TTL"

    def _refuse(self, ttl_s: float) -> str:
        host = self._rng.choice(self._hosts)
        host.proxy.refuse()
        self._after(self._rng.uniform(0, ttl_s), host.proxy.heal)
        return "connections refused"

    def _restart(self, _: float) -> str:
        mode = self._rng.choice(["fast", "immediate"])
        self._server.restart(mode)
        return f"server restarted ({mode})"


def main() -> int:
    """Run the case; return 0 if the history is as it must be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--supervisors", type=int, default=3)
    parser.add_argument("--ttl", type=float, default=5.0, help="seconds")
    parser.add_argument("--rate", type=float, default=5.0, help="jobs a second")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--keep", action="store_true", help="keep logs and marks")
    options = parser.parse_args()
    seed = int.from_bytes(os.urandom(4)) if options.seed is None else options.seed
    directory = Path(tempfile.mkdtemp(prefix="jobpool-many-hosts-"))
    server = OwnServer()
    try:
        return play(options, seed, directory, server)
    finally:
        server.close()
        if options.keep:
            print(f"kept: {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)


def play(
    options: argparse.Namespace, seed: int, directory: Path, server: OwnServer
) -> int:
    """Let the hosts work under the nemesis, then drain, check and print."""
    url = server.fresh_url(server.tcp_url)
    os.environ["MANY_HOSTS_MARKS"] = str(directory / "marks")
    os.environ[MARKER] = str(directory)
    os.environ["JOBPOOL_STORE"] = url
    sys.path.insert(0, str(APP.parent))
    rng = random.Random(seed)  # noqa: S311 - repeatable, not secret

    def read(query: str) -> list[tuple]:
        with server.connect() as connection:
            return connection.execute(query.format(query_of(url)["schema"])).fetchall()

    hosts = [
        Host(f"h{n}", directory, server.port, url, f"{options.ttl:g}s")
        for n in range(options.supervisors)
    ]
    producer = Producer(random.Random(rng.random()), options.rate)  # noqa: S311
    watcher, nemesis = Watcher(read), Nemesis(rng, hosts, server)
    try:
        for host in hosts:
            host.start()
        producer.start()
        watcher.start()
        nemesis.rage(time.monotonic() + 60 * options.minutes, options.ttl)
        producer.finish()
        drained_s = drain(read, len(producer.acknowledged))
        codes = [host.stop() for host in hosts]
    finally:
        producer.finish()
        watcher.finish()
        for host in hosts:
            host.kill()
    found = collect(read, producer, watcher, directory)
    said = history.problems(found, processes_left(directory))
    said += [f"a supervisor ended with {code}" for code in codes if code]
    if drained_s is None:
        said.append(f"it did not drain within {DRAIN_S_MAX:g} s")
    ((stale,),) = read("SELECT value FROM {}.meta WHERE name = 'stale_settlements'")
    report(options, seed, nemesis, producer, found, drained_s, stale, said)
    return 1 if said else 0


def drain(read: Callable[[str], list[tuple]], jobs: int) -> float | None:
    """Wait until every job has ended; return how many seconds it took."""
    began_s = time.monotonic()
    while time.monotonic() < began_s + DRAIN_S_MAX:
        ((done,),) = read("SELECT count(finished_at_ms) FROM {}.jobs")
        if done >= jobs:
            return time.monotonic() - began_s
        time.sleep(0.1)
    return None


def collect(
    read: Callable[[str], list[tuple]],
    producer: Producer,
    watcher: Watcher,
    directory: Path,
) -> history.History:
    """Read the store and the marks."""
    return history.History(
        acknowledged=producer.acknowledged,
        jobs=read("SELECT id, key, state, attempt FROM {}.jobs"),
        attempts=read("SELECT job_id, attempt, token, outcome FROM {}.attempts"),
        taken=[
            history.Taken(*row)
            for row in read(
                "SELECT job_id, token, supervisor, finished_at_ms FROM {}.attempts "
                "WHERE outcome = 'lost'"
            )
        ],
        lives=history.read_lives((directory / "marks").read_text().splitlines()),
        leases=watcher.leases,
    )


def processes_left(directory: Path) -> list[int]:
    """Return processes that were started here and still live, after a moment."""
    marker = os.fsencode(f"{MARKER}={directory}")
    deadline_s = time.monotonic() + 5
    while True:
        left = []
        for pid in psutil.pids():
            with contextlib.suppress(OSError):
                if marker in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    left.append(pid)
        left = [pid for pid in left if pid != os.getpid()]
        if not left or time.monotonic() > deadline_s:
            return left
        time.sleep(0.05)


def report(  # noqa: PLR0917 - all that there is to say
    options: argparse.Namespace,
    seed: int,
    nemesis: Nemesis,
    producer: Producer,
    found: history.History,
    drained_s: float | None,
    stale: int,
    said: list[str],
) -> None:
    """Print one page."""
    outcomes = Counter(outcome for *_, outcome in found.attempts)
    late_s = sorted(history.recoveries_s(found)) or [0.0]
    rows = {
        "seed": seed,
        "minutes / supervisors / TTL": f"{options.minutes:g} / "
        f"{options.supervisors} / {options.ttl:g} s",
        **dict(sorted(nemesis.blows.items())),
        "jobs acknowledged": len(found.acknowledged),
        "enqueue calls in trouble": dict(producer.troubles) or 0,
        "jobs succeeded": sum(state == "succeeded" for _, _, state, _ in found.jobs),
        "attempts that did not": dict(outcomes) or 0,
        "late acknowledgements refused": stale,
        "overlaps, all after expiry unless named below": len(
            history.overlaps(found.lives)
        ),
        "last sign of life to takeover, p50 / max s": f"{statistics.median(late_s):.2f}"
        f" / {late_s[-1]:.2f}",
        "drained in s": "never" if drained_s is None else f"{drained_s:.1f}",
    }
    for what, figure in rows.items():
        print(f"{what:<50} {figure}")
    for line in said[:40]:
        print(f"WRONG: {line}")
    print("history check: " + (f"{len(said)} problems" if said else "passed"))


if __name__ == "__main__":
    sys.exit(main())
