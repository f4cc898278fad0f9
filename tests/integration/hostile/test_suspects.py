"""Jobs that kill their host, and innocents beside them; kinds that crash in a row."""

import json
import signal
from functools import partial

import pytest

from support.site.supervising import PATIENCE_S, Site
from support.waiting import side_by_side, wait_until


def has_noted(site):
    """Say whether the one open run has recorded that it is leaving."""
    (run,) = site.store.open_runs()
    return site.store.note_death(run.id, 0).leaving


APP = """
@jobs.job("cpu", kind="innocent", retry=AT_ONCE)
def innocent(gate: str):
    hold(gate)


@jobs.job("cpu", kind="killer")
def killer(gate: str):
    hold(gate)
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(1000)


@jobs.job("cpu", kind="hider")
def hider():
    for fd in os.listdir("/proc/self/fd"):
        try:
            if "/mark." in os.readlink(f"/proc/self/fd/{fd}"):
                os.ftruncate(int(fd), 0)
        except FileNotFoundError:
            continue
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(1000)


@jobs.job("cpu", kind="late")
def late():
    began_s = time.monotonic()
    time.sleep(2.3)  # before twice its probation is over
    with open(HERE / "strikes", "a") as file:
        file.write(f"{time.monotonic() - began_s}\\n")
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(1000)


@jobs.job("cpu", kind="segfault", max_crashes=1)
def crash():
    segfault()


@jobs.job("cpu", kind="fine")
def fine():
    return 1


@jobs.job("io", kind="aside")
def aside():
    return 1


@jobs.job("cpu", kind="mended", retry=AT_ONCE, max_crashes=9)
def mended():
    if not (HERE / "mended").exists():
        segfault()
"""
FIRST = "2s"
"""The probation of killers that are found out."""
CONFIG = """
[pools.cpu]
sandbox = "off"
recycle = 1
"""


@pytest.fixture
def site(tmp_path):
    with Site(tmp_path, APP, config=CONFIG) as site:
        yield site


# -- jobs that kill their host, each on a site of its own; most of it is waiting ------


@pytest.fixture(scope="module")
def striking(tmp_path_factory):
    """Let all killers strike, beside each other; return what finds each out."""

    def find_out(kind, folder):
        with Site(folder, APP, config=CONFIG) as site:
            FOUND_OUT[kind](site)

    stories = {
        kind: partial(find_out, kind, tmp_path_factory.mktemp(kind))
        for kind in FOUND_OUT
    }
    with side_by_side(stories) as begun:
        yield begun


def test_innocents_beside_a_host_killer_are_not_charged(striking):
    """Only the killer is charged. It is set aside after a bounded number of deaths."""
    striking["killer"].result()


def test_a_job_that_kills_its_host_after_its_probation_is_found_out(striking):
    """It is cleared once.

    Then its probation is longer, it runs alone, and is charged.
    """
    striking["late"].result()


def test_a_job_that_hides_that_it_runs_and_kills_its_host_is_found_out(striking):
    """Without its mark every leased job may have begun. Soon it runs alone."""
    striking["hider"].result()


def innocents_beside_a_killer(site):
    killer = site.add("killer", {"gate": "kill"})
    innocents = site.add_many("innocent", [{"gate": "end"}] * 3)
    supervisor = site.start("cpu=4")
    for job_id in (killer, *innocents):
        site.wait_begun(job_id)
    site.open_gate("kill")
    deaths = 0
    while site.job(killer).state != "quarantined":
        deaths += supervisor.wait_exit() == -signal.SIGKILL
        assert deaths <= 8
        supervisor = site.launch(
            *("--pools", "cpu=4", "--log-format", "json"),
            env={"JOBPOOL_PROBATION": "2s"},
            nursed=True,
        )
        wait_until(
            lambda s=supervisor: (
                s.process.poll() is not None or site.job(killer).finished_at_ms
            ),
            PATIENCE_S,
            "another death, or the killer's quarantine",
        )
    assert deaths in {7, 8}, "8: it began beside others the first time"
    site.open_gate("end")
    for job in site.finish_all(innocents):
        charged = (job.state, job.recoveries, job.crashes, job.failures)
        assert charged == ("succeeded", 0, 0, 0)
        assert job.interruptions <= deaths - 5
    job = site.job(killer)
    assert (job.recoveries, job.interruptions, job.crashes) == (5, deaths - 5, 0)
    assert "lost 5 times alone" in job.reason
    assert site.store.suspects() == []


def require_found_out(site, kind):
    """Let a host killer run beside innocents until it alone is set aside."""
    killer = site.add(kind)
    innocents = site.add_many("innocent", [{"gate": "end"}] * 2)
    deaths = 0
    while site.job(killer).state != "quarantined":
        supervisor = site.launch(
            *("--pools", "cpu=4", "--log-format", "json"),
            env={"JOBPOOL_PROBATION": FIRST},
            nursed=True,
        )
        wait_until(
            lambda s=supervisor: (
                s.process.poll() is not None or site.job(killer).finished_at_ms
            ),
            PATIENCE_S,
            "another death, or the killer's quarantine",
        )
        deaths += supervisor.process.poll() == -signal.SIGKILL
        assert deaths <= 9 + late_strikes(site)
    assert site.job(killer).recoveries == 5
    site.open_gate("end")
    for job in site.finish_all(innocents):
        charged = (job.state, job.recoveries, job.crashes, job.failures)
        assert charged == ("succeeded", 0, 0, 0)
        assert job.interruptions <= deaths - 5


def late_strikes(site):
    """Return how often a machine that stood still made it strike too late.

    It may be cleared once more each time.
    """
    path = site.folder / "strikes"
    strikes = path.read_text().split() if path.exists() else []
    return sum(float(ran_s) > 3.0 for ran_s in strikes)


FOUND_OUT = {
    "killer": innocents_beside_a_killer,
    "late": lambda site: require_found_out(site, "late"),
    "hider": lambda site: require_found_out(site, "hider"),
}


def test_suspects_run_one_at_a_time_until_they_are_cleared(site):
    """After two kills from outside: the second begins when the first is cleared."""
    ids = site.add_many("innocent", [{"gate": "end"}] * 2)
    for _ in range(2):
        supervisor = site.start("cpu=4")
        for job_id in ids:
            site.wait_begun(job_id)
        supervisor.kill()
        (site.folder / "witness").unlink()
    between = site.start("io=1")  # which takes them back and cannot clear them
    suspected = [between.wait_event("job_suspected", id=job_id) for job_id in ids]
    assert {one["recoveries"] for one in suspected} == {0}
    (status,) = site.cli("status")
    assert [one["id"] for one in status["suspects"]] == ids
    assert between.stop() == 0
    later = site.start("cpu=4", env={"JOBPOOL_PROBATION": "1s"})
    for job_id in ids:
        later.wait_event("job_cleared", id=job_id)
        site.wait_begun(job_id)
    cleared = [one["id"] for one in later.events("job_cleared")]
    assert [one.job for one in site.witnesses()] == cleared
    first_cleared, second_began = (
        later.said().index(f'"job_cleared","id":{cleared[0]}'),
        later.said().index(f'"job_cleared","id":{cleared[1]}'),
    )
    assert first_cleared < second_began
    site.open_gate("end")
    for job in site.finish_all(ids):
        assert (job.recoveries, job.interruptions) == (0, 2)


def test_a_supervisor_that_is_killed_while_it_drains_makes_no_suspects(site):
    """Its end was requested, which explains the death."""
    (job_id,) = site.add_many("innocent", [{"gate": "end"}])
    for _ in range(3):
        supervisor = site.start("cpu=1")
        site.wait_begun(job_id)
        supervisor.send(signal.SIGTERM)
        supervisor.wait_event("supervisor_draining")
        wait_until(lambda: has_noted(site), PATIENCE_S, "its note in the store")
        supervisor.kill()
        (site.folder / "witness").unlink()
    site.open_gate("end")
    last = site.start("cpu=1")
    job = site.finish(job_id)
    assert (job.state, job.recoveries) == ("succeeded", 0)
    assert last.events("job_suspected") == []


def test_a_kind_that_crashes_repeatedly_is_held_and_others_go_on(site):
    """Of many jobs only a few are charged. A restart remembers.

    An operator can resume it.
    """
    env = {"JOBPOOL_BREAKER_AFTER": "3"}
    crashing = site.add_many("segfault", [None] * 60)
    first = site.start("cpu=2", env=env)
    first.wait_event("kind_slowed", kind="segfault")
    assert site.finish(site.add("fine")).state == "succeeded"
    first.wait_event("kind_slowed", crashes=5)
    assert first.stop() == 0
    (status,) = site.cli("status")
    (held,) = status["crashing_kinds"]
    assert (held["kind"], held["state"]) == ("segfault", "slowed")
    second = site.start("cpu=2", env=env)
    assert site.finish(site.add("fine")).state == "succeeded"
    states = [site.job(job_id).state for job_id in crashing]
    assert states.count("quarantined") <= 8
    assert second.events("kind_resumed") == []
    (done,) = site.cli("resume", "--kind", "segfault")
    assert done["changed"]
    second.wait_event("kind_resumed", kind="segfault")


def test_a_successful_trial_closes_the_breaker(site):
    """Once the application is repaired, the next trial resumes the kind."""
    ids = site.add_many("mended", [None] * 6)
    supervisor = site.start("cpu=2", env={"JOBPOOL_BREAKER_AFTER": "2"})
    supervisor.wait_event("kind_slowed", kind="mended")
    site.open_gate("mended")
    supervisor.wait_event("kind_resumed", kind="mended")
    assert {job.state for job in site.finish_all(ids)} == {"succeeded"}
    wait_until(lambda: site.store.breakers() == [], PATIENCE_S, "the row's end")
    assert json.dumps(site.cli("status")[0]["crashing_kinds"]) == "[]"
