"""Quotas with real supervisors, children and kills, judged by what handlers wrote."""

import signal
import time
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from support.postgres.server import server
from support.site.supervising import PATIENCE_S, Site
from support.waiting import Running, wait_until

APP = """
stripe = jobs.quota("stripe", concurrency=2)
paced = jobs.quota("paced", rate="20/s", burst=5)
single = jobs.quota("single", concurrency=1, wait="200ms")
vendor = jobs.quota("vendor", concurrency=1, per="args.vendor")
disk = jobs.quota("disk", concurrency=1, scope="host")
server = jobs.quota("server", concurrency=100)


def note(what):
    now = current()
    line = f"{what} {now.id} {now.token} {time.monotonic()}\\n"
    with open(HERE / "ledger", "ab", buffering=0) as file:
        file.write(line.encode())


def spend(seconds, meets=""):
    note("began")
    if meets:
        meet(meets)
    time.sleep(seconds)
    note("ended")


def meet(name):
    # The first one waits for another: on a busy machine, too, two are here at once.
    (HERE / f"{name}.{os.getpid()}").touch()
    until_s = time.monotonic() + 10
    while len(list(HERE.glob(f"{name}.*"))) < 2 and time.monotonic() < until_s:
        time.sleep(0.005)


@jobs.job("io", kind="charge", quotas=[stripe])
def charge(seconds: float = 0.03, meets: str = ""):
    spend(seconds, meets)


@jobs.job("io", kind="call", quotas=[paced])
def call():
    spend(0.0)


@jobs.job("io", kind="send", quotas=[vendor])
def send(vendor: str):
    spend(0.03)


@jobs.job("io", kind="own", concurrency=2)
def own():
    spend(0.03, meets="own")


@jobs.job("io", kind="scan", quotas=[disk])
def scan():
    spend(0.03)


@jobs.job("io", kind="dies", quotas=[stripe], max_attempts=1)
def dies(gate: str):
    hold(gate)
    os.kill(os.getpid(), signal.SIGKILL)


@jobs.job("io", kind="holds")
def holds(gate: str, dies: bool = False):
    with single.permit():
        note("began")
        hold(gate)
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        note("ended")


@jobs.job("io", kind="requests")
def requests(count: int = 5):
    for _ in range(count):
        with stripe.permit(wait="30s"):
            spend(0.005, meets="request")


@jobs.job("io", kind="refused", quotas=[server])
def refused():
    note("began")
    if current().attempt == 1 and not (HERE / "well").exists():
        (HERE / "well").touch()
        note("refused")
        raise jobpool.Throttled(server, after="2s")
"""
SLACK_S = 0.002
"""Between a begin and the line about it."""


class Line(NamedTuple):
    """A line of the ledger."""

    what: str
    job: int
    token: int
    at_s: float


def ledger(site, ids=None):
    """Return the lines that handlers wrote, in the order of time.

    Only those of some jobs, if they are named.
    """
    path = site.folder / "ledger"
    text = path.read_text() if path.exists() else ""
    lines = text.split("\n")[:-1]  # what has no end yet is being written
    words = [line.split() for line in lines]
    found = [Line(w[0], int(w[1]), int(w[2]), float(w[3])) for w in words]
    mine = (line for line in found if ids is None or line.job in ids)
    return sorted(mine, key=lambda line: line.at_s)


def most_at_once(lines):
    """Return how many ran at the same time at most."""
    running, most = set(), 0
    for line in lines:
        if line.what == "began":
            running.add(line.token)
        else:
            running.discard(line.token)
        most = max(most, len(running))
    return most


def start(site, pools):
    """Start a supervisor on the site's store."""
    return site.start(pools, env={"JOBPOOL_STORE": site.url})


def two_supervisors(site):
    """Start two supervisors with four slots each."""
    return [start(site, "io=4"), start(site, "io=4")]


@contextmanager
def site_on(database, folder):
    with Site(folder, APP) as site:
        if database == "postgres":
            site.url = server().store_url()
        yield site
    if database == "postgres":
        server().drop(site.url)


@pytest.fixture(params=["sqlite", "postgres"])
def site(tmp_path, request):
    with site_on(request.param, tmp_path) as site:
        yield site


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def shared(tmp_path_factory, request):
    """Two supervisors, for tests that end all of their jobs."""
    with site_on(request.param, tmp_path_factory.mktemp("shared")) as site:
        two_supervisors(site)
        yield site


def test_a_cap_is_kept_over_two_supervisors(shared):
    """And used: as many run as may."""
    ids = shared.add_many("charge", [{"meets": "charge"}] * 40, pool="io")
    assert {job.state for job in shared.finish_all(ids)} == {"succeeded"}
    assert most_at_once(ledger(shared, ids)) == 2


def test_a_kinds_own_cap_is_kept_over_two_supervisors(shared):
    """Without a quota of a name."""
    ids = shared.add_many("own", [None] * 20, pool="io")
    assert {job.state for job in shared.finish_all(ids)} == {"succeeded"}
    assert most_at_once(ledger(shared, ids)) == 2


def test_each_value_has_a_bucket_of_its_own(shared):
    """One vendor holds up no other."""
    vendors = ["a", "b", "c"]
    ids = {
        vendor: shared.add_many("send", [{"vendor": vendor}] * 8, pool="io")
        for vendor in vendors
    }
    everybody = [one for mine in ids.values() for one in mine]
    shared.finish_all(everybody)
    lines = ledger(shared, everybody)
    for mine in ids.values():
        assert most_at_once([line for line in lines if line.job in mine]) == 1
    assert most_at_once(lines) > 1


def test_no_window_has_more_begins_than_a_rate_allows(shared):
    """Over two supervisors: never more than rate x t + burst within any t."""
    with Running() as running:
        ids = shared.add_many("call", [None] * 50, pool="io")
        shared.finish_all(ids)
        pauses = running.pauses()
    begins = [line.at_s for line in ledger(shared, ids) if line.what == "began"]
    assert len(begins) == len(ids)

    def began_s(at_s):
        """Return when it began at the earliest.

        Its line is late if the machine stood still in between.
        """
        stood = [from_s for from_s, until_s in pauses if from_s < at_s < until_s + 0.1]
        return min([at_s, *stood])

    for first, start_s in enumerate(map(began_s, begins)):
        for last in range(first, len(begins)):
            within_s = begins[last] - start_s + SLACK_S
            assert last - first + 1 <= 20 * within_s + 5


def test_a_burst_waits_for_the_permits_of_what_is_due(site):
    """It runs all of it, and not only what may begin at once."""
    ids = site.add_many("call", [None] * 9, pool="io")
    supervisor = site.start("io=4", "--burst", env={"JOBPOOL_STORE": site.url})
    assert supervisor.wait_exit() == 0
    assert {site.job(one).state for one in ids} == {"succeeded"}


def test_what_one_host_counts_is_kept_by_its_supervisor(site):
    """The store is not asked, and hands out more."""
    start(site, "io=4")
    ids = site.add_many("scan", [None] * 10, pool="io")
    assert {job.state for job in site.finish_all(ids)} == {"succeeded"}
    assert most_at_once(ledger(site)) == 1


@pytest.mark.parametrize("kind", ["dies", "holds"])
def test_a_child_that_is_killed_returns_its_permits(site, kind):
    """What it took when it began, and what its handler asked for."""
    start(site, "io=4")
    arguments = {"gate": "go"} | ({"dies": True} if kind == "holds" else {})
    doomed = site.add_many(kind, [arguments] * 2, pool="io", max_attempts=1)
    begun = wait_until(site.witnesses, PATIENCE_S, "one that holds permits")
    assert begun
    site.open_gate("go")
    follower = "charge" if kind == "dies" else "holds"
    last = site.add(follower, {} if kind == "dies" else {"gate": "go"}, pool="io")
    assert site.finish(last).state == "succeeded"
    assert {job.state for job in site.finish_all(doomed)} == {"dead"}


def test_a_supervisor_that_is_killed_returns_the_permits_of_its_jobs(site):
    """The other one takes its jobs back, and runs them within the cap."""
    doomed, _alive = two_supervisors(site)
    ids = site.add_many("charge", [{"seconds": 0.3}] * 8, pool="io")
    wait_until(lambda: len(ledger(site)) >= 3, PATIENCE_S, "some jobs")
    doomed.kill()
    assert {job.state for job in site.finish_all(ids)} == {"succeeded"}


def test_each_request_takes_a_permit(shared):
    """Within the cap, over supervisors, children and requests."""
    ids = shared.add_many("requests", [None] * 12, pool="io")
    assert {job.state for job in shared.finish_all(ids)} == {"succeeded"}
    lines = ledger(shared, ids)
    assert sum(line.what == "began" for line in lines) == 12 * 5
    assert most_at_once(lines) == 2


def test_a_permit_is_waited_for_and_then_the_job_snoozes(site):
    """It costs no attempt, and its slot is free meanwhile."""
    supervisor = start(site, "io=2")
    holder = site.add("holds", {"gate": "go"}, pool="io")
    site.wait_begun(holder)
    waiting = site.add("holds", {"gate": "go"}, pool="io")
    supervisor.wait_event("job_snoozed", id=waiting)
    wait_until(lambda: site.job(waiting).snoozes, PATIENCE_S, "its snooze")
    assert [line.job for line in ledger(site)] == [holder]
    site.open_gate("go")
    assert site.finish(holder).state == "succeeded"
    waited = site.finish(waiting)
    assert (waited.state, waited.failures, waited.attempt) == ("succeeded", 0, 1)


def test_who_is_throttled_keeps_everybody_away_for_so_long(site):
    """No attempt is spent, and those that come later wait as well."""
    two_supervisors(site)
    first = site.add("refused", pool="io")
    refused = wait_until(
        lambda: [line for line in ledger(site) if line.what == "refused"],
        PATIENCE_S,
        "a refusal",
    )[0]
    wait_until(lambda: site.job(first).snoozes == 1, PATIENCE_S, "its snooze")
    others = site.add_many("refused", [None] * 6, pool="io")
    jobs = site.finish_all([first, *others])
    assert {(job.state, job.failures) for job in jobs} == {("succeeded", 0)}
    later = [line.at_s for line in ledger(site) if line.at_s > refused.at_s]
    assert min(later) - refused.at_s >= 2.0 - SLACK_S

    def said():
        return [
            (event["snoozes"], event["throttles"])
            for supervisor in site.supervisors
            for event in supervisor.events("job_snoozed", id=first)
        ]

    assert wait_until(said, PATIENCE_S, "its snooze in the log")[0] == (1, 1)


def test_a_drain_hands_back_what_waits_for_permits(site):
    """Nothing is charged, and the next supervisor has them at once."""
    first = start(site, "io=2")
    ids = site.add_many("charge", [{"seconds": 0.2}] * 6, pool="io")
    wait_until(lambda: ledger(site), PATIENCE_S, "a begin")
    assert first.stop(signal.SIGTERM) == 0
    start(site, "io=2")
    began_s = time.monotonic()
    jobs = site.finish_all(ids)
    assert {(job.state, job.failures) for job in jobs} == {("succeeded", 0)}
    assert most_at_once(ledger(site)) == 2
    assert time.monotonic() - began_s < PATIENCE_S
