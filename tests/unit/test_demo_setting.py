"""What the demo stores, starts and shows, as data."""

from pathlib import Path

import pytest

from jobpool.cli.demo.app import HASH, PARSE
from jobpool.cli.demo.cases import CASES
from jobpool.cli.demo.household import command_line, environment
from jobpool.cli.demo.material import Files, Material, is_readable, list_command
from jobpool.cli.demo.setting import FILES_PER_HASH, key_of, wanted_jobs
from jobpool.cli.demo.view import verdict
from jobpool.cli.demo.watching import Contained, Look, PoolView, by_pool
from jobpool.core.job import JobState
from jobpool.core.outcome import Outcome
from jobpool.store.records import StatRow


def material(modules, packages):
    return Material(
        modules=Files(
            roots=("/lib",),
            paths=tuple(f"/lib/{n}.py" for n in range(modules)),
            command="",
        ),
        packages=Files(
            roots=("/site",),
            paths=tuple(f"/site/{n}" for n in range(packages)),
            command="",
        ),
    )


def test_every_file_is_in_exactly_one_job():
    """One job per module, one per batch of package files, and none twice."""
    files = 2 * FILES_PER_HASH + 1
    wanted = list(wanted_jobs(material(3, files)))
    modules = [job.arguments["path"] for job in wanted if job.kind == PARSE]
    hashed = [p for job in wanted if job.kind == HASH for p in job.arguments["paths"]]
    assert modules == [f"/lib/{n}.py" for n in range(3)]
    assert hashed == [f"/site/{n}" for n in range(files)]
    keys = [(job.kind, job.key) for job in wanted]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize(
    ("modules", "rounds"), [(1, 1), (999, 1), (1000, 2), (9999, 3)]
)
def test_hostile_jobs_come_in_rounds_and_before_honest_ones(modules, rounds):
    """Each hostile handler runs once a round, at a higher priority, spread in time."""
    wanted = list(wanted_jobs(material(modules, 0)))
    hostile = [job for job in wanted if job.kind.startswith("hostile.")]
    assert len(hostile) == rounds * len(CASES)
    assert min(job.priority for job in hostile) > 0
    assert len({job.run_in_s for job in hostile}) == len(hostile)


def test_key_of_a_long_path_is_its_checksum():
    """A key has at most 255 characters; a path may have more."""
    assert key_of("/lib/ast.py") == "/lib/ast.py"
    assert len(key_of("/x" * 200)) == 64
    assert key_of("/x" * 200) != key_of("/x" * 201)


def test_list_command_repeats_the_walk():
    """The command prunes the same directories, sorts by bytes, and cuts alike."""
    command = list_command(["/a b"], ["c", "d"], suffix=".py", limit=7)
    assert command == (
        r"find '/a b' -mindepth 1 \( -name c -o -name d \) -prune -o -type f "
        "-name '*.py' -print | LC_ALL=C sort | head -n 7"
    )
    assert "head" not in list_command(["/a"], ["c"], suffix="", limit=None)


@pytest.mark.parametrize("path", ["/a\nb", "/a\\b", "/a\udcff"])
def test_path_that_sha256sum_would_escape_is_left_out(path):
    """Only paths that are printed as they are can be checked by others."""
    assert not is_readable(path, opened=lambda _path: None)
    assert is_readable("/plain", opened=lambda _path: None)


def test_path_that_cannot_be_opened_is_left_out():
    """A file that nobody may read is no job that could only fail."""

    def refuse(_path):
        raise PermissionError

    assert not is_readable("/plain", opened=refuse)


def test_supervisor_starts_without_the_callers_settings():
    """JOBPOOL_ variables do not reach the demo; everything else does."""
    ours = {"JOBPOOL_STORE": "sqlite:///mine.db", "PATH": "/bin"}
    found = environment(ours, Path("/demo"))
    assert found == {"PATH": "/bin", "DEMO_OF_JOBPOOL": "/demo"}


def test_supervisor_is_started_as_anybody_would():
    """The command names pools, application and store, nothing secret."""
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
    assert found["cpu"] == PoolView(jobs=6, ended=2, running=1)
    assert not Look(pools=found).is_over
    assert Look(pools={"io": found["io"]}).is_over


def test_verdict_fits_a_line_and_names_the_end():
    """A final attempt says where the job went, ahead of a reason that may be cut."""
    item = Contained(
        kind="hostile.null_pointer",
        attempt=3,
        outcome=Outcome.CRASHED,
        reason="killed by SIGSEGV (Segmentation fault); crash 3 of 3",
        state=JobState.QUARANTINED,
    )
    line = verdict(item, 61.0).plain
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
    assert verdict(item, 1.0).plain.endswith("succeeded: its daemons are ended")
