"""Real supervisors that share a PostgreSQL store, each as if on a host of its own."""

import signal
import time
from functools import partial
from pathlib import Path

import pytest

from support.postgres.cutting_proxy import CuttingProxy
from support.postgres.server import server
from support.site.supervising import PATIENCE_S, Site, is_alive
from support.waiting import Running, side_by_side, wait_until

APP = """
def lives(pid):
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return stat[0] not in "ZX" and not int(stat[6]) & 4  # which is ending


def look_around():
    # Leave a line for each other child that still runs an earlier attempt.
    path = HERE / "witness"
    for line in path.read_text().splitlines() if path.exists() else ():
        what, job, *_, pid = line.split()
        if what == "began" and int(job) == current().id and lives(pid):
            witness("beside")


@jobs.job("cpu", kind="held", timeout="10m")
def held(gate: str):
    look_around()
    hold(gate)
    witness("ended")
    return current().token


@jobs.job("cpu", kind="quick")
def quick():
    witness()
"""
TTL_S = 8.0
"""Longer than a busy machine stands still."""
DRAIN_S = 1.0
BUSY_MACHINE_S = 2.0


class SharedSite(Site):
    """A site whose store is in PostgreSQL, and whose supervisors share nothing else."""

    def __init__(self, folder, url):
        super().__init__(folder, APP)
        self.url = url

    def start_on(self, host, *, url=None, pools="cpu=1,io=1", **env):
        """Start a supervisor as if on this host, and wait until it is ready."""
        return self.start(pools, env=self.env_of(host, url) | env)

    def env_of(self, host, url=None):
        """Return the environment of a supervisor as if on this host."""
        (self.folder / f"host-{host}").mkdir(mode=0o700, exist_ok=True)
        return {
            "JOBPOOL_STORE": url or self.url,
            "JOBPOOL_RUN_DIR": str(self.folder / f"host-{host}"),
            "JOBPOOL_LEASE_TTL": f"{TTL_S:g}s",
            "JOBPOOL_DRAIN": f"{DRAIN_S:g}s",
        }


@pytest.fixture
def url():
    postgres = server()
    url = postgres.store_url(postgres.tcp_url)
    yield url
    postgres.drop(url)


@pytest.fixture
def site(tmp_path, url):
    with SharedSite(tmp_path, url) as site:
        yield site


@pytest.fixture
def proxied():
    with CuttingProxy(server_port()) as proxy:
        yield proxy


def server_port():
    """Return the port of the tests' server."""
    return int(server().tcp_url.rpartition("@")[2].partition("/")[0].rpartition(":")[2])


def test_two_hosts_share_one_queue(site):
    """A host with a free slot takes a job, no job is taken twice, both end cleanly."""
    both = [site.start_on("a"), site.start_on("b")]
    jobs = [site.add("held", {"gate": "open"}) for _ in range(2)]
    for job in jobs:
        site.wait_begun(job)
    assert len({one.pid for one in site.witnesses()}) == 2
    site.open_gate("open")
    assert {job.state for job in site.finish_all(jobs)} == {"succeeded"}
    assert [one.stop() for one in both] == [0, 0]
    assert site.store.open_runs() == []


# -- leases that end, each on a site of its own; most of it is waiting ----------------


@pytest.fixture(scope="module")
def stories(tmp_path_factory):
    """Let leases end in every way, beside each other."""

    def tell(story, folder, url):
        with SharedSite(folder, url) as site, CuttingProxy(server_port()) as proxied:
            story(site, proxied)

    postgres = server()
    urls = {story: postgres.store_url(postgres.tcp_url) for story in ENDING}
    told = {
        story.__name__: partial(tell, story, tmp_path_factory.mktemp("site"), url)
        for story, url in urls.items()
    }
    with side_by_side(told) as begun:
        yield begun
    for url in urls.values():
        postgres.drop(url)


def test_a_killed_host_s_jobs_run_elsewhere_within_the_ttl_and_two_seconds(stories):
    """It cannot be proven dead from another host.

    Its lease expires, and its job is lost.
    """
    stories["a_killed_host"].result()


def test_on_the_same_host_a_silent_run_is_left_alone(stories):
    """It could be proven dead and is not: no other supervisor begins its jobs."""
    stories["a_silent_run_on_the_same_host"].result()


def test_a_stopped_supervisor_runs_nothing_beside_another(stories):
    """It cannot end its jobs itself: its zygote does, before another host begins them.

    Nothing else is charged when it continues: the job was lost exactly once.
    """
    stories["a_stopped_supervisor"].result()


def test_a_supervisor_that_cannot_renew_ends_its_jobs_before_another_host_begins_them(
    stories,
):
    """Cut off beyond its lease, a supervisor kills its child first, and goes on."""
    stories["a_supervisor_that_cannot_renew"].result()


def test_a_fenced_supervisor_ends_on_term(stories):
    """It cannot know that what it gives back is stored: the next start takes it back.

    Until then it does not keep making children in vain.
    """
    stories["a_fenced_supervisor"].result()


def a_killed_host(site, _proxied):
    dying = site.start_on("a")
    job = site.add("held", {"gate": "open"})
    first = site.wait_begun(job)
    other = site.start_on("b")
    with Running() as running:
        dying.kill()
        from_s = time.monotonic()
        (run,) = (one for one in site.store.open_runs() if one.pid == dying.pid)
        wait_until(lambda: len(site.witnesses()) == 2, PATIENCE_S, "the second begin")
        assert time.time() * 1000 >= run.lease_until_ms
        # After a pause in which others could not renew either, it waits for them anew.
        long = [end_s for at_s, end_s in running.pauses() if end_s - at_s > TTL_S / 3]
        assert running.ran_s(max([from_s, *long])) <= TTL_S + 2.0
    assert site.witnesses()[1].token > first.token
    event = other.wait_event("run_reclaimed")
    assert (event["lost"], event["presumed"]) == (1, True)
    site.open_gate("open")
    done = site.finish(job)
    assert (done.state, done.interruptions) == ("succeeded", 1)


def a_silent_run_on_the_same_host(site, _proxied):
    stopped = site.start_on("a")
    job = site.add("held", {"gate": "open"})
    first = site.wait_begun(job)
    other = site.start_on("a")
    stopped.send(signal.SIGSTOP)
    wait_until(site.store.expired_runs, PATIENCE_S, "its lease's end")
    quick = site.add("quick")
    assert site.finish(quick).state == "succeeded"
    assert [one.token for one in site.witnesses() if one.job == job] == [first.token]
    assert not other.events("run_reclaimed")
    stopped.send(signal.SIGCONT)
    event = stopped.wait_event("lease_fenced")
    assert event["ended"] == 1


def a_stopped_supervisor(site, _proxied):
    stopped = site.start_on("a")
    job = site.add("held", {"gate": "open"})
    first = site.wait_begun(job)
    other = site.start_on("b")
    stopped.send(signal.SIGSTOP)
    wait_until(lambda: len(site.witnesses()) == 2, PATIENCE_S, "the second begin")
    assert not is_alive(first.pid)
    assert not site.witnesses("beside")
    stopped.send(signal.SIGCONT)
    stopped.wait_event("lease_fenced")
    site.open_gate("open")
    done = site.finish(job)
    assert (done.state, done.interruptions, done.crashes) == ("succeeded", 1, 0)
    assert [one.stop() for one in (stopped, other)] == [0, 0]


def a_supervisor_that_cannot_renew(site, proxied):
    cut_off = site.start_on("a", url=proxied.url(site.url))
    job = site.add("held", {"gate": "open"})
    first = site.wait_begun(job)
    site.start_on("b")
    proxied.refuse()
    proxied.cut()
    event = cut_off.wait_event("lease_fenced")
    assert (event["ended"], event["lapsed"]) == (1, False)
    wait_until(lambda: not Path(f"/proc/{first.pid}").exists(), PATIENCE_S, "its death")
    wait_until(lambda: len(site.witnesses()) == 2, PATIENCE_S, "the second begin")
    assert not site.witnesses("beside")
    proxied.heal()
    assert cut_off.wait_event("stale_settlement")["id"] == job
    assert cut_off.wait_event("lease_regained")
    again = site.add("quick")
    assert site.finish(again).state == "succeeded"
    site.open_gate("open")
    done = site.finish(job)
    assert (done.state, done.recoveries, done.interruptions) == ("succeeded", 0, 1)


def a_fenced_supervisor(site, proxied):
    cut_off = site.start_on("a", url=proxied.url(site.url))
    job = site.add("held", {"gate": "open"})
    first = site.wait_begun(job)
    proxied.refuse()
    cut_off.wait_event("lease_fenced")
    wait_until(lambda: not is_alive(first.pid), PATIENCE_S, "its child's death")
    with Running() as running:
        assert cut_off.stop(signal.SIGTERM) == 1
        assert running.ran_s() < DRAIN_S + 2.0 + BUSY_MACHINE_S
    # One more if leases were being asked for: that answer is unknown, too.
    assert cut_off.wait_event("supervisor_stopped")["leases_held"] in {1, 2}
    assert [e for e in cut_off.events("alarm") if "be started" in e["text"]] == []
    site.wait_nobody()
    assert site.job(job).state == "leased"
    site.open_gate("open")
    site.start_on("a")
    done = site.finish(job)
    assert (done.state, done.failures, done.crashes) == ("succeeded", 0, 0)
    assert [one.token > first.token for one in site.witnesses()] == [False, True]


ENDING = (
    a_killed_host,
    a_silent_run_on_the_same_host,
    a_stopped_supervisor,
    a_supervisor_that_cannot_renew,
    a_fenced_supervisor,
)

# -- everything else ------------------------------------------------------------------


def test_on_the_same_host_a_run_is_proven_dead_at_once(site):
    """If its run directory is visible, no lease has to expire."""
    dying = site.start_on("a")
    job = site.add("held", {"gate": "open"})
    site.wait_begun(job)
    other = site.start_on("a")
    dying.kill()
    with Running() as running:
        wait_until(lambda: len(site.witnesses()) == 2, PATIENCE_S, "the second begin")
        assert running.ran_s() < TTL_S - 1.0
    assert other.wait_event("run_reclaimed", presumed=False)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGQUIT, signal.SIGINT])
def test_a_start_that_waits_for_its_store_can_be_ended(site, proxied, signum):
    """It handles signals before there is a store, or an answer from one."""
    if signum == signal.SIGTERM:
        proxied.black_hole()
    else:
        proxied.accept_no_more()
    flags = ("--pools", "cpu=1,io=1", "--log-format", "json")
    supervisor = site.launch(*flags, env=site.env_of("a", proxied.url(site.url)))
    if signum == signal.SIGTERM:
        wait_until(lambda: proxied.open_connections, PATIENCE_S, "its connection")
    else:
        supervisor.wait_event("store_trouble")
    with Running() as running:
        assert supervisor.stop(signum) == 0
        assert running.ran_s() < DRAIN_S + 2.0 + BUSY_MACHINE_S
    how = "stopped" if signum == signal.SIGQUIT else "drained"
    assert supervisor.wait_event("supervisor_stopped", how=how)
    assert not list((site.folder / "host-a").iterdir())


def test_an_outage_shorter_than_the_ttl_ends_no_job(site, proxied):
    """Running jobs go on; ends during the outage are written when the store is back."""
    # Much longer: the machine may stand still as well.
    ttl = {"JOBPOOL_LEASE_TTL": "30s"}
    supervisor = site.start_on("a", url=proxied.url(site.url), **ttl)
    job = site.add("held", {"gate": "open"})
    site.wait_begun(job)
    proxied.refuse()
    proxied.cut()
    # Not its trouble: a commit that was cut is asked for before that is said.
    assert "cannot be renewed" in supervisor.wait_event("alarm")["text"]
    site.open_gate("open")
    wait_until(lambda: site.witnesses("ended"), PATIENCE_S, "the handler's end")
    proxied.heal()
    done = site.finish(job)
    assert (done.state, done.attempt) == ("succeeded", 1)
    assert not supervisor.events("lease_fenced")
    assert not supervisor.events("stale_settlement")


def test_a_wake_up_reaches_a_supervisor_through_the_database(site):
    """A job is picked up long before the next poll of an idle supervisor."""
    site.start_on("a")
    jobs = [site.finish(site.add("quick")) for _ in range(8)]
    assert {job.state for job in jobs} == {"succeeded"}
    waits_ms = [job.started_at_ms - job.created_at_ms for job in jobs[3:]]
    assert sorted(waits_ms)[2] < 500


def test_a_database_that_comes_up_later_is_waited_for(site, proxied):
    """The wait is logged once.

    A start does not fail because the database comes up later.
    """
    proxied.accept_no_more()
    supervisor = site.launch(
        *("--pools", "cpu=1,io=1", "--log-format", "json"),
        env=site.env_of("a", proxied.url(site.url)),
    )
    wait_until(
        lambda: supervisor.events("store_trouble"), PATIENCE_S, "the trouble is said"
    )
    proxied.heal()
    supervisor.wait_ready()
    assert len(supervisor.events("store_trouble")) == 1
    assert len(supervisor.events("store_back")) == 1


def test_a_reload_keeps_its_leases(site):
    """It enters its run again, once for each reload, and renews as before."""
    supervisor = site.start_on("one", pools="cpu=2,io=1")
    held = site.add("held", {"gate": "open"})
    site.wait_begun(held)
    for _ in range(2):
        seen = len(supervisor.events("pool_reloaded"))
        supervisor.send(signal.SIGHUP)
        wait_until(
            lambda seen=seen: len(supervisor.events("pool_reloaded")) == seen + 2,
            PATIENCE_S,
            "both pools are reloaded",
        )
    assert site.finish(site.add("quick")).state == "succeeded"
    site.open_gate("open")
    assert (site.finish(held).state, site.job(held).attempt) == ("succeeded", 1)
    assert supervisor.stop() == 0
