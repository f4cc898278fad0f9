"""The previous release and this one on one store, under kills: nothing is lost.

What the previous release has open goes on after the schema was changed under it. It is
refused when it is started again, by its own code. What it does not know stays off until
the last of it has ended.
"""

import itertools
import json
import os
import subprocess
import sys

import pytest

from jobpool.cli.exits import Exit
from jobpool.core.formats import FORMAT
from jobpool.core.jobs.flow import NewFlow, NewStep
from jobpool.errors import FeatureHeldBack
from jobpool.store.records.flows import FlowFilter
from support.postgres.server import server
from support.site.previous_release import previous_release
from support.site.supervising import PATIENCE_S, Site
from support.store.cli_store import run
from support.waiting import wait_until

APP = """
@jobs.job("cpu", kind="work")
def work(n: int):
    witness()
    time.sleep(0.03)
    witness("ended")
    return current().token


if os.environ.get("LOADS_SLOWLY"):
    (HERE / "loading").touch()
    while not (HERE / "loaded").exists():
        time.sleep(0.005)
"""
CLIENT = """
import sys
from jobs import work

for line in sys.stdin:
    first, count = map(int, line.split())
    print(*(work.enqueue(n).id for n in range(first, first + count)), flush=True)
"""
BATCH = 30


class MixedSite(Site):
    """A site with supervisors and clients of both releases."""

    def __init__(self, folder, url, old):
        super().__init__(folder, APP)
        self.url = url or self.url
        self.old = {"PYTHONPATH": str(old)}
        self.ids = []
        self._numbers = itertools.count()
        self._clients = []

    def env_of(self, *, old):
        """Return the environment of one release's processes, all on one host."""
        (self.folder / "host").mkdir(mode=0o700, exist_ok=True)
        where = {
            "JOBPOOL_STORE": self.url,
            "JOBPOOL_RUN_DIR": str(self.folder / "host"),
            "JOBPOOL_LEASE_TTL": "20s",
        }
        return {**where, **(self.old if old else {})}

    def start_release(self, *, old, **env):
        """Start a supervisor of a release, and wait until it is ready."""
        return self.start("cpu=2", env={**self.env_of(old=old), **env})

    def client(self, *, old):
        """Return a function by which an open client of a release enqueues jobs."""
        process = subprocess.Popen(
            [sys.executable, "-c", CLIENT],
            cwd=self.folder,
            env={**os.environ, **self.env_of(old=old)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._clients.append(process)

        def enqueue(count=BATCH):
            first = count * next(self._numbers)
            process.stdin.write(f"{first} {count}\n")
            process.stdin.flush()
            ids = [int(word) for word in process.stdout.readline().split()]
            assert len(ids) == count
            self.ids += ids

        return enqueue

    def kill_in_the_middle(self, supervisor, enqueue):
        """Kill a supervisor with SIGKILL while it holds jobs.

        The other one may be quicker and leave it none: more come until it has one.
        """
        (run,) = (one for one in self.store.open_runs() if one.pid == supervisor.pid)

        def holds():
            if not (held := self.store.leases_of(run.id)):
                enqueue()
            return held

        wait_until(holds, PATIENCE_S, "a lease of its")
        supervisor.kill()

    def ledger(self):
        """Return what handlers wrote, in order: what, job, token."""
        lines = (self.folder / "witness").read_text().splitlines()
        parts = (line.split() for line in lines)
        return [(what, int(job), int(token)) for what, job, token, *_ in parts]

    def migrate(self):
        """Bring the schema up to date, as an operator does before a deployment."""
        done = run("migrate", "--store", self.url)
        assert done.exit_code == 0, done.output

    def close(self):
        """Kill everything that is left."""
        for client in self._clients:
            client.kill()
            client.communicate()
        super().close()


@pytest.fixture(scope="module")
def old():
    return previous_release()


@pytest.fixture(params=["sqlite", "postgres"])
def site(request, tmp_path, old):
    url = None if request.param == "sqlite" else server().fresh_url()
    with MixedSite(tmp_path, url, old) as site:
        yield site
    if url is not None:
        server().drop(url)


def assert_each_ended_once(site):
    """Every job has succeeded, by its last attempt, and no two of them overlapped.

    What counts is the handlers' own ledger, in the order in which they wrote it.
    """
    newest = {}
    for what, job, token in site.ledger():
        if what == "began":
            assert token > newest.get(job, 0), job
            newest[job] = token
        else:
            assert token == newest[job], f"job {job}: an earlier attempt ran on"
    jobs = {job_id: site.job(job_id) for job_id in site.ids}
    assert {job.state for job in jobs.values()} == {"succeeded"}
    assert {job_id: json.loads(job.result) for job_id, job in jobs.items()} == newest
    assert site.store.describe()["stale_settlements"] == "0"


def test_two_releases_share_a_store_under_kills_and_nothing_is_lost(site):
    """Each takes back what the other held when it was killed."""
    enqueue_old = site.client(old=True)
    enqueue_old()
    older = site.start_release(old=True)
    site.migrate()
    enqueue_new = site.client(old=False)
    newer = site.start_release(old=False)
    with pytest.raises(FeatureHeldBack, match=rf"jobpool \S+ on .*, pid {older.pid}:"):
        site.store.require(FORMAT)
    steps = (NewStep(number=0, name="first"),)
    with pytest.raises(FeatureHeldBack, match=r"nothing was"):
        site.store.enqueue_flow(NewFlow(name="early", steps=steps), [])
    assert site.store.flows(FlowFilter()) == []
    (status,) = site.cli("status")
    assert [one["pid"] for one in status["held_back"]] == [older.pid]
    enqueue_old()
    enqueue_new()
    site.kill_in_the_middle(newer, enqueue_new)
    newer = site.start_release(old=False)
    enqueue_old()
    site.kill_in_the_middle(older, enqueue_old)
    refused = site.launch("--pools", "cpu=2", env=site.env_of(old=True))
    enqueue_new()
    site.finish_all(site.ids)
    assert refused.wait_exit() == Exit.STORE
    assert "knows up to" in refused.said()
    assert "upgrade jobpool" in refused.said()
    wait_until(
        lambda: site.store.formats().least == FORMAT,
        PATIENCE_S,
        "the feature, which was asked for before",
    )
    enqueue_old()
    site.finish_all(site.ids)
    assert_each_ended_once(site)
    assert newer.stop() == 0


def test_a_supervisor_of_the_previous_release_cannot_enter_late(site):
    """It has opened the store, and still loads its application when a feature is used.

    Its code asks nothing when it enters its run: the table itself refuses.
    """
    site.client(old=True)(1)
    flags = ("--pools", "cpu=1", "--log-format", "json")
    late = site.launch(*flags, env={**site.env_of(old=True), "LOADS_SLOWLY": "1"})
    wait_until((site.folder / "loading").exists, PATIENCE_S, "its application")
    site.migrate()
    site.store.require(FORMAT)
    (site.folder / "loaded").touch()
    assert late.wait_exit() != 0
    assert site.store.open_runs() == []
    assert site.job(site.ids[0]).attempt == 0
    site.start_release(old=False)
    site.finish_all(site.ids)
    assert_each_ended_once(site)
