"""The demo on real files, with real supervisors, and what is left when it ends."""

import ast
import contextlib
import hashlib
import os
import re
import signal
import sqlite3
import subprocess
import sys
import sysconfig
from pathlib import Path

import httpx2
import pytest

from jobpool.cli.demo import supervisor
from jobpool.cli.demo.supervisor import MARKER, daemons_started, processes_left
from jobpool.core.clock import SystemClock
from jobpool.sandbox.metering.sampling import backstop_bytes
from jobpool.sandbox.system.procfs import is_alive
from support.waiting import wait_until

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(sys.platform != "linux", reason="supervisors run on Linux"),
]
FILES = 40
MANY = 1500
"""Far more than a demo comes to while a busy machine lets its test wait."""
RUN_S = 300
HOSTILE = {
    "null_pointer": "crashed SIGSEGV 3 quarantined",
    "regex": "timed_out SIGKILL 2 dead",
    "daemons": "succeeded returning 1 succeeded",
    "bomb": "out_of_memory SIGKILL 3 quarantined",
    "deaf": "timed_out SIGKILL 2 dead",
    "exit_zero": "crashed exit 0 3 quarantined",
    "noise": "succeeded returning 1 succeeded",
    "recursion": "failed exception 2 dead",
}


ONE_HOSTILE = (
    "from jobpool.cli import main; from jobpool.cli.demo import workspace; "
    "workspace.CASES = workspace.CASES[-1:]; main()"
)
"""A program: the demo with its last hostile job only."""


def command(*arguments, program=("-m", "jobpool")):
    return [sys.executable, *program, "demo", *map(str, arguments)]


def run(*arguments, program=("-m", "jobpool"), **environment):
    return subprocess.run(
        command(*arguments, program=program),
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
        env={**os.environ, **environment},
    )


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
    url = f"file:{directory}/demo.db?mode=rw"  # it must not make one
    with contextlib.closing(sqlite3.connect(url, uri=True)) as database:
        return database.execute(query).fetchall()


def supervisor_of(directory, demo):
    """Wait until honest jobs have ended, then return the supervisor's process id."""
    done = "SELECT count(*) FROM jobpool_jobs WHERE state = 'succeeded'"

    def at_work():
        assert demo.poll() is None, demo.communicate()
        with contextlib.suppress(sqlite3.OperationalError):
            return rows(directory, done)[0][0] >= 30
        return False  # there is no store yet

    wait_until(at_work, 120, "honest jobs run")
    (pid,) = rows(directory, "SELECT pid FROM jobpool_runs WHERE ended_at_ms IS NULL")
    return pid[0]


def regular_files(root, skipped, suffix):
    """Walk without any of the demo's own code."""
    found = []
    for folder, inner, names in os.walk(Path(root).resolve()):
        inner[:] = [name for name in inner if name not in skipped]
        paths = (Path(folder, name) for name in names if name.endswith(suffix))
        found += [path for path in paths if path.is_file() and not path.is_symlink()]
    return found


def first(paths, count):
    return sorted(paths, key=os.fsencode)[:count]


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    directory = tmp_path_factory.mktemp("demo")
    return directory, run("--dir", directory, "--files", FILES, COLUMNS="120")


def test_demo_succeeds_and_says_so(demo):
    """All honest jobs end at their first attempt, and the exit code is 0."""
    directory, done = demo
    assert done.returncode == 0, done.stdout + done.stderr
    honest = FILES + 2
    text = f"{honest} of {honest} jobs succeeded, {honest} at their first attempt\n"
    assert text in done.stdout
    counts = (
        "SELECT count(*), max(attempt) FROM jobpool_jobs WHERE kind LIKE 'honest.%'"
    )
    assert rows(directory, counts) == [(honest, 1)]
    assert "nothing is left." in done.stdout
    assert f"kept: {directory}" in done.stdout


def test_module_figures_are_those_of_an_independent_count(demo):
    """Files, bytes, lines, functions and classes equal what a plain walk finds."""
    skipped = {"__pycache__", "site-packages", "dist-packages"}
    library = sysconfig.get_path("stdlib")
    paths = first(regular_files(library, skipped, ".py"), FILES)
    sources = [path.read_bytes() for path in paths]
    nodes = [node for text in sources for node in ast.walk(ast.parse(text))]
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    size = sum(map(len, sources))
    lines = sum(text.count(b"\n") for text in sources)
    found = sum(isinstance(node, functions) for node in nodes)
    classes = sum(isinstance(node, ast.ClassDef) for node in nodes)
    said = " ".join(demo[1].stdout.split())
    assert f"{FILES} modules of Python's library: {lines:,} lines, {size:,} b" in said
    assert f" after lzma), {found:,} functions, {classes:,} classes " in said


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
    said = " ".join(demo[1].stdout.split())
    assert f"packages: {size:,} bytes, sha256 {whole.hexdigest()} " in said


def test_printed_commands_find_the_same(demo):
    """What the summary offers for checking agrees with it."""
    sizes, checksum = (
        subprocess.run(
            ["sh", "-c", line], capture_output=True, text=True, check=True
        ).stdout.split()
        for line in demo[1].stdout.splitlines()
        if line.startswith("    find ")
    )
    said = " ".join(demo[1].stdout.split())
    lines, size = map(int, sizes)
    assert f" {lines:,} lines, {size:,} bytes " in said
    assert f" sha256 {checksum[0]} " in said


def test_every_hostile_job_is_contained_as_it_must_be(demo):
    """Outcome, what ended it, attempts and state of each are what it provoked."""
    for name, end in HOSTILE.items():
        assert re.search(
            rf"^✔ {name} .* {end} ", squeezed(demo[1].stdout), re.MULTILINE
        )
    assert demo[1].stdout.count("✔") == len(HOSTILE)


def test_each_contained_attempt_is_a_line_while_it_runs(demo):
    """Also where there is no terminal: every case, and the limit that was hit."""
    said = squeezed(demo[1].stderr)
    for name, end in HOSTILE.items():
        assert re.search(rf" {name} attempt \d {end.split()[-1]}: ", said)
    assert re.search(r" bomb .* over its memory limit of 256MiB$", said, re.MULTILINE)
    assert " regex attempt 2 dead: killed at its time limit of 1s\n" in said


def test_bomb_is_stopped_near_its_limit(demo):
    """16 GiB never arrive: the peak stays close to the limit.

    While a busy machine keeps its supervisor from looking, it is bounded by the kernel.
    """
    peaks = (
        "SELECT min(a.peak_rss_bytes), max(a.peak_rss_bytes) FROM jobpool_attempts a "
        "JOIN jobpool_jobs j ON j.id = a.job_id WHERE j.kind = 'hostile.bomb'"
    )
    ((least, most),) = rows(demo[0], peaks)
    assert 200 * 2**20 < least < 512 * 2**20
    assert most < 256 * 2**20 + backstop_bytes(256 * 2**20)


def test_nothing_is_left(demo):
    """Supervisor, zygotes, children and all six daemons are gone."""
    directory, done = demo
    assert len(daemons_started(directory)) == 6
    assert "daemons 6 were left behind, and ended" in squeezed(done.stdout)
    assert "left 0 processes" in squeezed(done.stdout)
    assert of_the_demo(directory) == set()


def squeezed(text):
    return re.sub(" +", " ", text)


def test_demo_whose_supervisor_is_killed_says_so(tmp_path):
    """It names the log, and fails."""
    demo = started("--dir", tmp_path, "--files", MANY)
    os.kill(supervisor_of(tmp_path, demo), signal.SIGKILL)
    _, error = demo.communicate(timeout=RUN_S)
    assert demo.returncode == 1
    assert "the supervisor has ended with -9" in error
    assert f"{tmp_path}/supervisor.log" in error
    wait_until(lambda: not of_the_demo(tmp_path), 60, "the killed run's processes end")


def test_interrupted_demo_drains(tmp_path):
    """Ctrl-C leaves nothing running, not even the dashboard that was asked for."""
    demo = started("--dir", tmp_path, "--files", MANY, "--dashboard")
    lines = iter(demo.stderr.readline, "")
    link = next(line for line in lines if "watch it at" in line).split()[-1]
    assert httpx2.get(link, timeout=60).status_code == 303
    supervisor_of(tmp_path, demo)
    demo.send_signal(signal.SIGINT)
    _, error = demo.communicate(timeout=RUN_S)
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(link)
    assert demo.returncode == 130
    assert "draining" in error
    # The last ones are killed as the supervisor ends, and may die a moment later.
    wait_until(lambda: not of_the_demo(tmp_path), 60, "the drained processes end")
    assert rows(
        tmp_path, "SELECT count(*) FROM jobpool_jobs WHERE state = 'leased'"
    ) == [(0,)]


def test_killed_demo_takes_its_supervisor_along(tmp_path):
    """The supervisor drains by itself when the demo is gone."""
    demo = started("--dir", tmp_path, "--files", MANY)
    pid = supervisor_of(tmp_path, demo)
    assert pid in of_the_demo(tmp_path)
    demo.kill()
    demo.communicate()
    wait_until(lambda: not of_the_demo(tmp_path), 90, "everything ends")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--pools", "cpu=2"], "no pool 'io'"),
        (["--pools", "cpu=0,io=1"], "out of range"),
        (["--dir", "{foreign}"], "is not empty"),
        (["--files", "0"], "--files"),
    ],
)
def test_impossible_demo_options_are_refused(arguments, word, tmp_path):
    """The message names the remedy, and nothing is written."""
    (tmp_path / "precious").write_text("mine")
    done = run(*(text.format(foreign=tmp_path) for text in arguments))
    assert done.returncode == 2
    assert word in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_temporary_directory_goes_after_a_success(tmp_path):
    """Without --dir nothing stays on the disk; the summary still shows the results."""
    done = run(
        *("--files", 5, "--pools", "cpu=1,io=2"),
        program=("-c", ONE_HOSTILE),
        TMPDIR=str(tmp_path),
    )
    assert list(tmp_path.iterdir()) == []
    assert "6 of 6 jobs succeeded, 6 at their first attempt\n" in done.stdout
    assert "nothing is left." in done.stdout
    assert "✔ recursion" in squeezed(done.stdout)
    assert str(tmp_path) in done.stderr


def test_process_that_carries_the_mark_is_found(tmp_path, monkeypatch):
    """The count of remaining processes can differ from 0, and ignores dead ones."""
    monkeypatch.setattr(supervisor, "PATIENCE_S", 0.0)
    marked = {**os.environ, MARKER: str(tmp_path)}
    with subprocess.Popen(["sleep", "60"], env=marked) as process:
        try:
            left = wait_until(
                lambda: processes_left(tmp_path, SystemClock()), 60, "sleep has begun"
            )
        finally:
            process.kill()
    assert left == [process.pid]
    assert processes_left(tmp_path, SystemClock()) == []
