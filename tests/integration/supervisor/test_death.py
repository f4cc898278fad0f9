"""Sudden death of a supervisor, a zygote or a child, at any time."""

import json
import os
import random
import signal
import time
from collections import Counter

import pytest

from support.site.supervising import PATIENCE_S, Site, is_alive
from support.waiting import wait_until

SOON_S = 2.0
"""The promise: nothing is left, and jobs are taken back, within this time."""
LATE_S = 20.0
"""What these tests allow, because a busy machine can be slow to start Python."""
APP = """
@jobs.job("cpu", kind="work", max_attempts=3)
def work(seconds: float):
    witness("began")
    time.sleep(seconds)
    witness("ended")
    return current().token


@jobs.job("io", kind="work.io", max_attempts=3)
def work_io(seconds: float):
    witness("began")
    time.sleep(seconds)
    witness("ended")


@jobs.job("cpu", kind="hold", retry=AT_ONCE)
def wait_at(gate: str):
    hold(gate)
    return os.getpid()


@jobs.job("cpu", kind="family")
def family(gate: str):
    for _ in range(2):
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
    hold(gate)


@jobs.job("cpu", kind="pid")
def pid():
    return os.getpid()


@jobs.job("cpu", kind="killer")
def killer():
    witness()
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(1000)


@jobs.job("cpu", kind="once", rerun="never")
def once(gate: str):
    hold(gate)
"""


CONFIG = """
lease_ttl = "1s"

[pools.io]
size = 1
"""


@pytest.fixture
def site(tmp_path):
    with Site(tmp_path, APP, config=CONFIG) as site:
        yield site


def test_jobs_survive_kill_9_at_any_time(site):
    """No job is lost or settled twice.

    Only jobs that had begun are charged when they rerun.
    """
    rng = random.Random(4711)
    ids = site.add_many(
        "work", [{"seconds": rng.choice([0, 0, 0.01])} for _ in range(400)]
    )
    ids += site.add_many(
        "work.io", [{"seconds": rng.choice([0, 0.02])} for _ in range(400)], pool="io"
    )
    for _ in range(5):
        supervisor = site.start("cpu=2,io=3")
        time.sleep(rng.random() * 0.3)
        supervisor.kill()
        site.wait_nobody(LATE_S)
    last = site.start("cpu=2,io=3")
    jobs = site.finish_all(ids)
    assert {job.state for job in jobs} == {"succeeded"}
    begun, ended = site.witnesses("began"), site.witnesses("ended")
    assert {one.job for one in ended} == set(ids)
    assert max(Counter(one.token for one in begun).values()) == 1
    # What had ended but was not settled yet at a kill runs again as well.
    losses = {job.id: len(site.store.attempts(job.id)) for job in jobs}
    assert len(begun) - len(ids) <= sum(losses.values())
    runs = Counter(one.job for one in begun)
    last_token = {one.job: one.token for one in ended}
    for job in jobs:
        assert 1 <= runs[job.id] <= job.attempt == 1 + losses[job.id]
        assert (job.failures, job.crashes) == (0, 0)
        assert job.recoveries + job.interruptions <= losses[job.id]
        if job.kind == "work":
            assert json.loads(job.result) == last_token[job.id]
    assert last.events("stale_settlement") == []


def test_a_dead_supervisors_jobs_are_taken_back_at_once(site):
    """The next start proves the old run dead and runs its jobs within 2 s."""
    first = site.start("cpu=2")
    job_id = site.add("hold", {"gate": "open"})
    child = site.wait_begun(job_id).pid
    first.kill()
    site.wait_nobody(LATE_S)
    assert not is_alive(child)
    assert site.job(job_id).state == "leased"
    second = site.start("cpu=2")
    began = time.monotonic()
    reclaimed = second.wait_event("run_reclaimed")
    assert time.monotonic() - began < LATE_S
    assert (reclaimed["lost"], reclaimed["pid"]) == (1, first.pid)
    site.open_gate("open")
    job = site.finish(job_id)
    assert (job.state, job.attempt, job.recoveries) == ("succeeded", 2, 0)
    assert job.interruptions == 1
    (attempt,) = site.store.attempts(job_id)
    assert attempt.outcome == "lost"
    assert attempt.token < max(one.token for one in site.witnesses())
    names = [path.name for path in (site.folder / "jobpool.db.run").iterdir()]
    assert len(names) == 1
    assert attempt.supervisor not in names


def test_jobs_that_had_not_begun_are_handed_back_free(site):
    """Only jobs that were running at the kill are charged an interruption."""
    first = site.start("cpu=1")
    running = site.add("hold", {"gate": "open"})
    site.wait_begun(running)
    waiting = site.add_many("pid", [None] * 10)
    first.kill()
    site.open_gate("open")
    site.start("cpu=1")
    for job in site.finish_all(waiting):
        assert (job.attempt, job.interruptions) == (1, 0)
    assert site.finish(running).interruptions == 1


def test_survivors_of_supervisor_and_zygote_are_ended_before_a_restart(site):
    """When both are killed no process ends the children.

    The next start does it first.
    """
    first = site.start("cpu=1")
    job_id = site.add("family", {"gate": "never"})
    child = site.wait_begun(job_id).pid
    for pid in (*site.zygotes(first), first.pid):
        os.kill(pid, signal.SIGKILL)
    first.process.wait()
    old = [pid for pid in site.processes() if pid != child] + [child]
    second = site.start("cpu=1")
    again = wait_until(
        lambda: [one for one in site.witnesses() if one.pid != child],
        PATIENCE_S,
        "the second attempt",
    )
    assert [pid for pid in old if is_alive(pid)] == []
    assert again[0].attempt == 2
    assert second.wait_event("run_reclaimed")["killed"] >= 3


def test_a_zygotes_death_harms_no_job(site):
    """Running jobs go on, and later ones get children of the next zygote."""
    supervisor = site.start("cpu=2,io=1")
    job_id = site.add("hold", {"gate": "open"})
    child = site.wait_begun(job_id).pid
    zygotes = site.wait_zygotes(supervisor, 2)
    for pid in zygotes:
        os.kill(pid, signal.SIGKILL)
    for name in ("cpu", "io"):
        supervisor.wait_event("zygote_failed", pool=name)
    wait_until(
        lambda: len(set(site.zygotes(supervisor)) - set(zygotes)) == 2,
        PATIENCE_S,
        "new zygotes",
    )
    assert is_alive(child)
    site.open_gate("open")
    assert site.result(job_id) == child
    for pid in {site.result(site.add("pid")) for _ in range(4)}:
        os.kill(pid, signal.SIGKILL)
    assert site.result(site.add("pid")) > 0
    assert site.job(job_id).attempt == 1


DAEMON = """
daemon = os.fork()
if daemon == 0:
    os.setsid()
    time.sleep(600)
    os._exit(0)
(HERE / "daemon").write_text(str(daemon))
"""
DEADLY_FORK = """
really_fork, zygote = os.fork, os.getpid()


def fork():
    # Between the two is another process: it ends the zygote once the child, which
    # holds all sockets, is made; the first time.
    pid = really_fork()
    if pid == 0:
        for name in os.listdir("/proc/self/fd"):
            try:
                os.dup(int(name))
            except OSError:
                pass
    elif os.getppid() == zygote and not (HERE / "died").exists():
        (HERE / "died").touch()
        time.sleep(0.2)
        os.kill(zygote, signal.SIGKILL)
    return pid


os.fork = fork
"""
STRICT_CLOSE = """
really_close = os.close


def close(fd):
    if fd < 0:
        raise ValueError(f"no descriptor: {fd}")
    really_close(fd)


os.close = close
"""


def extend(site, text):
    """Add to the application, before anything of it has been loaded."""
    path = site.folder / "jobs.py"
    path.write_text(path.read_text() + text)


def test_a_zygotes_death_is_seen_while_another_process_holds_its_socket(site):
    """A daemon of the application may keep its socket open.

    Its death is still noticed.
    """
    extend(site, DAEMON)
    supervisor = site.start("cpu=1")
    assert site.result(site.add("pid")) > 0
    daemon = int((site.folder / "daemon").read_text())
    (zygote,) = site.zygotes(supervisor)
    os.kill(zygote, signal.SIGKILL)
    supervisor.wait_event("zygote_failed", LATE_S)
    child = site.result(site.add("pid"))
    os.kill(child, signal.SIGKILL)
    assert site.result(site.add("pid")) != child
    wait_until(lambda: not is_alive(daemon), LATE_S, "the daemon's end")
    supervisor.send(signal.SIGTERM)
    assert supervisor.wait_exit(LATE_S) == 0


def test_a_zygote_may_die_between_a_fork_and_its_announcement(site):
    """The child that was never announced ends, and the slot gets another one."""
    extend(site, DEADLY_FORK)
    supervisor = site.start("cpu=1")
    supervisor.wait_event("zygote_failed", LATE_S)
    assert site.result(site.add("pid")) > 0
    wait_until(  # but for the zygote and the child
        lambda: len(site.processes()) <= 2, LATE_S, "the unannounced child's end"
    )
    supervisor.send(signal.SIGTERM)
    assert supervisor.wait_exit(LATE_S) == 0
    site.wait_nobody(LATE_S)


def test_an_application_may_replace_os_close(site):
    """An os.close that rejects invalid descriptors never receives one of ours."""
    extend(site, STRICT_CLOSE)
    supervisor = site.start("cpu=1")
    assert site.result(site.add("pid")) > 0
    assert supervisor.events("zygote_failed") == []


def test_a_childs_death_is_a_crash_of_its_own_job_only(site):
    """Killed from outside: one job is charged, its neighbour is not."""
    site.start("cpu=2")
    one, other = site.add("hold", {"gate": "open"}), site.add("hold", {"gate": "open"})
    os.kill(site.wait_begun(one).pid, signal.SIGKILL)
    (attempt,) = site.attempts(one)
    assert (attempt.outcome, attempt.signal) == ("crashed", 9)
    assert "jobpool did not send it" in attempt.reason
    site.open_gate("open")
    assert (site.finish(one).attempt, site.job(one).crashes) == (2, 1)
    assert (site.finish(other).attempt, site.job(other).crashes) == (1, 0)


def test_an_idle_childs_death_is_charged_to_no_job(site):
    """It is reported and replaced; no job is charged."""
    supervisor = site.start("cpu=1")
    pid = site.result(site.add("pid"))
    os.kill(pid, signal.SIGKILL)
    supervisor.wait_event("alarm")
    job = site.finish(site.add("pid"))
    assert (job.state, job.attempt) == ("succeeded", 1)


def test_a_stopped_supervisor_keeps_its_jobs(site):
    """SIGSTOP is not death: another supervisor must not start its jobs again."""
    first = site.start("cpu=1")
    job_id = site.add("hold", {"gate": "open"})
    site.wait_begun(job_id)
    first.send(signal.SIGSTOP)
    second = site.start("cpu=1")
    later = site.add("pid")
    assert site.finish(later).state == "succeeded"
    wait_until(
        lambda: site.job(job_id).lease_until_ms + 1500 < time.time() * 1000,
        PATIENCE_S,
        "an end of the lease that is well over",
    )
    assert site.job(job_id).state == "leased"
    assert len(site.witnesses()) == 1
    assert second.events("run_reclaimed") == []
    site.open_gate("open")
    first.send(signal.SIGCONT)
    job = site.finish(job_id)
    assert (job.state, job.attempt) == ("succeeded", 1)


def test_a_job_that_kills_its_supervisor_ends_in_quarantine(site):
    """Guarantee 4: two deaths make it a suspect, the next five are charged to it.

    Without a sandbox: within one a job cannot signal its supervisor.
    """
    (site.folder / "jobpool.toml").write_text(
        '[pools.cpu]\nsandbox = "off"\n[pools.io]\n'
    )
    job_id = site.add("killer")
    for _ in range(7):
        supervisor = site.launch(
            *("--pools", "cpu=1", "--log-format", "json"), nursed=True
        )
        assert supervisor.wait_exit() == -signal.SIGKILL
    last = site.start("cpu=1")
    job = site.finish(job_id)
    assert (job.state, job.recoveries, job.failures) == ("quarantined", 5, 0)
    assert "lost 5 times" in job.reason
    last.wait_event("job_quarantined", id=job_id)


def test_an_at_most_once_job_is_dead_after_a_loss(site):
    """With rerun="never" an attempt whose end is unknown is never repeated."""
    first = site.start("cpu=1")
    job_id = site.add("once", {"gate": "never"})
    site.wait_begun(job_id)
    first.kill()
    site.start("cpu=1")
    job = site.finish(job_id)
    assert (job.state, job.attempt) == ("dead", 1)
    assert 'rerun="never"' in job.reason
    assert len(site.witnesses()) == 1


def test_a_kill_while_starting_leaves_no_process(site):
    """At any point of its start."""
    for delay_s in (0.2, 0.4, 0.5, 0.6, 0.7):
        supervisor = site.launch("--pools", "cpu=2,io=2", "--log-format", "json")
        time.sleep(delay_s)
        supervisor.kill()
        site.wait_nobody(LATE_S)
    site.start("cpu=1")
    assert site.result(site.add("pid")) > 0


@pytest.mark.parametrize("preload", [True, False])
def test_a_kill_during_a_hanging_import_leaves_no_process(site, preload):
    """An importing zygote receives no messages, but ends with its supervisor."""
    if not preload:
        (site.folder / "jobpool.toml").write_text("[pools.cpu]\npreload = false\n")
    (site.folder / "jobs.py").write_text(
        "import pathlib, time\npathlib.Path('loading').touch()\ntime.sleep(600)\n"
    )
    supervisor = site.launch("--pools", "cpu=1", "--log-format", "json")
    loading = site.folder / "loading"
    wait_until(loading.exists, PATIENCE_S, "the application's import")
    supervisor.kill()
    site.wait_nobody(LATE_S)
