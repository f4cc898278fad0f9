"""What the demo stores, starts and shows, as data."""

from pathlib import Path

import msgspec
import pytest

from jobpool import JobPool
from jobpool.cli.demo.app import HASH, PARSE, declare
from jobpool.cli.demo.progress import Contained, PoolProgress, Sample, by_pool
from jobpool.cli.demo.supervisor import command_line, environment
from jobpool.cli.demo.view import verdict_line
from jobpool.cli.demo.workspace import (
    FILES_PER_HASH,
    Files,
    honest_jobs,
    is_readable,
    list_command,
)
from jobpool.core.jobs.job import JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.store.records.reading import StatRow


def test_every_file_is_in_exactly_one_job():
    """One job per module, one per batch of package files, and none twice."""
    modules = tuple(f"/lib/{n}.py" for n in range(3))
    packages = tuple(f"/site/{n}" for n in range(2 * FILES_PER_HASH + 1))
    jobs = [
        call.job
        for call in honest_jobs(
            declare(JobPool()),
            Files(paths=modules, command=""),
            Files(paths=packages, command=""),
        )
    ]
    sent = [(job.kind, msgspec.json.decode(job.payload)) for job in jobs]
    assert tuple(given["path"] for kind, given in sent if kind == PARSE) == modules
    hashed = [path for kind, given in sent if kind == HASH for path in given["paths"]]
    assert tuple(hashed) == packages
    assert len(jobs) == 3 + 3


def test_list_command_repeats_the_walk():
    """The command prunes the same directories, sorts by bytes, and cuts alike."""
    command = list_command(["/a b"], ["c", "d"], suffix=".py", limit=7)
    assert command == (
        r"find '/a b' -mindepth 1 \( -name c -o -name d \) -prune -o -type f "
        "-name '*.py' -print | LC_ALL=C sort | head -n 7"
    )
    assert "head" not in list_command(["/a"], ["c"], suffix="", limit=None)


@pytest.mark.parametrize("name", ["a\nb", "a\\b"])
def test_path_that_sha256sum_would_escape_is_left_out(name, tmp_path):
    """Only paths that sha256sum prints unchanged can be checked by others."""
    for path in (tmp_path / name, tmp_path / "plain"):
        path.touch()
    assert not is_readable(str(tmp_path / name))
    assert is_readable(str(tmp_path / "plain"))


def test_path_that_cannot_be_opened_is_left_out(tmp_path):
    """A file that cannot be read is no job: it could only fail."""
    assert not is_readable(str(tmp_path / "missing"))


def test_supervisor_starts_without_the_callers_settings():
    """JOBPOOL_ variables do not reach the demo; everything else does."""
    ours = {"JOBPOOL_STORE": "sqlite:///mine.db", "PATH": "/bin"}
    found = environment(ours, Path("/demo"))
    assert found == {"PATH": "/bin", "DEMO_OF_JOBPOOL": "/demo"}


def test_the_supervisor_is_started_as_a_user_would():
    """The command names pools, application and store, and no secret."""
    command = command_line(Path("/demo"), "cpu=1,io=1")
    assert command[1:5] == ["-m", "jobpool", "--pools", "cpu=1,io=1"]
    assert "sqlite:////demo/demo.db" in command


def test_counts_are_added_up_by_pool():
    """Kinds of one pool are summed; a leased job is running, a dead one has ended."""
    rows = [
        StatRow(
            pool=pool, kind=kind, state=state, jobs=jobs, mean_wait_s=0, mean_run_s=0
        )
        for pool, kind, state, jobs in (
            ("io", "c", "succeeded", 4),
            ("cpu", "a", "leased", 1),
            ("cpu", "b", "dead", 2),
            ("cpu", "b", "retryable", 3),
        )
    ]
    found = by_pool(rows)
    assert list(found) == ["cpu", "io"]
    assert found["cpu"] == PoolProgress(jobs=6, ended=2, running=1)
    assert not Sample(pools=found).is_over
    assert Sample(pools={"io": found["io"]}).is_over


def test_verdict_fits_a_line_and_names_the_end():
    """A final attempt says where the job went, before a reason that may be cut."""
    item = Contained(
        kind="hostile.null_pointer",
        attempt=3,
        outcome=Outcome.CRASHED,
        reason="killed by SIGSEGV (Segmentation fault); crash 3 of 3",
        state=JobState.QUARANTINED,
    )
    line = verdict_line(item, 61.0).plain
    assert line.endswith("attempt 3  quarantined: killed by SIGSEGV")
    assert line.startswith(" 1:01.0  null_pointer")
    assert len(line) < 80


def test_verdict_on_a_hostile_job_that_may_succeed_says_what_was_held():
    """Daemons end although their job succeeds."""
    item = Contained(
        kind="hostile.daemons",
        attempt=1,
        outcome=Outcome.SUCCEEDED,
        reason=None,
        state=JobState.SUCCEEDED,
    )
    assert verdict_line(item, 1.0).plain.endswith("succeeded: its daemons are ended")
