"""`jobpool alive` beside real supervisors, and what systemd hears of them."""

import array
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from jobpool.cli.launch.heartbeat_file import FILE, LifeSign, Stage, read_sign
from jobpool.core.events.supervisor import SupervisorDraining, SupervisorReady
from jobpool.errors import ConfigError
from jobpool.sandbox.runs import run_directory
from jobpool.sandbox.runs.run_directory import RunDirectory
from support.postgres.server import OwnServer
from support.site.supervising import PATIENCE_S, Site
from support.waiting import wait_until

APP = """
@jobs.job("cpu", kind="hold")
def held(gate):
    hold(gate)
"""
SLOW_APP = """
while not (HERE / "load").exists():
    time.sleep(0.005)

@jobs.job("cpu", kind="hold")
def held(gate):
    hold(gate)
"""


def jobpool(folder, *words, env=None):
    """Run a command as a user would; return its result."""
    own = {k: v for k, v in os.environ.items() if not k.startswith("JOBPOOL_")}
    done = subprocess.run(
        [sys.executable, "-m", "jobpool", *words],
        cwd=folder,
        env=own | (env or {}),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.stderr == "", done.stderr
    return done


def probe(folder, *flags, env=None):
    """Run the probe as Kubernetes does; return its exit code and its one line."""
    done = jobpool(folder, "alive", *flags, env=env)
    assert done.stdout.count("\n") == 1
    return done.returncode, done.stdout.strip()


def status_of(folder, *flags):
    """Return what an operator sees."""
    done = jobpool(folder, "status", *flags)
    assert done.returncode == 0
    return done.stdout


@pytest.fixture
def site(tmp_path):
    with Site(tmp_path, APP) as made:
        yield made


def test_a_supervisor_that_works_is_alive_and_ready(site):
    """Both probes succeed and name it; after its end neither does."""
    supervisor = site.start("cpu=1")
    _code, line = wait_until(
        lambda: (found := probe(site.folder, "--ready"))[0] == 0 and found,
        PATIENCE_S,
        "ready",
    )
    assert line.startswith(f"supervisor {supervisor.pid} is ready; its loop turned ")
    assert probe(site.folder)[0] == 0
    assert supervisor.stop() == 0
    nobody = (
        f"no supervisor of sqlite:///{site.folder}/jobpool.db runs here: no process "
        "has a run directory locked"
    )
    assert probe(site.folder) == (1, nobody)


def test_a_killed_supervisor_is_not_alive(site):
    """Its heartbeat file is still fresh, but its lock is free."""
    supervisor = site.start("cpu=1")
    supervisor.kill()
    assert probe(site.folder)[0] == 1


def test_status_tells_the_dead_from_the_living(site):
    """A dead run is recognised before its lease expires and before a reclaim."""
    supervisor = site.start("cpu=1")
    assert "SILENT" not in status_of(site.folder)
    supervisor.kill()
    assert "SILENT: it has died; the next supervisor" in status_of(site.folder)
    (found,) = json.loads(status_of(site.folder, "--json"))["supervisors"]
    assert found["alive"] is False
    assert [run.id for run in site.store.open_runs()] == [found["id"]]


def test_status_tells_a_stopped_supervisor_from_one_that_serves(site):
    """At once, with what lets it go on; its lease is not over yet."""
    supervisor = site.start("cpu=1")
    os.kill(supervisor.pid, signal.SIGSTOP)
    try:
        wait_until(
            lambda: f"kill -CONT {supervisor.pid}" in status_of(site.folder),
            PATIENCE_S,
            "it is said to be stopped",
        )
    finally:
        os.kill(supervisor.pid, signal.SIGCONT)
    wait_until(
        lambda: "SILENT" not in status_of(site.folder), PATIENCE_S, "it is heard of"
    )


def test_the_probe_fails_where_no_supervisor_ever_ran(tmp_path):
    """The probe opens no store and creates none."""
    assert probe(tmp_path)[0] == 1
    assert list(tmp_path.iterdir()) == []


def test_a_supervisor_that_is_loading_is_alive_and_not_ready(tmp_path):
    """A slow import is no reason to kill, nor a reason to continue a rollout."""
    with Site(tmp_path, SLOW_APP) as site:
        site.launch("--pools", "cpu=1", "--log-format", "json")
        wait_until(lambda: probe(site.folder)[0] == 0, PATIENCE_S, "its first sign")
        code, line = probe(site.folder, "--ready")
        assert code == 1
        assert line.endswith("loading the application, or cannot open its store yet")
        site.open_gate("load")
        wait_until(
            lambda: probe(site.folder, "--ready")[0] == 0, PATIENCE_S, "it is ready"
        )


def test_a_draining_supervisor_is_alive_and_not_ready(site):
    """A draining supervisor must not be killed, but it takes no new jobs."""
    # Longer than all that is asked of it meanwhile takes on a busy machine.
    supervisor = site.start("cpu=1", "--drain", "10m")
    job = site.add("hold", {"gate": "go"})
    site.wait_begun(job)
    supervisor.send(signal.SIGTERM)
    supervisor.wait_event("supervisor_draining")
    wait_until(
        lambda: probe(site.folder, "--ready")[1].endswith("takes no more jobs"),
        PATIENCE_S,
        "it is not ready",
    )
    assert probe(site.folder)[0] == 0
    site.open_gate("go")
    assert supervisor.wait_exit() == 0


def test_a_loop_that_hangs_fails_the_probe(site):
    """The loop may not stand still for longer than --within. Then it is alive again."""
    supervisor = site.start("cpu=1")
    # A thread writes it: one that is stopped before gives none, and does not hang.
    wait_until(lambda: probe(site.folder)[0] == 0, PATIENCE_S, "its first sign")
    supervisor.send(signal.SIGSTOP)
    _code, line = wait_until(
        lambda: (found := probe(site.folder, "--within", "2s"))[0] == 1 and found,
        PATIENCE_S,
        "the probe fails",
    )
    assert line.startswith(f"supervisor {supervisor.pid} hangs: its loop turned ")
    assert line.endswith(" ago, expected within 2s")
    assert probe(site.folder, "--within", "1h")[0] == 0
    supervisor.send(signal.SIGCONT)
    wait_until(
        lambda: probe(site.folder, "--within", "2s")[0] == 0, PATIENCE_S, "alive again"
    )


def test_a_store_outage_does_not_fail_the_liveness_probe(site):
    """The probe reports alive while the database is away, and ready once it is back."""
    supervisor = site.start("cpu=1")
    wait_until(lambda: probe(site.folder)[0] == 0, PATIENCE_S, "its first sign")
    (site.folder / "jobpool.db").rename(site.folder / "away")
    supervisor.wait_event("store_trouble")
    wait_until(lambda: probe(site.folder, "--ready")[0] == 1, PATIENCE_S, "not ready")
    assert probe(site.folder)[0] == 0
    (site.folder / "away").rename(site.folder / "jobpool.db")
    wait_until(lambda: probe(site.folder, "--ready")[0] == 0, PATIENCE_S, "ready again")


def test_a_server_outage_does_not_fail_the_liveness_probe(site):
    """The same with PostgreSQL, where JOBPOOL_RUN_DIR says where to look."""
    own = OwnServer()
    try:
        (site.folder / "run").mkdir()
        env = {
            "JOBPOOL_STORE": own.fresh_url(),
            "JOBPOOL_RUN_DIR": str(site.folder / "run"),
        }
        supervisor = site.start("cpu=1", env=env)
        wait_until(
            lambda: probe(site.folder, "--ready", env=env)[0] == 0, PATIENCE_S, "ready"
        )
        own.stop("immediate")
        supervisor.wait_event("store_trouble")
        wait_until(
            lambda: probe(site.folder, "--within", "5s", env=env)[0] == 0,
            PATIENCE_S,
            "its loop turns",
        )
        _code, line = wait_until(
            lambda: (found := probe(site.folder, "--ready", env=env))[0] and found,
            PATIENCE_S,
            "not ready",
        )
        assert line.endswith("is not ready: it cannot use its store at the moment")
    finally:
        own.close()


def test_a_broken_configuration_does_not_fail_the_liveness_probe(site):
    """With JOBPOOL_RUN_DIR the probe reads no configuration to find a supervisor."""
    site.start("cpu=1")
    wait_until(
        lambda: probe(site.folder, "--ready")[0] == 0, PATIENCE_S, "it says that"
    )
    (site.folder / "jobpool.toml").write_text("= broken")
    for folder in ("jobpool.db.run", "."):
        env = {"JOBPOOL_RUN_DIR": str(site.folder / folder)}
        assert probe(site.folder, "--ready", env=env)[0] == 0


def test_a_supervisor_of_another_container_does_not_count(tmp_path, monkeypatch):
    """Containers may share a directory; each probe asks about its own supervisor."""
    root = tmp_path / "jobpool.db.run"
    with RunDirectory.create(root, "own") as own:
        LifeSign().begin(own.path)
        assert probe(tmp_path) == (
            1,
            f"supervisor {os.getpid()} has given no sign of life yet",
        )
    monkeypatch.setattr(run_directory, "pid_namespace", lambda: 1)
    with RunDirectory.create(root, "other"):
        assert "no supervisor" in probe(tmp_path)[1]


@pytest.mark.parametrize("text", ["ready", "ready soon\n", "\0" * 40, "gone 1.0\n"])
def test_a_damaged_heartbeat_file_fails_the_probe(tmp_path, text):
    """Whatever the heartbeat file holds: one line and exit code 1."""
    with RunDirectory.create(tmp_path / "jobpool.db.run", "r") as run:
        (run.path / FILE).write_text(text)
        assert probe(tmp_path)[1].endswith("has given no sign of life yet")


def test_the_probe_imports_little(tmp_path):
    """It runs every few seconds beside the jobs, so it imports only what it needs."""
    code = (
        "import sys\n"
        "from jobpool.cli.root import cli\n"
        "cli(['alive'], standalone_mode=False)\n"
        "heavy = {'rich', 'psycopg', 'jsonschema', 'multiprocess'} & set(sys.modules)\n"
        "heavy |= {m for m in sys.modules if m.startswith('jobpool.supervisor')}\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


# -- the file itself ---------------------------------------------------------------


def test_the_heartbeat_file_follows_the_turns_and_the_stage(tmp_path):
    """Nothing before the first turn; then the time of the last turn, and the stage."""
    sign = LifeSign()
    sign.begin(tmp_path)
    assert read_sign(tmp_path) is None

    def reads(stage, turned_s):
        def same():
            found = read_sign(tmp_path)
            return found and (found.stage, found.turned_s) == (stage, turned_s)

        wait_until(same, PATIENCE_S, f"{stage} {turned_s}")

    assert sign.turned(5.0) == 6.0
    reads(Stage.LOADING, 5.0)
    ready = SupervisorReady(
        at_ms=0, pid=1, run_id="r", pools={}, store="s", app="a", version="v"
    )
    sign.observe(ready)
    reads(Stage.READY, 5.0)
    sign.turned(1234567.25)
    reads(Stage.READY, 1234567.25)
    sign.observe(SupervisorDraining(at_ms=0, pid=1, reason="r", running=0, drain_s=1.0))
    sign.observe(ready)
    reads(Stage.ENDING, 1234567.25)
    sign.close()
    assert sign.turned(9.0) == 10.0


def test_a_directory_that_cannot_be_written_to_stops_the_start(tmp_path):
    """A supervisor whose probe could never succeed must not start."""
    sign = LifeSign()
    with pytest.raises(ConfigError, match="cannot make the file"):
        sign.begin(tmp_path / "missing")
    sign.close()


# -- systemd -----------------------------------------------------------------------


def test_a_supervisor_tells_systemd_and_feeds_its_watchdog(site):
    """Only its own process speaks, as NotifyAccess=main demands; children cannot."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        systemd.settimeout(PATIENCE_S)
        systemd.bind(str(site.folder / "notify"))
        supervisor = site.start(
            "cpu=1",
            env={
                "NOTIFY_SOCKET": str(site.folder / "notify"),
                "WATCHDOG_USEC": "400000",
            },
        )
        speakers = set()

        def hear(start):
            """Return the next message that begins so."""
            while True:
                data, ancillary, *_ = systemd.recvmsg(4096, socket.CMSG_SPACE(12))
                credentials = array.array("i", ancillary[0][2])
                speakers.add(credentials[0])
                if data.decode().startswith(start):
                    return data.decode()

        assert hear("READY=1").endswith(f"sqlite:///{site.folder}/jobpool.db")
        for _ in range(3):
            hear("WATCHDOG=1")
        for pid in site.processes():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                environ = Path(f"/proc/{pid}/environ").read_bytes()
                assert b"NOTIFY_SOCKET" not in environ
        supervisor.send(signal.SIGHUP)
        hear("RELOADING=1")
        hear("READY=1")
        (site.folder / "jobpool.toml").write_text("= broken")
        supervisor.send(signal.SIGHUP)
        hear("RELOADING=1")
        assert "not reloaded" in hear("READY=1")
        supervisor.send(signal.SIGTERM)
        hear("STOPPING=1")
        assert supervisor.wait_exit() == 0
        assert speakers == {supervisor.pid}
