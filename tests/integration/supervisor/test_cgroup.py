"""A supervisor's cgroup from start to end, and its use after a death."""

import os
import signal
from pathlib import Path

import pytest

from jobpool.core.isolation.cgroups import Control
from support.site.supervising import PATIENCE_S, Site, is_alive
from support.waiting import wait_until

APP = """
@jobs.job("cpu", kind="daemon")
def daemon():
    script = (
        "import os, time\\n"
        "os.setsid()\\n"
        "if os.fork(): os._exit(0)\\n"
        "open('daemon', 'w').write(str(os.getpid()))\\n"
        "time.sleep(1000)"
    )
    subprocess.Popen([sys.executable, "-c", script], env={}).wait()
    witness()
    time.sleep(1000)


@jobs.job("cpu", kind="cgroup")
def cgroup():
    return open("/proc/self/cgroup").read()
"""


@pytest.fixture
def site(tmp_path):
    with Site(tmp_path, APP) as site:
        yield site


@pytest.fixture
def supervisor(site):
    """Start a supervisor, and continue only if it has a cgroup."""
    supervisor = site.start("cpu=1")
    ready = supervisor.wait_ready()
    if Control.KILL not in ready["cgroup"]:
        pytest.skip(ready["cgroup_missing"][Control.KILL])
    return supervisor


def group_of(site):
    """Return the cgroup on record for the run here."""
    (record,) = site.folder.glob("jobpool.db.run/*/cgroup")
    return Path(record.read_text())


def test_controllers_in_force_are_reported_and_nothing_is_left(site, supervisor):
    """All three controllers are accounted for.

    The directory goes with the supervisor.
    """
    ready = supervisor.wait_ready()
    assert set(ready["cgroup"]) | set(ready["cgroup_missing"]) == set(Control)
    assert not set(ready["cgroup"]) & set(ready["cgroup_missing"])
    path = group_of(site)
    assert str(supervisor.pid) in (path / "supervisor/cgroup.procs").read_text()
    where = site.result(site.add("cgroup"))
    assert f"/{path.name}/" in where
    assert supervisor.stop() == 0
    assert not path.exists()


def test_a_hidden_daemon_does_not_outlive_its_run(site, supervisor):
    """Supervisor, zygote and child are killed at once.

    Only the cgroup contains the daemon.
    """
    job_id = site.add("daemon")
    child = site.wait_begun(job_id).pid
    file = site.folder / "daemon"
    wait_until(lambda: file.exists() and file.read_text(), PATIENCE_S, "the daemon")
    daemon, path = int(file.read_text()), group_of(site)
    supervisor.send(signal.SIGSTOP)  # else it would sweep what the child leaves
    killed = (*site.zygotes(supervisor), child)
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    supervisor.kill()
    # Else the next one may find them, and count them among those that it has killed.
    wait_until(lambda: not any(map(is_alive, killed)), PATIENCE_S, "their ends")
    assert is_alive(daemon)
    second = site.start("cpu=1")
    reclaimed = second.wait_event("run_reclaimed")
    assert (reclaimed["killed"], reclaimed["lost"]) == (1, 1)
    assert not is_alive(daemon)
    wait_until(lambda: not path.exists(), PATIENCE_S, "the cgroup is removed")
