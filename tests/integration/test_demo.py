"""The demo on real files, with real supervisors, and what becomes of it when killed."""

import ast
import contextlib
import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import sysconfig
from collections import Counter
from pathlib import Path

import pytest

from jobpool.cli.demo import leftovers
from jobpool.cli.demo.leftovers import MARKER, daemons_started, processes_left
from jobpool.core.clock import SystemClock
from jobpool.sandbox.procfs import is_alive
from waiting import wait_until

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform != "linux", reason="supervisors run on Linux"),
]
HONEST_IDS = "SELECT id FROM jobpool_jobs WHERE kind LIKE 'honest.%'"
FILES = 40
MANY = 250
RUN_S = 150
HOSTILE = {
    "hostile.null_pointer": ("quarantined", "crashed", signal.SIGSEGV),
    "hostile.regex": ("dead", "timed_out", signal.SIGKILL),
    "hostile.daemons": ("succeeded", "succeeded", None),
    "hostile.bomb": ("quarantined", "out_of_memory", signal.SIGKILL),
    "hostile.deaf": ("dead", "timed_out", signal.SIGKILL),
    "hostile.exit_zero": ("quarantined", "crashed", None),
    "hostile.noise": ("succeeded", "succeeded", None),
    "hostile.recursion": ("dead", "failed", None),
}


def command(*arguments):
    return [sys.executable, "-m", "jobpool", "demo", *map(str, arguments)]


def run(*arguments):
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=RUN_S, check=False
    )


def found_by(*arguments):
    """Run the demo with --json, and return its object and its exit code."""
    done = run(*arguments, "--json")
    assert done.stdout, done.stderr
    return json.loads(done.stdout), done.returncode


def started(*arguments):
    return subprocess.Popen(
        command(*arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def of_the_demo(directory):
    """Return processes that carry the demo's mark, or are its daemons."""
    marker = f"{MARKER}={directory.resolve()}".encode()
    left = {pid for pid, start in daemons_started(directory) if is_alive(pid, start)}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if marker in (folder / "environ").read_bytes().split(b"\0"):
                left.add(int(folder.name))
    return left


def rows(directory, query):
    with contextlib.closing(sqlite3.connect(directory / "demo.db")) as database:
        return database.execute(query).fetchall()


def witnessed(directory):
    """Return how often each job's handler came to its end."""
    try:
        text = (directory / "witness").read_text()
    except FileNotFoundError:
        text = ""
    return Counter(int(line.split()[0]) for line in text.splitlines())


def supervisor_of(directory, demo):
    """Wait until honest jobs run, and return the supervisor's process id."""

    def at_work():
        assert demo.poll() is None, demo.communicate()
        return len(witnessed(directory)) >= 30

    wait_until(at_work, 60, "honest jobs run")
    (pid,) = rows(directory, "SELECT pid FROM jobpool_runs WHERE ended_at_ms IS NULL")
    return pid[0]


def regular_files(root, skipped, suffix):
    """Walk without any of the demo's own code."""
    return [
        path
        for path in Path(root).resolve().rglob(f"*{suffix}")
        if path.is_file()
        and not path.is_symlink()
        and not skipped.intersection(path.relative_to(Path(root).resolve()).parts)
    ]


def first(paths, count):
    return sorted(paths, key=os.fsencode)[:count]


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    directory = tmp_path_factory.mktemp("demo")
    report, code = found_by("--dir", directory, "--files", FILES)
    return directory, report, code


def test_demo_succeeds_and_says_so(demo):
    """All honest jobs end at their first attempt, and the exit code is 0."""
    directory, report, code = demo
    assert (code, report["ok"], report["problems"]) == (0, True, [])
    honest = report["honest"]
    assert honest["jobs"] == honest["succeeded"] == honest["first_attempt"] > FILES
    assert honest["blamed"] == 0
    assert witnessed(directory) == dict.fromkeys(
        (row[0] for row in rows(directory, HONEST_IDS)), 1
    )


def test_module_figures_are_those_of_an_independent_count(demo):
    """Files, bytes, lines, functions and classes equal what a plain walk finds."""
    skipped = {"__pycache__", "site-packages", "dist-packages"}
    library = sysconfig.get_path("stdlib")
    paths = first(regular_files(library, skipped, ".py"), FILES)
    sources = [path.read_bytes() for path in paths]
    nodes = [node for text in sources for node in ast.walk(ast.parse(text))]
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    modules = demo[1]["modules"]
    assert modules["files"] == len(paths) == FILES
    assert modules["bytes"] == sum(map(len, sources))
    assert modules["lines"] == sum(text.count(b"\n") for text in sources)
    assert modules["functions"] == sum(isinstance(node, functions) for node in nodes)
    assert modules["classes"] == sum(isinstance(node, ast.ClassDef) for node in nodes)


def test_checksum_of_packages_is_that_of_an_independent_walk(demo):
    """The bytes and the checksum of all checksums can be computed by others."""
    roots = {os.path.realpath(sysconfig.get_path(n)) for n in ("purelib", "platlib")}
    everything = {
        path for root in roots for path in regular_files(root, {"__pycache__"}, "")
    }
    whole, size = hashlib.sha256(), 0
    for path in first(everything, FILES):
        content = path.read_bytes()
        size += len(content)
        whole.update(f"{hashlib.sha256(content).hexdigest()}  {path}\n".encode())
    packages = demo[1]["packages"]
    assert packages["sha256"] == whole.hexdigest()
    assert packages["bytes"] == size


def test_printed_commands_find_the_same(demo):
    """What the summary offers for checking agrees with it."""

    def shell(check):
        return subprocess.run(
            ["sh", "-c", check], capture_output=True, text=True, check=True
        ).stdout.split()

    modules, packages = demo[1]["modules"], demo[1]["packages"]
    assert shell(modules["check"]) == [str(modules["lines"]), str(modules["bytes"])]
    assert shell(packages["check"])[0] == packages["sha256"]


def test_every_hostile_job_is_contained_as_it_must_be(demo):
    """State, outcome and signal of each kind are what it provoked."""
    found = {
        item["kind"]: (item["state"], item["outcome"], item["signal"])
        for item in demo[1]["hostile"]
    }
    assert found == HOSTILE
    (exited,) = [i for i in demo[1]["hostile"] if i["kind"] == "hostile.exit_zero"]
    assert exited["exit_code"] == 0


def test_bomb_is_stopped_near_its_limit(demo):
    """16 GiB never arrive: the peak stays in the limit's neighbourhood."""
    (bomb,) = [item for item in demo[1]["hostile"] if item["kind"] == "hostile.bomb"]
    assert 200 * 2**20 < bomb["peak_rss_bytes"] < 512 * 2**20


def test_nothing_is_left(demo):
    """Supervisor, zygotes, children and all six daemons are gone."""
    directory, report, _code = demo
    assert len(daemons_started(directory)) == report["daemons"] == 6
    assert report["processes_left"] == 0
    assert of_the_demo(directory) == set()


def test_supervisor_killed_in_the_middle_loses_and_repeats_nothing(tmp_path):
    """After kill -9 the same command goes on; only what was running runs again."""
    arguments = ("--dir", tmp_path, "--files", MANY)
    demo = started(*arguments)
    os.kill(supervisor_of(tmp_path, demo), signal.SIGKILL)
    _, error = demo.communicate(timeout=60)
    assert demo.returncode == 1
    assert f"jobpool demo --dir {tmp_path}" in error
    wait_until(lambda: not of_the_demo(tmp_path), 10, "the killed run's processes end")
    before = witnessed(tmp_path)

    report, code = found_by(*arguments)

    assert (code, report["problems"], report["resumed"]) == (0, [], True)
    honest = {row[0] for row in rows(tmp_path, HONEST_IDS)}
    ends = witnessed(tmp_path)
    assert set(ends) == honest
    lost = {
        row[0]
        for row in rows(
            tmp_path, "SELECT job_id FROM jobpool_attempts WHERE outcome = 'lost'"
        )
    }
    twice = {job_id for job_id, count in ends.items() if count > 1}
    assert twice <= lost & set(before)
    assert max(ends.values()) <= 2
    assert report["honest"]["recovered"] == len(lost & honest)
    assert len(lost) <= 10  # as many as there are children
    assert of_the_demo(tmp_path) == set()


def test_interrupted_demo_drains_and_goes_on(tmp_path):
    """Ctrl-C leaves nothing running, loses nothing, and is no job's fault."""
    arguments = ("--dir", tmp_path, "--files", MANY)
    demo = started(*arguments)
    supervisor_of(tmp_path, demo)
    demo.send_signal(signal.SIGINT)
    _, error = demo.communicate(timeout=60)
    assert demo.returncode == 130
    assert f"jobpool demo --dir {tmp_path}" in error
    assert of_the_demo(tmp_path) == set()

    report, code = found_by(*arguments)

    assert (code, report["problems"]) == (0, [])
    assert max(witnessed(tmp_path).values()) == 1


def test_killed_demo_takes_its_supervisor_along(tmp_path):
    """Nobody is left to watch: the supervisor drains by itself."""
    demo = started("--dir", tmp_path, "--files", MANY)
    pid = supervisor_of(tmp_path, demo)
    assert pid in of_the_demo(tmp_path)
    demo.kill()
    demo.communicate()
    wait_until(lambda: not of_the_demo(tmp_path), 40, "everything ends")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--pools", "cpu=2"], "no pool 'io'"),
        (["--pools", "cpu=0,io=1"], "out of range"),
        (["--dir", "{foreign}"], "neither empty nor the directory of a demo"),
        (["--files", "0"], "--files"),
    ],
)
def test_what_cannot_work_is_refused(arguments, word, tmp_path):
    """The message names the remedy, and nothing is written."""
    (tmp_path / "precious").write_text("mine")
    done = run(*(text.format(foreign=tmp_path) for text in arguments))
    assert done.returncode == 2
    assert word in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_temporary_directory_goes_after_a_success(tmp_path):
    """Without --dir nothing stays on the disk; the summary names what was found."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        command("--files", 5, "--pools", "cpu=1,io=2"),
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=True,
        env=environment,
    )
    assert list(tmp_path.iterdir()) == []
    assert "6 of 6 jobs succeeded, 6 at their first attempt\n" in done.stdout
    assert "nothing is left." in done.stdout
    assert str(tmp_path) in done.stderr


def test_process_that_carries_the_mark_is_found(tmp_path, monkeypatch):
    """The count of left processes can be other than 0, and forgets the dead."""
    monkeypatch.setattr(leftovers, "PATIENCE_S", 0.0)
    marked = {**os.environ, MARKER: str(tmp_path)}
    with subprocess.Popen(["sleep", "60"], env=marked) as process:
        try:
            left = wait_until(
                lambda: processes_left(tmp_path, SystemClock()), 10, "sleep has begun"
            )
        finally:
            process.kill()
    assert left == [process.pid]
    assert processes_left(tmp_path, SystemClock()) == []
