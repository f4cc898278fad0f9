"""Run directories, and proving a run dead with real processes."""

import contextlib
import os
import resource
import signal
import stat
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

import msgspec
import pytest

from jobpool.errors import ConfigError
from jobpool.sandbox.runs.marks import MARK_BYTES, open_marks
from jobpool.sandbox.runs.run_directory import (
    HEADER_BYTES,
    RunDirectory,
    read_header,
    read_slots,
    remove_run,
)
from jobpool.sandbox.system.procfs import (
    is_alive,
    process_start_time,
    process_stat,
    runs_nothing,
)
from jobpool.supervisor.maintenance import death_proof
from jobpool.supervisor.maintenance.death_proof import (
    Alive,
    DeadRun,
    Unproven,
    prove_dead,
)
from support.machine.sandbox_rig import PATIENCE_S
from support.site.nesting import cleared, nest
from support.waiting import wait_until

RUN = f"abc-{uuid.uuid4().hex}"
"""Processes of a run are known by its name: of others' tests at the same time, too."""
SUPERVISOR = '''
import os, subprocess, sys, time
from pathlib import Path
from jobpool.sandbox.system.procfs import process_start_time, process_stat
from jobpool.sandbox.runs.run_directory import RunDirectory
from jobpool.sandbox.runs.marks import MARK_BYTES
run = RunDirectory.create(sys.argv[1], sys.argv[2])
HEADLESS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(1000,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""
env = {"JOBPOOL_RUN": sys.argv[2]} if "marked" in sys.argv else {}
if "marked" in sys.argv or "recorded" in sys.argv:
    headless = [sys.executable, "-c", HEADLESS]
    program = headless if "headless" in sys.argv else ["sleep", "1000"]
    child = subprocess.Popen(program, env={**os.environ, **env})
    while "headless" in sys.argv and process_stat(child.pid).state != "Z":
        time.sleep(0.01)
    if "recorded" in sys.argv:
        run.write_slot(2, child.pid, process_start_time(child.pid))
    print(child.pid, flush=True)
if "large" in sys.argv:
    file = os.memfd_create("large")
    for _ in range(300):
        os.write(file, bytes(1 << 20))
Path(run.mark_path(2)).write_bytes((77).to_bytes(MARK_BYTES, "little"))
print("ready", flush=True)
time.sleep(1000)
'''


class Supervisor:
    """A process that holds a run, and its child, if it has one."""

    def __init__(self, root, *words):
        self.process = subprocess.Popen(
            [sys.executable, "-c", SUPERVISOR, str(root), RUN, *words],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.child = 0
        while (line := self.process.stdout.readline().strip()) != "ready":
            self.child = int(line)

    def kill(self):
        """Kill it with -9; its child lives on."""
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def is_gone(pid):
    found = process_stat(pid)
    return found is None or found.is_dead


@pytest.fixture
def supervise(tmp_path):
    """Start supervisors in ``tmp_path / run``; survivors are ended after the test."""
    started = []

    def start(*words):
        supervisor = Supervisor(tmp_path / "run", *words)
        started.append(supervisor)
        return supervisor

    yield start
    for supervisor in started:
        supervisor.kill()
        if supervisor.child:
            with contextlib.suppress(ProcessLookupError):
                os.kill(supervisor.child, signal.SIGKILL)
            # The next test has a run of the same name.
            wait_until(lambda s=supervisor: is_gone(s.child), PATIENCE_S, "its end")
    remove_run(tmp_path / "run", RUN)


def change_header(path, **changes):
    """Rewrite parts of a run's header."""
    header = msgspec.structs.replace(read_header(path), **changes)
    with (path / "slots").open("r+b") as file:
        file.write(msgspec.json.encode(header).ljust(HEADER_BYTES))


def test_a_run_directory_is_private_and_names_its_supervisor(tmp_path):
    """A run directory is private to its owner and identifies its supervisor exactly."""
    with RunDirectory.create(tmp_path / "run", RUN) as run:
        assert stat.S_IMODE(run.path.stat().st_mode) == 0o700
        assert stat.S_IMODE(run.tmp_root.stat().st_mode) == 0o700
        header = read_header(run.path)
        assert (header.run_id, header.pid) == (RUN, os.getpid())
        assert header.start_time == process_start_time(os.getpid())
        run.write_slot(3, 41, 42)
        run.write_slot(0, 51, 52)
        assert list(read_slots(run.path)) == [(51, 52), (41, 42)]
        run.write_slot(3, 0, 0)
        assert list(read_slots(run.path)) == [(51, 52)]
        tmp_root = run.tmp_root
    assert not run.path.exists()
    assert not tmp_root.exists()


@pytest.mark.parametrize("end", ["own", "successor's"])
def test_deep_temporary_directories_do_not_stop_an_end(tmp_path, end):
    """Directories deeper than the recursion limit are removed with the run."""
    run = RunDirectory.create(tmp_path / "run", RUN)
    with cleared(run.tmp_root):
        nest(run.tmp_root, 1100, "deep")
        if end == "own":
            run.remove()
        else:
            run.close()
            remove_run(tmp_path / "run", RUN)
        assert not run.tmp_root.exists()
        assert not run.path.exists()


def test_the_wake_fifo_never_blocks_or_ends(tmp_path):
    """The FIFO always has a reader, and reading it empty is no end of file."""
    with RunDirectory.create(tmp_path / "run", RUN) as run:
        fd = run.open_wake()
        with pytest.raises(BlockingIOError):
            os.read(fd, 10)
        ringer = os.open(run.path / "wake", os.O_WRONLY | os.O_NONBLOCK)
        os.write(ringer, b"\0")
        os.close(ringer)
        assert os.read(fd, 10) == b"\0"
        with pytest.raises(BlockingIOError):
            os.read(fd, 10)


def fail_in(run, children):
    """Leave a run directory through an error, with so many children on record."""
    with contextlib.suppress(ZeroDivisionError), run:
        for slot in range(children):
            run.write_slot(slot, 1, 1)
        _ = 1 / 0
    return run


def test_the_directory_stays_as_proof_when_asked(tmp_path):
    """With leases not given back, or children left by an error, the record stays."""
    with RunDirectory.create(tmp_path / "run", "one") as run:
        run.keep()
    assert isinstance(prove_dead(tmp_path / "run", "one"), Unproven)
    assert run.path.exists()
    two = fail_in(RunDirectory.create(tmp_path / "run", "two"), children=1)
    assert two.path.exists()
    three = fail_in(RunDirectory.create(tmp_path / "run", "three"), children=0)
    assert not three.path.exists()
    for name in ("one", "two"):
        remove_run(tmp_path / "run", name)
    assert not run.tmp_root.exists()


def test_an_unusable_place_for_a_run_is_refused(tmp_path):
    """A link in the way, or a run that exists, is refused; nothing is left there."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="is a link"):
        RunDirectory.create(tmp_path / "run", RUN)
    with RunDirectory.create(tmp_path / "other", RUN) as first:
        with pytest.raises(ConfigError, match="File exists"):
            RunDirectory.create(tmp_path / "other", RUN)
        assert first.path.exists()


def test_the_own_run_is_alive_and_keeps_its_lock(tmp_path, supervise):
    """Asking about the own run does not drop its lock, as a POSIX lock would."""
    with RunDirectory.create(tmp_path / "own", RUN):
        assert prove_dead(tmp_path / "own", RUN) == Alive()
        script = (
            "import sys; "
            "from jobpool.supervisor.maintenance.death_proof import prove_dead; "
            "print(prove_dead(*sys.argv[1:]))"
        )
        answer = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / "own"), RUN],
            capture_output=True,
            text=True,
            check=True,
        )
        assert answer.stdout == "Alive()\n"


def test_a_living_supervisor_is_alive(tmp_path, supervise):
    """A supervisor that holds its lock is alive, stopped or not."""
    supervisor = supervise()
    assert prove_dead(tmp_path / "run", RUN) == Alive()
    supervisor.process.send_signal(signal.SIGSTOP)
    assert prove_dead(tmp_path / "run", RUN) == Alive()


def test_a_dead_supervisor_is_proven_dead_with_what_it_ran(tmp_path, supervise):
    """After kill -9 the run is dead, and its marks say which attempts ran."""
    supervise().kill()
    assert prove_dead(tmp_path / "run", RUN) == DeadRun(
        running_tokens=frozenset({77}), killed=0
    )


@pytest.mark.parametrize("how", ["", "headless"])
@pytest.mark.parametrize("word", ["marked", "recorded"])
def test_survivors_are_killed_before_a_run_counts_as_dead(
    tmp_path, supervise, word, how
):
    """A child on record or with the run's marker, also without its main thread."""
    supervisor = supervise(word, how)
    supervisor.kill()
    assert process_stat(supervisor.child)
    assert not runs_nothing(supervisor.child)
    dead = prove_dead(tmp_path / "run", RUN, wait_s=PATIENCE_S)
    assert dead == DeadRun(running_tokens=frozenset({77}), killed=1)
    assert is_gone(supervisor.child)
    assert runs_nothing(supervisor.child)


@pytest.mark.parametrize(
    "spoil",
    [
        Path.unlink,
        lambda mark: os.truncate(mark, 0),
        lambda mark: os.truncate(mark, 2 * MARK_BYTES),
    ],
)
def test_a_damaged_mark_hides_no_running_job(tmp_path, supervise, spoil):
    """In a run with a damaged mark, every job may have begun."""
    supervise("recorded").kill()
    spoil(tmp_path / "run" / RUN / "mark.2")
    dead = prove_dead(tmp_path / "run", RUN, wait_s=PATIENCE_S)
    assert dead == DeadRun(running_tokens=None, killed=1)


def test_a_recycled_pid_is_left_alone(tmp_path, supervise):
    """A recorded pid that belongs to another process now is left alone."""
    with RunDirectory.create(tmp_path / "run", RUN) as run:
        run.write_slot(0, os.getppid(), 1)
        os.close(open_marks(run.mark_path(0)))
        run.keep()
    change_header(run.path, start_time=1)
    assert prove_dead(tmp_path / "run", RUN) == DeadRun(
        running_tokens=frozenset(), killed=0
    )
    assert process_stat(os.getppid())


def test_a_living_supervisor_without_its_lock_is_unproven(tmp_path, supervise):
    """A free lock is not enough while the supervisor's process exists."""
    with RunDirectory.create(tmp_path / "run", RUN) as run:
        run.keep()
    verdict = prove_dead(tmp_path / "run", RUN)
    assert isinstance(verdict, Unproven)
    assert "does not hold its lock" in verdict.reason


def test_a_supervisor_that_is_ending_is_dead(tmp_path, supervise):
    """It runs no more; it has lost its lock, though it still gives back its files."""
    supervisor = supervise("large")
    supervisor.process.kill()
    verdict = wait_until(
        lambda: (found := prove_dead(tmp_path / "run", RUN)) != Alive() and found,
        PATIENCE_S,
        "the release of its lock",
    )
    assert verdict == DeadRun(running_tokens=frozenset({77}))


def test_after_a_reboot_a_run_is_dead_but_its_running_jobs_are_unknown(
    tmp_path, supervise
):
    """After a reboot no process lives, but what had been running is unknown."""
    supervisor = supervise()
    assert prove_dead(tmp_path / "run", RUN, same_boot=False) == Alive()
    supervisor.kill()
    assert prove_dead(tmp_path / "run", RUN, same_boot=False) == DeadRun()
    change_header(tmp_path / "run" / RUN, boot_id="another")
    assert prove_dead(tmp_path / "run", RUN) == DeadRun()
    assert prove_dead(tmp_path / "run", "missing", same_boot=False) == DeadRun()


def test_in_another_pid_namespace_only_pid_1_is_proven_dead(tmp_path, supervise):
    """In a container, only a supervisor that was pid 1 is proven dead by its lock."""
    supervise().kill()
    path = tmp_path / "run" / RUN
    change_header(path, pid_namespace=1)
    verdict = prove_dead(tmp_path / "run", RUN)
    assert isinstance(verdict, Unproven)
    assert "container" in verdict.reason
    change_header(path, pid=1)
    assert prove_dead(tmp_path / "run", RUN) == DeadRun(running_tokens=frozenset({77}))


def test_a_missing_or_damaged_record_is_unproven(tmp_path, supervise):
    """Without a readable record nothing can be proven, and the reason says so."""
    verdict = prove_dead(tmp_path / "run", RUN)
    assert isinstance(verdict, Unproven)
    assert f"JOBPOOL_RUN={RUN}" in verdict.reason
    supervise().kill()
    (tmp_path / "run" / RUN / "slots").write_bytes(b"garbage")
    assert isinstance(prove_dead(tmp_path / "run", RUN), Unproven)


def test_a_run_whose_processes_do_not_die_is_unproven(tmp_path, supervise):
    """A survivor that is still there after the wait keeps the run's leases."""
    supervisor = supervise("marked")
    supervisor.kill()
    verdict = prove_dead(tmp_path / "run", RUN, wait_s=-1)
    assert isinstance(verdict, Unproven)
    assert f"sleep (pid {supervisor.child})" in verdict.reason
    assert process_stat(supervisor.child)


def test_survivors_that_die_late_are_counted_once_the_run_is_dead(
    tmp_path, supervise, monkeypatch
):
    """On a busy machine one call kills, and a later one finds nothing left."""
    supervisor, killed = supervise("marked"), set()
    supervisor.kill()
    with monkeypatch.context() as busy:
        busy.setattr(
            death_proof,
            "is_alive",
            lambda pid, start: pid == supervisor.child or is_alive(pid, start),
        )
        while not killed:
            proof = prove_dead(tmp_path / "run", RUN, wait_s=0.1, killed=killed)
            assert isinstance(proof, Unproven)
    dead = prove_dead(tmp_path / "run", RUN, wait_s=PATIENCE_S, killed=killed)
    assert dead == DeadRun(running_tokens=frozenset({77}), killed=1)


def test_a_prover_started_by_a_job_does_not_kill_itself(tmp_path, supervise):
    """A process that carries the run's marker itself says so, and lives on."""
    supervise().kill()
    script = (
        "import sys; "
        "from jobpool.supervisor.maintenance.death_proof import prove_dead; "
        "print(prove_dead(*sys.argv[1:]).reason)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "run"), RUN],
        env={**os.environ, "JOBPOOL_RUN": RUN},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "itself started by a job" in answer.stdout


def test_a_run_directory_that_cannot_be_made_leaves_nothing(tmp_path, monkeypatch):
    """Even without a free descriptor, which reading a directory would need."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    for name in ("tmp", "run"):
        (tmp_path / name).mkdir(mode=0o700)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        with pytest.raises(ConfigError, match="Too many open files"):
            RunDirectory.create(tmp_path / "run", RUN)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert [*(tmp_path / "run").iterdir(), *(tmp_path / "tmp").iterdir()] == []


def test_a_supervisor_killed_at_its_start_leaves_nothing_unrecorded(
    tmp_path, monkeypatch
):
    """The temporary directory is recorded before it is made."""
    place, named, make = tmp_path / "tmp", [], Path.mkdir
    make(place)
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.delattr(tempfile, "_get_default_tempdir")

    def making(path, *arguments, **options):
        if path.parent == place:
            named.append(read_header(tmp_path / "run" / RUN).tmp_root)
        make(path, *arguments, **options)

    monkeypatch.setattr(Path, "mkdir", making)
    with RunDirectory.create(tmp_path / "run", RUN) as run:
        assert [str(path) for path in place.iterdir()] == named == [str(run.tmp_root)]
    assert list(place.iterdir()) == []
