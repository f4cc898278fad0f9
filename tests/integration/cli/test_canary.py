"""Canaries: some jobs are revived, and the rest only once those have ended well.

Against a real supervisor, whose jobs fail while a file is there.
"""

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from jobpool.store.records.operating import AuditFilter
from support.site.supervising import PATIENCE_S, Site
from support.waiting import wait_until

APP = """
@jobs.job("cpu", kind="mend", max_attempts=1, max_crashes=1)
def mend(gate: str = ""):
    witness()
    if (HERE / "broken").exists():
        raise ConnectionError("the vendor is down")
    if (HERE / "crash").exists():
        segfault()
    if gate:
        hold(gate)
    witness("ended")
"""


@pytest.fixture
def site(tmp_path):
    with Site(tmp_path, APP) as site:
        yield site


def fail_all(site, count, how="broken", **arguments):
    """Have so many jobs ended badly, by a real attempt each; then nothing is wrong."""
    (site.folder / how).touch()
    ids = site.add_many("mend", [arguments] * count)
    site.start("cpu=2")
    site.finish_all(ids)
    (site.folder / how).unlink()
    return ids


def command(site, *words):
    return subprocess.Popen(
        [sys.executable, "-m", "jobpool", *words, "--store", site.url],
        cwd=site.folder,
        env={k: v for k, v in os.environ.items() if not k.startswith("JOBPOOL_")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(site, *words):
    """Run a command to its end; return its code, output and errors."""
    process = command(site, *words)
    out, err = process.communicate(timeout=2 * PATIENCE_S)  # with its jobs' attempts
    return process.returncode, out, err


def states(site, ids):
    return [site.job(job_id).state.value for job_id in ids]


def audit(site):
    return site.store.audits(AuditFilter())


def test_the_rest_follows_once_the_canaries_have_ended_well(site):
    """The oldest first, and none of the others beside them."""
    ids = fail_all(site, 6)
    (site.folder / "witness").unlink()
    code, out, err = ended(
        site, "retry", "--kind", "mend", "--canary", "2", "--note", "it is up again"
    )
    assert (code, out) == (0, "6 of 6 jobs retried\n")
    assert "canaries: 2 of 2 have ended, 0 failed; 4 jobs wait for them" in err
    site.finish_all(ids)
    assert states(site, ids) == ["succeeded"] * 6
    lines = (site.folder / "witness").read_text().splitlines()
    words = [line.split()[:2] for line in lines]
    canaries = {str(job_id) for job_id in ids[:2]}
    assert {job for what, job in words[:4]} == canaries
    (row,) = audit(site)
    assert (row.jobs, row.note) == (6, "it is up again")
    target = json.loads(row.target)
    assert (target["canary"], target["stop_after_failures"]) == (2, 1)


@pytest.mark.parametrize(
    ("verb", "how", "state"),
    [("retry", "broken", "dead"), ("release", "crash", "quarantined")],
)
def test_too_many_failures_stop_it(site, verb, how, state):
    """The rest has not moved; the failures are named, and the same command goes on."""
    ids = fail_all(site, 6, how)
    (site.folder / how).touch()
    words = (verb, "--kind", "mend", "--canary", "3", "--stop-after-failures", "2")
    code, out, err = ended(site, *words)
    assert code == 1
    assert (
        out == "3 of 6 jobs " + {"retry": "retried", "release": "released"}[verb] + "\n"
    )
    # Any two may be the first; the third may have ended before they were looked at.
    failed = re.findall(rf"failed: job (\d+) is {state}: ", err)
    assert {*map(int, failed)} <= {*ids[:3]}
    said = f"{len(failed)} of 3 canaries failed; 3 jobs stayed as they were"
    assert said in err
    assert len(failed) in {2, 3}
    site.finish_all(ids)
    assert [site.job(job_id).attempt for job_id in ids] == [2, 2, 2, 1, 1, 1]
    assert [row.jobs for row in audit(site)] == [3]
    (site.folder / how).unlink()
    code, out, _ = ended(site, *words)
    assert (code, out.partition(" ")[0]) == (0, "6")
    site.finish_all(ids)
    assert states(site, ids) == ["succeeded"] * 6


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGKILL])
def test_a_command_that_is_killed_while_it_waits_loses_nothing(site, signum):
    """The rest was not revived, and has a row that says so."""
    ids = fail_all(site, 4, gate="open")
    process = command(site, "retry", *map(str, ids), "--canary", "1", "--json")
    site.in_state(ids[0], "leased")
    site.wait_begun(ids[0])
    said = process.stderr.readline()  # it has noted what it has done, and waits
    process.send_signal(signum)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert said.startswith("canaries: 0 of 1 have ended")
    assert out == ""
    if signum == signal.SIGINT:
        assert process.returncode == 130
        assert "1 of 4 jobs were changed, the others are as they were" in err
    assert states(site, ids[1:]) == ["dead"] * 3
    assert [row.jobs for row in audit(site)] == [1]
    site.open_gate("open")
    site.finish(ids[0])
    code, out, _ = ended(site, "retry", "--kind", "mend", "--canary", "9", "--json")
    (found,) = map(json.loads, out.splitlines())
    assert (code, found["retried"], found["failed"]) == (0, 3, [])
    assert found["canaries"] == {str(job_id): "succeeded" for job_id in ids[1:]}
    assert states(site, ids) == ["succeeded"] * 4


def test_a_rate_and_a_dry_run_go_with_canaries(site):
    """A dry run waits for nobody."""
    ids = fail_all(site, 5)
    words = ("retry", "--kind", "mend", "--canary", "1", "--rate", "100/s")
    code, out, err = ended(site, *words, "--dry-run")
    assert (code, out.split("  ")[0], err) == (0, "5 jobs would be retried", "")
    assert [site.job(job_id).attempt for job_id in ids] == [1] * 5
    assert ended(site, *words)[0] == 0
    site.finish_all(ids)
    assert states(site, ids) == ["succeeded"] * 5


@pytest.mark.parametrize(
    "flags",
    [
        ("--stop-after-failures", "1"),
        ("--canary", "2", "--stop-after-failures", "3"),
        ("--canary", "0"),
    ],
)
def test_failures_are_counted_among_canaries(site, flags):
    """Nothing would ever stop it."""
    site.add("mend")
    code, _, err = ended(site, "retry", "--kind", "mend", *flags)
    assert code == 2
    assert "Error" in err
    assert wait_until(lambda: audit(site) == [], 1, "no row")
