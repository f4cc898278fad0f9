"""The command line and its environment: help, exit codes, pipes, machine, signals."""

import errno
import json
import os
import signal
import subprocess
import sys

import click
import psutil
import pytest

from jobpool import errors
from jobpool.cli import root
from jobpool.cli.exits import Exit, exit_of
from jobpool.cli.flags import LaunchFlags
from jobpool.cli.launch import launch
from jobpool.cli.machine import resources
from jobpool.store.records.operating import AuditEntry
from support.store.cli_store import RUN, run, stored

JOBPOOL = [sys.executable, "-m", "jobpool"]


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def started(monkeypatch):
    """Capture the settings that would be served."""
    seen = []

    def serve(flags, settings, *, observer):
        seen.append((settings, flags.burst))
        return 0

    monkeypatch.setattr(launch, "_serve", serve)
    return seen


# -- help and unknown words --------------------------------------------------------


def test_bare_jobpool_prints_help_and_starts_nothing(started):
    """It must not begin to run jobs; the help lists the exit codes."""
    result = run()
    assert result.exit_code == 0
    assert "Usage: jobpool" in result.stdout or "Usage: cli" in result.stdout
    for code in Exit:
        assert f"\n    {code:<4} " in result.stdout
    assert started == []


def test_every_command_is_in_the_help_and_exists():
    """Commands are imported lazily, so each one's address is tried here."""
    text = run("--help").stdout
    context = click.Context(root.cli)
    for name in root.cli.list_commands(context):
        assert f"  {name} " in text
        if name != "demo":
            assert isinstance(root.cli.get_command(context, name), click.Command)
            assert run(name, "--help").exit_code == 0


def test_client_commands_do_not_import_the_supervisor():
    """`jobpool enqueue` in a loop imports only what it uses."""
    code = (
        "import sys, click.testing; from jobpool.cli.root import cli; "
        "click.testing.CliRunner().invoke(cli, ['enqueue', 'a', '--store', 'x.db']); "
        "print([m for m in sys.modules if m.split('.')[:2] in "
        "(['jobpool', 'supervisor'], ['jobpool', 'sandbox'])], "
        "{'psutil', 'rich', 'subprocess'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[] set()"


def test_a_command_runs_with_the_garbage_collector():
    """It is off only while the command is imported."""
    code = (
        "import gc, sys; from jobpool.cli import main; seen = []; "
        "from jobpool.cli.diagnose import manual; "
        "manual.print_json = lambda _: seen.append(gc.isenabled()); "
        "sys.argv = ['jobpool', 'manual', '--json']\n"
        "try: main()\n"
        "except SystemExit: print(set(seen))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "{True}"


def test_an_unknown_command_is_answered_with_the_nearest():
    """A typing error is corrected without opening the manual."""
    result = run("lst")
    assert result.exit_code == 2
    assert "did you mean 'list'?" in result.stderr


# -- starting ----------------------------------------------------------------------


def test_flags_start_a_supervisor_with_these_settings(started, tmp_path):
    """--pools on the group starts a supervisor with exactly these settings."""
    result = run(
        *("--pools", "cpu=2..3,io=5", "--app", "shop.jobs", "--memory", "cpu=64MiB"),
        *("--timeout", "9s", "--drain", "1s", "--burst"),
    )
    assert (result.exit_code, result.stderr) == (0, "")
    ((settings, burst),) = started
    assert burst
    assert settings.app == "shop.jobs"
    assert settings.app_directory == str(tmp_path)
    cpu, io = settings.pools
    assert (cpu.size_min, cpu.size_max, io.size_max) == (2, 3, 5)
    assert (cpu.limits.memory_bytes, io.limits.timeout_s) == (64 * 2**20, 9)
    assert io.drain_s == 1


def test_run_takes_the_pools_of_the_configuration(started, tmp_path):
    """`jobpool run` is the same from the file; flags before or after it count."""
    (tmp_path / "jobs.py").touch()
    (tmp_path / "jobpool.toml").write_text("[pools.gpu]\nsize = 1\n")
    assert run("--timeout", "5s", "run", "--drain", "2s").exit_code == 0
    ((settings, _),) = started
    (gpu,) = settings.pools
    assert (gpu.name, gpu.limits.timeout_s, gpu.drain_s) == ("gpu", 5, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--pools", "cpu=0"], "Error: --pools cpu: 0 is out of range"),
        (["--pools", ""], "Error: --pools: '' is not of the form"),
        (["--pools", "cpu=2"], "Error: no application is named"),
        (["--app", "shop"], "say --pools cpu=4,io=16, or `jobpool run`"),
        (["--pools", "cpu=2", "list"], "--pools is for starting jobpool, not for"),
        (["--log-format", "xml", "run"], "'xml' is not one of"),
        (["--pools", "cpu=2", "--config", "no.toml"], "'no.toml' (from --config)"),
    ],
)
def test_a_wrong_start_is_refused_in_one_line(started, arguments, message):
    """Exit code 2, no traceback, nothing started."""
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert started == []


def test_log_settings_come_from_the_environment_too(started, monkeypatch, tmp_path):
    """JOBPOOL_LOG_LEVEL is checked like the flag, and ignored by other commands."""
    (tmp_path / "jobs.py").touch()
    monkeypatch.setenv("JOBPOOL_LOG_LEVEL", "loud")
    result = run("run")
    assert result.exit_code == 2
    assert "JOBPOOL_LOG_LEVEL: 'loud' is not known; expected debug or" in result.stderr
    assert run("list").exit_code == 4


def test_options_after_run_win_over_options_before_it():
    """Options after `run` win over options before it."""
    before = LaunchFlags(pools="cpu=1", app="a", burst=True)
    assert LaunchFlags(app="b").over(before) == LaunchFlags(
        pools="cpu=1", app="b", burst=True
    )


# -- exit codes --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigError("x"), 2),
        (errors.ArgumentsRejected("x"), 2),
        (errors.UnknownKind("x"), 1),
        (errors.KeyConflict("x", 1), 1),
        (errors.QueueFull("x"), 1),
        (errors.JobNotFound("x"), 1),
        (errors.AppError("x"), 3),
        (errors.StoreRefused("x"), 4),
        (errors.StoreFull("x"), 4),
        (errors.StoreWentBack("x"), 5),
        (errors.JobpoolBug("x"), 70),
    ],
)
def test_each_error_has_its_documented_exit_code(error, code):
    """Scripts can tell what went wrong."""
    assert exit_of(error) == code


def failing(monkeypatch, error):
    def serve(flags, settings, *, observer):
        raise error

    monkeypatch.setattr(launch, "_serve", serve)
    return run("--pools", "cpu=1", "--app", "a")


def test_an_application_that_does_not_load_shows_its_traceback(monkeypatch):
    """Its own traceback, escaped, then the error; no frame of jobpool."""
    error = errors.AppError("cannot import shop", "Traceback\n  line 1\x1b[2J")
    result = failing(monkeypatch, error)
    assert result.exit_code == 3
    assert result.stderr == ("Traceback\n  line 1\\x1b[2J\nError: cannot import shop\n")


def test_a_bug_is_reported_as_one(monkeypatch):
    """The traceback, a request to report it, and exit code 70."""
    result = failing(monkeypatch, ZeroDivisionError("oops"))
    assert result.exit_code == 70
    assert "ZeroDivisionError should not have happened; please report" in result.stderr


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EAGAIN, errno.ENOMEM])
def test_an_exhausted_machine_is_not_reported_as_a_bug(monkeypatch, number):
    """Out of descriptors, pids or memory at the start.

    One line, no request to report a bug.
    """
    result = failing(monkeypatch, OSError(number, os.strerror(number)))
    assert result.exit_code == 1
    assert result.stderr == (
        f"Error: the machine refused what jobpool needs ({os.strerror(number)}); "
        "raise its limits of open files, processes and memory, or end something else\n"
    )


def test_a_machine_without_a_free_thread_is_not_reported_as_a_bug(monkeypatch):
    """Python has no exception of its own for this; the message is recognised."""
    result = failing(monkeypatch, RuntimeError("can't start new thread"))
    assert result.exit_code == 1
    assert "the machine refused what jobpool needs (can't start new thread)" in (
        result.stderr
    )


def test_ctrl_c_is_quiet(monkeypatch):
    """Exit code 130 and no traceback."""
    result = failing(monkeypatch, KeyboardInterrupt())
    assert (result.exit_code, result.output) == (130, "")


def test_a_reader_that_goes_away_ends_the_command_quietly(tmp_path):
    """`jobpool list | head -1` prints no traceback."""
    store = stored(tmp_path)
    from support.store.cli_store import enqueue

    enqueue(store, 3000)
    store.close()
    listing = subprocess.Popen(
        [*JOBPOOL, "list", "--json", "--limit", "3000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert json.loads(listing.stdout.readline())["id"] == 3000
    listing.stdout.close()
    with listing.stderr as stream:
        assert stream.read() == b""
    assert listing.wait(30) == Exit.PIPE


def test_a_terminal_that_cannot_show_a_text_gets_an_escape(tmp_path):
    """A note in any language is no bug of ours where the locale is Latin-1."""
    note = AuditEntry(
        who="ann", role="r", origin="o", action="a", target="{}", note="é 中"
    )
    store = stored(tmp_path)
    store.audit(note)
    store.close()
    result = subprocess.run(
        [*JOBPOOL, "audit"],
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        check=False,
    )
    assert result.returncode == 0
    assert result.stdout.endswith("é \\u4e2d\n".encode("latin-1"))


def test_a_closed_stdout_is_no_crash(tmp_path):
    """`jobpool list >&-` ends without a traceback of ours."""
    stored(tmp_path).close()
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m jobpool status >&-"],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_ctrl_c_in_a_real_process_is_quiet(tmp_path):
    """SIGINT while reading stdin: exit code 130, nothing on stderr."""
    stored(tmp_path).close()
    waiting = subprocess.Popen(
        [*JOBPOOL, "enqueue", "shop.thumbnail", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    batch = b'["a"]\n' * 1000
    waiting.stdin.write(batch)
    waiting.stdin.flush()
    assert waiting.stdout.readline().startswith(b"enqueued 1 2 ")
    waiting.send_signal(signal.SIGINT)
    assert waiting.wait(30) == Exit.INTERRUPTED
    assert waiting.stderr.read() == b""
    for stream in (waiting.stdin, waiting.stdout, waiting.stderr):
        stream.close()


# -- doctor ------------------------------------------------------------------------


def test_doctor_names_what_it_found(tmp_path):
    """It reports facts about kernel, machine and store, and changes nothing."""
    result = run("doctor")
    assert result.exit_code == 0, result.output
    assert "the first start creates it" in result.stdout
    assert list(tmp_path.iterdir()) == []
    stored(tmp_path).close()
    facts = {row["name"]: row for row in map(json.loads, _doctor_lines())}
    assert facts["pidfd"]["verdict"] == "fine"
    assert facts["journal_mode"]["value"] == "wal"
    assert "wal_reset_bug" in facts


def test_doctor_says_what_the_store_has_room_for(tmp_path, monkeypatch):
    """What is over its bound is a note that says what to do."""
    stored(tmp_path).close()
    monkeypatch.setattr("socket.gethostname", lambda: RUN.host)
    # A busy machine takes its time for a lock that is free.
    monkeypatch.setattr("jobpool.store.sqlite.capacity.HELD_S", 0.01)
    facts = {row["name"]: row for row in map(json.loads, _doctor_lines())}
    assert facts["writers_lock"]["figures"].keys() >= {"held_share", "wait_max_s"}
    assert facts["sqlite"]["value"] == "is enough for this queue"
    monkeypatch.setattr("jobpool.cli.diagnose.doctor.memory_bytes", lambda: 1)
    result = run("doctor")
    assert result.exit_code == 0, result.output
    (line,) = [one for one in result.stdout.splitlines() if one.startswith("sqlite ")]
    assert line.split()[1:3] == ["note", "outgrown;"]
    assert "jobpool move --to postgresql://" in line
    assert result.stdout.endswith("nothing is broken\n")


def _doctor_lines():
    return run("doctor", "--json").stdout.splitlines()


def test_doctor_fails_when_the_store_cannot_be_used(tmp_path):
    """Exit code 1 when something is broken, and it is named."""
    (tmp_path / "jobpool.db").write_bytes(b"not a database, certainly not one" * 100)
    result = run("doctor")
    assert result.exit_code == 1
    assert "Error: 1 found broken: store usable" in result.stderr
    missing = run("doctor", "--store", "sqlite:////no/such/place/x.db")
    assert missing.exit_code == 1
    assert "store's directory" in missing.stderr


# -- the machine -------------------------------------------------------------------


def tree(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("own", "files", "quota", "memory"),
    [
        ("0::/\n", {}, None, None),
        ("0::/\n", {"cpu.max": "max 100000\n", "memory.max": "max\n"}, None, None),
        ("0::/\n", {"cpu.max": "150000 100000\n", "memory.max": "4096\n"}, 1.5, 4096),
        (
            "0::/pod/box\n",
            {
                "pod/cpu.max": "200000 100000",
                "pod/box/cpu.max": "max 100000",
                "pod/memory.max": "9000",
                "pod/box/memory.max": "8000",
            },
            2.0,
            8000,
        ),
        (
            "4:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n1:name=systemd:/\n",
            {
                "cpu,cpuacct/docker/x/cpu.cfs_quota_us": "50000",
                "cpu,cpuacct/docker/x/cpu.cfs_period_us": "100000",
                "cpu,cpuacct/cpu.cfs_quota_us": "-1",
                "cpu,cpuacct/cpu.cfs_period_us": "100000",
                "memory/docker/x/memory.limit_in_bytes": "7000",
                "memory/memory.limit_in_bytes": "9223372036854771712",
            },
            0.5,
            7000,
        ),
        (
            "4:memory:/docker/x\n3:cpu:/docker/x\n",
            {
                "cpu/cpu.cfs_quota_us": "50000",
                "cpu/cpu.cfs_period_us": "100000",
                "memory/memory.limit_in_bytes": "7000",
            },
            0.5,
            7000,
        ),
    ],
)
def test_cgroup_limits_of_all_ancestors_hold(tmp_path, own, files, quota, memory):
    """Versions 2 and 1, host and container: the smallest limit on the path counts."""
    tree(tmp_path / "fs", files)
    tree(tmp_path, {"own": own})
    where = {"root": tmp_path / "fs", "own": tmp_path / "own"}
    assert resources.cpu_quota(**where) == quota
    assert resources.cgroup_memory_bytes(**where) == memory


def test_the_default_pool_size_follows_the_usable_cores(monkeypatch):
    """CPU affinity and quota limit the default size of the cpu pool; at least one."""
    monkeypatch.setattr(resources, "cpu_quota", lambda: 0.5)
    assert resources.cores() == 1
    monkeypatch.setattr(resources, "cpu_quota", lambda: None)
    assert resources.cores() == len(os.sched_getaffinity(0))
    assert resources.memory_bytes() > 2**20


def test_the_hosts_memory_is_what_the_host_says(tmp_path):
    """Also where there is no /proc/meminfo."""
    total = psutil.virtual_memory().total
    assert resources.host_memory_bytes() == total
    assert resources.host_memory_bytes(tmp_path / "none") == total
