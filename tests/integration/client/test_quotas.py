"""Quotas as applications use them: stamped jobs in stores, permits in real jobs."""

import asyncio
import json
import sqlite3
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psycopg
import pytest
from click.testing import CliRunner

from jobpool import JobPool
from jobpool.cli.root import cli
from jobpool.core.rules.quotas.lanes import lane_id
from support.postgres.server import libpq_url, server
from support.site.supervising import Site
from support.waiting import Running

APP = """
import asyncio, urllib.error, urllib.request

stripe = jobs.quota("stripe", concurrency=2, wait="30s")
server = jobs.quota("server", concurrency=100)
vendor = jobs.quota("vendor", concurrency=1, per="args.vendor", wait="30s")


def note(what):
    with open(HERE / "ledger", "ab", buffering=0) as file:
        file.write(f"{what} {time.monotonic()}\\n".encode())


@jobs.job("io", kind="in_async")
async def in_async(count: int = 6):
    async def one(n):
        async with stripe.permit():
            note(f"began {current().id}.{n}")
            await asyncio.sleep(0.01)
            note(f"ended {current().id}.{n}")

    await asyncio.gather(*map(one, range(count)))


@jobs.job("io", kind="in_threads")
def in_threads(count: int = 6):
    job = current().id

    def one(n):
        with stripe.permit():
            note(f"began {job}.{n}")
            time.sleep(0.01)
            note(f"ended {job}.{n}")

    threads = [threading.Thread(target=one, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@jobs.job("io", kind="by_vendor")
def by_vendor(vendor: str = "usual", takes_s: float = 0.01):
    with globals()["vendor"].permit():
        note(f"began {current().id}")
        time.sleep(takes_s)
        note(f"ended {current().id}")


@jobs.job("io", kind="nests")
def nests():
    with stripe.permit(2):
        try:
            with stripe.permit():
                return "taken"
        except jobpool.UsageError as exc:
            return str(exc)


@jobs.job("io", kind="fetch", max_attempts=1)
def fetch(url: str):
    with server.permit() as permit:
        since = str(time.monotonic())
        request = urllib.request.Request(url, headers={"Since": since})
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                permit.answered(answer.status, answer.headers)
                return answer.status
        except urllib.error.HTTPError as exc:
            permit.answered(exc.code, exc.headers)
            raise
"""
RETRY_AFTER_S = 4
HEARD_S = 1.0
"""So soon after a refusal nobody on the host gets a permit any more."""


@pytest.fixture
def site(tmp_path):
    with Site(tmp_path, APP) as site:
        yield site


def most_at_once(site):
    """Return how many requests ran at the same time, by what handlers wrote."""
    running, most, total = set(), 0, 0
    lines = (site.folder / "ledger").read_text().splitlines()
    for what, who, _ in sorted(map(str.split, lines), key=lambda line: float(line[2])):
        if what == "began":
            running.add(who)
            total += 1
        else:
            running.discard(who)
        most = max(most, len(running))
    return most, total


@pytest.mark.parametrize("kind", ["in_async", "in_threads"])
def test_permits_are_kept_to_in_one_process_and_over_several(site, kind):
    """Whether coroutines or threads ask beside one another."""
    site.start("io=3")
    ids = site.add_many(kind, [None] * 4, pool="io")
    assert {job.state for job in site.finish_all(ids)} == {"succeeded"}
    assert most_at_once(site) == (2, 24)


def test_a_bucket_is_that_of_the_jobs_argument_or_its_default(site):
    site.start("io=4")
    site.finish_all(site.add_many("by_vendor", [None] * 4, pool="io"))
    usual = [{"vendor": "usual"}, None] * 3
    site.finish_all(site.add_many("by_vendor", usual, pool="io"))
    assert most_at_once(site)[0] == 1
    # Long enough to meet, however late each of them begins.
    others = [{"vendor": f"v{n}", "takes_s": 0.3} for n in range(4)]
    site.finish_all(site.add_many("by_vendor", others * 3, pool="io"))
    assert most_at_once(site)[0] > 1


def test_a_block_that_would_wait_for_its_own_outer_one_is_refused(site):
    site.start("io=1")
    assert "would wait for itself" in site.result(site.add("nests", pool="io"))


class Vendor(ThreadingHTTPServer):
    """Refuses its tenth request, and all for so long after it."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answers)
        self.lock = threading.Lock()
        self.asked = []
        """When each who asked had got its permit: its request may take long."""
        self.refused = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/"

    def answer(self, since_s):
        with self.lock:
            now_s = time.monotonic()
            self.asked.append(since_s)
            if not self.refused and len(self.asked) < 10:
                return 200
            if self.refused and now_s >= self.refused[0] + RETRY_AFTER_S:
                return 200
            self.refused.append(now_s)
            return 429


class Answers(BaseHTTPRequestHandler):
    """The answers of `Vendor`."""

    def do_GET(self):
        status = self.server.answer(float(self.headers["Since"]))
        self.send_response(status)
        if status == 429:
            self.send_header("Retry-After", str(RETRY_AFTER_S))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_args):
        """Keep the test's output clean."""


def test_a_server_that_says_wait_is_left_alone_and_no_attempt_is_spent(site):
    """Each job has one attempt: one that counted as a failure would end it."""
    with Vendor() as vendor, Running() as machine:
        threading.Thread(target=vendor.serve_forever, daemon=True).start()
        site.start("io=4")
        ids = site.add_many("fetch", [{"url": vendor.url}] * 40, pool="io")
        jobs = site.finish_all(ids)
        vendor.shutdown()
    assert {(job.state, job.failures) for job in jobs} == {("succeeded", 0)}
    assert len(vendor.asked) == 40 + len(vendor.refused)
    first = vendor.refused[0]
    soon = (at for at in vendor.asked if first < at < first + RETRY_AFTER_S)
    # Who had a permit may have stood still with the machine before noting so.
    assert not [at for at in soon if machine.ran_s(first, at) > HEARD_S]


# -- what is stamped -------------------------------------------------------------------


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    if request.param == "postgres":
        return server().store_url()
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def jobs(url):
    jobs = JobPool(url)
    yield jobs
    jobs.close()


@pytest.fixture
def charge(jobs):
    quota = jobs.quota("vendor", rate="1/s", per="args.vendor")

    @jobs.job("io", kind="charge", quotas=[quota])
    def charge(vendor: str = "usual", cents: int = 1) -> None: ...

    return charge


def connected(url):
    """Return a caller's own connection, and the name of the table of jobs."""
    if url.startswith("sqlite"):
        path = url.removeprefix("sqlite:///")
        return sqlite3.connect(path, isolation_level=None), "jobpool_jobs"
    schema = url.rpartition("=")[2]
    return psycopg.connect(libpq_url(url), autocommit=True), f"{schema}.jobs"


def stamps(url):
    """Return what jobs are stamped with, by id."""
    connection, table = connected(url)
    select = f"SELECT id, quota_values, lane FROM {table} ORDER BY id"  # noqa: S608 - our own
    rows = connection.execute(select)
    found = {i: (json.loads(v) if v else None, lane) for i, v, lane in rows}
    connection.close()
    return found


def lane(vendor, *, priority=0, tenant=None):
    return lane_id("io", "charge", priority, tenant, {"vendor": vendor})


def test_every_way_to_enqueue_stamps_what_a_job_counts_by(jobs, charge, url):
    """And its lane, with its own priority and tenant."""
    charge.enqueue("a")
    asyncio.run(charge.options(tenant="acme").enqueue_async("b"))
    jobs.enqueue_many(charge, [{"vendor": "c"}, {}])
    jobs.enqueue_many([charge.options(priority=3).call("d")])
    own, _ = connected(url)
    with jobs.transaction(own):
        charge.options(connection=own).enqueue("e")
    own.close()
    assert list(stamps(url).values()) == [
        ({"vendor": "a"}, lane("a")),
        ({"vendor": "b"}, lane("b", tenant="acme")),
        ({"vendor": "c"}, lane("c")),
        ({"vendor": "usual"}, lane("usual")),
        ({"vendor": "d"}, lane("d", priority=3)),
        ({"vendor": "e"}, lane("e")),
    ]


def test_what_a_schedule_and_a_replay_make_counts_by_the_same(jobs, charge, url):
    """With the old job's tenant, or the schedule's."""
    jobs.schedules.put("hourly", charge.call("a"), every="1h", tenant="acme")
    made = jobs.schedules.run("hourly")
    old = charge.options(tenant="acme").enqueue("b")
    old.cancel()
    new = jobs.replay(old.id, charge.call("c"))
    found = stamps(url)
    assert found[made.id][0] == {"vendor": "a"}
    assert found[new.id][0] == {"vendor": "c"}
    assert found[new.id][1] in {None, lane("c", tenant="acme")}


def test_the_command_line_counts_as_the_application_does(tmp_path, monkeypatch):
    """By the application, as long as no supervisor has published the kind."""
    (tmp_path / "jobs.py").write_text(
        "import jobpool\n"
        "jobs = jobpool.JobPool()\n"
        "quota = jobs.quota('vendor', rate='1/s', per='args.vendor')\n"
        "@jobs.job('io', kind='charge', quotas=[quota])\n"
        "def charge(vendor: str = 'usual', cents: int = 1) -> None: ...\n"
    )
    monkeypatch.chdir(tmp_path)
    url = f"sqlite:///{tmp_path}/jobs.db"
    monkeypatch.setenv("JOBPOOL_STORE", url)
    said = CliRunner().invoke(
        cli, ["enqueue", "charge", '["a"]', "{}", "--tenant", "acme"]
    )
    assert said.exit_code == 0, said.output
    assert list(stamps(url).values()) == [
        ({"vendor": "a"}, lane("a", tenant="acme")),
        ({"vendor": "usual"}, lane("usual", tenant="acme")),
    ]
