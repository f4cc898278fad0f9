"""A child that lies on its channel.

Only its own job is charged, and no lie is believed.

The lies: another job's token, a token of the past, more frames than could ever be read,
half a frame and then death, a frame that announces four gigabytes, no frame at all, and
jobs whose kinds look like paths and imports.
"""

import contextlib
import sqlite3
import stat

import pytest
from click.testing import CliRunner

from jobpool.cli.root import cli
from jobpool.core.jobs.job import JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.errors import UsageError
from jobpool.store.records.operating import Filter
from jobpool.supervisor.machine.attempts.running import ASKS_MAX
from support.site.supervising import Site

APP = """
import random
from jobpool.core.jobs.job import NewJob
from jobpool.sandbox.protocol.messages import Ask, Beat, Done, encode


def channels():
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                yield int(name)
        except OSError:
            continue


def say(data):
    for fd in list(channels()):
        os.set_blocking(fd, True)
        try:
            os.write(fd, data)
        except OSError:
            continue


def success(token, seq=1):
    return encode(Done(seq, token, True, b'"forged"', 0.0, 0.0, 1, 1))


def tokens():
    lines = (HERE / "witness").read_text().split("\\n")
    return [int(line.split()[2]) for line in lines if line]


def lie(how):
    own = current().token
    if how == "another's success":
        for token in tokens():
            say(success(token))
    elif how == "a future token":
        say(success(own + (1 << 20)))
    elif how == "the past":
        for seq in range(50):
            say(encode(Beat(own - (1 << 20), b'"late"', None)) + success(own - 1, seq))
    elif how == "a flood":
        for _ in range(2000):
            say(encode(Beat(own, b'"x"', None)) * 100)
    elif how == "half a frame":
        say(success(own)[:7])
        os._exit(0)
    elif how == "four gigabytes":
        say(b"\\xff\\xff\\xff\\xff" + bytes(1000))
    elif how == "garbage":
        say(random.Random(7).randbytes(4096))
    elif how == "additions that nobody could store":
        bad = NewJob(kind="x", pool="cpu", payload=b"{}", key="k")
        say(encode(Done(1, own, True, b"1", 0.0, 0.0, 1, 1, added=[bad])))
    elif how == "a flood of requests":
        say(encode(Ask(1, own, [NewJob(kind="x", pool="cpu", payload=b"{}")])) * 1000)
    time.sleep(120)
    return "it was believed"


@jobs.job("cpu", kind="lie", max_attempts=1)
def lying(how: str):
    lie(how)


@jobs.job("io", kind="victim", timeout="10m")
def victim():
    hold("gate")
    return "its own"


@jobs.job("io", kind="canary")
def canary(n: int):
    return n
"""
LIES = [
    "another's success",
    "a future token",
    "the past",
    "half a frame",
    "four gigabytes",
    "garbage",
    "a flood of requests",
    "additions that nobody could store",
]


@pytest.mark.timeout(240)
def test_only_the_lying_job_is_charged(tmp_path):
    """Its neighbours, running and waiting, are charged nothing and lose nothing."""
    with Site(tmp_path / "site", APP) as site:
        supervisor = site.start("cpu=4,io=2")
        held = site.add("victim", pool="io")
        site.wait_begun(held)
        liars = site.add_many("lie", [{"how": how} for how in LIES], max_attempts=1)
        flooder = site.add("lie", {"how": "a flood"}, max_attempts=1, timeout_s=5.0)
        canaries = site.add_many("canary", [{"n": n} for n in range(20)], pool="io")
        assert [site.result(one) for one in canaries] == list(range(20))
        for how, liar in zip(LIES, liars, strict=True):
            job = site.finish(liar)
            assert (job.state, job.result) == (JobState.DEAD, None), how
            # What an earlier handler has left behind may speak so as well.
            past = how == "the past"
            outcome = Outcome.INTERRUPTED if past else Outcome.CRASHED
            assert job.outcome is outcome, how
        assert site.finish(flooder).state is JobState.DEAD
        site.open_gate("gate")
        assert site.result(held) == "its own"
        innocent = [site.job(one) for one in (held, *canaries)]
        assert {(job.attempt, job.failures, job.crashes) for job in innocent} == {
            (1, 0, 0)
        }
        asked = site.store.count(Filter()) - len(innocent) - len(liars) - 1
        assert 0 <= asked <= ASKS_MAX  # It may enqueue, but not without an answer.
        assert supervisor.stop() == 0


ODD = ["../../etc/passwd", "/bin/sh -c id", "a\x1b[2Jb", "", "x" * 5000]


@pytest.mark.parametrize("kind", ODD)
def test_a_kind_that_is_no_name_is_refused(tmp_path, kind):
    """It is refused at enqueue; nothing is stored."""
    with (
        Site(tmp_path / "site") as site,
        pytest.raises(UsageError, match="expected a name"),
    ):
        site.add(kind)


def test_a_kind_leads_to_nothing_but_a_handler(tmp_path):
    """A kind written by hand waits, is shown harmlessly, and starts nothing."""
    kinds = ["os:system", "jobs.canary", "jobs:os.system", *ODD]
    with Site(tmp_path / "site", APP) as site:
        odd = [site.add("canary", {"command": "touch owned"}) for _ in kinds]
        with contextlib.closing(sqlite3.connect(site.folder / "jobpool.db")) as hand:
            hand.executemany(
                "UPDATE jobpool_jobs SET kind = ? WHERE id = ?",
                zip(kinds, odd, strict=True),
            )
            hand.commit()
        supervisor = site.start("cpu=1,io=1")
        assert site.result(site.add("canary", {"n": 1}, pool="io")) == 1
        states = [site.job(one).state for one in odd]
        named = len(kinds) - len(ODD)
        assert states[:named] == [JobState.RUNNABLE] * named
        # What is no name at all is set aside once the walk comes by.
        assert {*states[named:]} <= {JobState.RUNNABLE, JobState.DEAD}
        assert not (site.folder / "owned").exists()
        shown = CliRunner().invoke(cli, ["list", "--store", site.url])
        assert shown.exit_code == 0
        assert "\x1b" not in shown.output + supervisor.said()


@pytest.mark.parametrize("umask", ["0000", "0777"])
def test_a_run_directory_is_private_to_its_owner(tmp_path, umask):
    """Whatever the umask, no other user may enter or read any of a run's files."""
    # The supervisor's alone: others are forked from a process of these tests.
    before = ("sh", "-c", f'umask {umask}; exec "$@"', "sh")
    with Site(tmp_path / "site", APP, before=before) as site:
        site.start("cpu=1,io=1")
        assert site.result(site.add("canary", {"n": 1}, pool="io")) == 1
        (run,) = (site.folder / "jobpool.db.run").iterdir()
        modes = {
            path: stat.S_IMODE(path.lstat().st_mode)
            for path in (run.parent, run, *run.iterdir(), *site.folder.glob("*.db*"))
        }
        assert {mode & 0o077 for mode in modes.values()} == {0}, modes
