"""Two versions of an application at once: a job goes to the one that it fits."""

import json
import signal

from support.site.supervising import PATIENCE_S, PRELUDE, Site
from support.waiting import wait_until

OLD = """
@jobs.job("cpu", kind="greet", max_attempts=1)
def greet(name: str):
    return [name]


@jobs.on_dead
def died(job):
    with open(HERE / "hooks", "a") as file:
        print("dead", job.id, job.reason, file=file)
"""
NEW = """
@jobs.job("cpu", kind="greet", max_attempts=1)
def greet(name: str, title: str = ""):
    return [name, title]
"""
NEWER = {"name": "Ada", "title": "Countess"}


def test_a_job_with_a_new_argument_waits_for_the_new_version(tmp_path):
    """It is not charged. `show` says what it waits for, and the log says it once."""
    with Site(tmp_path, OLD) as site:
        old = site.start("cpu=1")
        job_id = site.add("greet", NEWER)
        said = old.wait_event("job_unfit", id=job_id)
        assert (said["level"], said["unknown_for_s"]) == ("warning", 600.0)
        assert "do not fit greet: unknown argument 'title'" in said["reason"]
        job = site.job(job_id)
        assert (job.state, job.attempt, job.failures) == ("pending", 0, 0)
        (status,) = site.cli("status")
        assert [(one["kind"], one["jobs"]) for one in status["misfits"]] == [
            ("greet", 1)
        ]
        assert site.finish(site.add("greet", {"name": "Bob"})).state == "succeeded"
        (tmp_path / "new.py").write_text(PRELUDE + NEW)
        site.start("cpu=1", "--app", "new.py")
        job = site.finish(job_id)
        assert (job.state, job.attempt, job.failures) == ("succeeded", 1, 0)
        assert json.loads(job.result) == ["Ada", "Countess"]
        assert len(old.events("job_unfit", id=job_id)) == 1
        # While both live the new version's jobs are found by trial, and none is lost.
        ids = site.add_many("greet", [NEWER] * 8)
        assert {job.state for job in site.finish_all(ids)} == {"succeeded"}
        assert old.events("job_dead") == []


def test_a_job_that_fits_no_version_is_dead_after_unknown_for(tmp_path):
    """With the reason, the hook, and a log line that names it; not before."""
    with Site(tmp_path, OLD, config='unknown_for = "1s"\n') as site:
        old = site.start("cpu=1")
        job_id = site.add("greet", {"name": 5})
        job = site.finish(job_id)
        assert (job.state, job.attempt, job.failures) == ("dead", 1, 1)
        assert "stored arguments do not fit greet" in job.reason
        assert "waits for" not in job.reason
        dead = old.wait_event("job_dead", id=job_id)
        assert dead["reason"] == job.reason
        assert len(old.events("job_unfit", id=job_id)) == 1
        hooks = tmp_path / "hooks"
        wait_until(
            lambda: hooks.exists() and hooks.read_text().endswith("\n"),
            PATIENCE_S,
            "the hook",
        )
        assert hooks.read_text().splitlines() == [f"dead {job_id} {job.reason}"]


FAILING = """
@jobs.job("cpu", kind="fail", max_attempts=1)
def fail():
    raise ValueError("no")
"""


def test_what_failed_since_a_deployment_can_be_told(tmp_path):
    """Supervisors and unsuccessful attempts bear it; a reload has another one."""
    with Site(tmp_path, FAILING) as site:
        supervisor = site.start("cpu=1")
        before = _failed_version(site)
        (tmp_path / "jobs.py").write_text(PRELUDE + FAILING + "# fixed\n")
        supervisor.send(signal.SIGHUP)
        supervisor.wait_event("pool_reloaded")
        wait_until(lambda: _shown(site) != before, PATIENCE_S, "the new version")
        after = _failed_version(site)
        assert after == _shown(site)
        assert after != before
        assert len(after) == len(before) == 12
        supervisor.stop()
        site.start("cpu=1", "--app-version", "v2.1")
        assert _shown(site) == _failed_version(site) == "v2.1"


def _shown(site):
    (status,) = site.cli("status")
    (supervisor,) = status["supervisors"]
    assert supervisor["application"] == "jobs.py"
    return supervisor["app_version"]


def _failed_version(site):
    (shown,) = site.cli("show", site.finish(site.add("fail")).id)
    (attempt,) = shown["attempts"]
    return attempt["app_version"]
