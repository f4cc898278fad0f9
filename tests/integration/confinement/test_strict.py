"""The strict level: what an enclosed child cannot do, and what it still can.

As root, all tests are run again as an ordinary user, for whom it works differently.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from multiprocessing import shared_memory
from pathlib import Path

import pytest

from jobpool.core.config.settings import SandboxLevel
from jobpool.core.isolation.measures import (
    OWN_FILES,
    Enclosure,
    Feature,
    obstacles,
    variables,
)
from jobpool.sandbox.confinement import mounts
from jobpool.sandbox.confinement.features import lacking
from jobpool.sandbox.confinement.namespaces import PROCESSES_MAX, USERS_FROM
from jobpool.sandbox.system.procfs import descendants_of, process_stat
from support.machine.sandbox_rig import PATIENCE_S, Rig, lockdown_of, pool_of
from support.waiting import wait_until

MISSING = lacking()
WHY_NOT = obstacles(OWN_FILES, MISSING)
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
NO_SUCH = "No such file or directory"
DENIED = "Permission denied"
READ_ONLY = "Read-only file system"
REFUSED = (DENIED, READ_ONLY)
NOT_PERMITTED = "Operation not permitted"
IS_ROOT = os.geteuid() == 0
MIB = 2**20
NOBODY = 65534
AGAIN_S_MAX = 400


def strict(**options):
    return lockdown_of(sandbox=SandboxLevel.STRICT, **options)


@pytest.fixture(scope="module")
def rig(tmp_path_factory):
    rig = Rig(tmp_path_factory.mktemp("run"), "confined")
    rig.loaded()
    yield rig
    rig.close()


@pytest.fixture
def open_path(tmp_path):
    """A directory that everybody may use, as root's children need it."""
    tmp_path.chmod(0o777)
    return tmp_path


@pytest.fixture(scope="module")
def child(rig):
    return rig.child(lockdown=strict(), memory_backstop_bytes=64 * MIB)


@pytest.fixture(scope="module")
def found(rig, child):
    return rig.result(child, "surroundings_of_mine")


# -- what it sees --------------------------------------------------------------------


def test_it_sees_itself_and_its_init(found):
    """No host process is in its /proc, so no other environment or memory is either."""
    assert (found["pid"], found["pids"]) == (2, [1, 2])


def test_a_strict_child_has_no_privileges(rig, child, found):
    """It has no capability; root's child is a user that no other process is."""
    assert found["capabilities"] == 0
    assert found["processes"] == PROCESSES_MAX
    if IS_ROOT:
        assert (found["uid"], found["groups"]) == (USERS_FROM + child.job_pid, [])
        other = rig.child(lockdown=strict())
        assert rig.result(other, "surroundings_of_mine")["uid"] != found["uid"]
    else:
        assert found["uid"] == os.geteuid()


def test_it_has_directories_of_its_own(found):
    """It begins in an empty directory, which is TMPDIR and HOME as well."""
    assert (found["cwd"], found["places"]) == (mounts.OWN, [mounts.OWN])
    assert found["shm"] == []


def test_a_strict_child_sees_nothing_of_the_host_beyond_what_it_needs(
    rig, child, found, tmp_path
):
    """No home directory, no store, no server's socket: not even their names."""
    assert {"srv", "home", "mnt", "opt", "boot"}.isdisjoint(found["root"])
    assert all(Path("/", name).exists() for name in found["root"])
    secret = tmp_path / "jobpool.db"
    secret.write_text("secret")
    secret.chmod(0o666)
    for path in (str(secret), str(rig.directory), "/var/run", "/sys/kernel"):
        assert rig.result(child, "look_at", path)[:2] == [NO_SUCH] * 2


def test_visible_files_cannot_be_changed(rig, child):
    """Programs, Python and the application are read-only."""
    here = str(Path(__file__).parents[1] / "apps" / "hostile.py")
    for path in (here, "/etc/passwd", os.__file__):
        seen, written = rig.result(child, "look_at", path)[1:]
        assert (seen, written in REFUSED) == ("done", True)
    for path in ("/", "/usr", str(Path(here).parent)):
        assert rig.result(child, "pry", ["write", f"{path}/new"]) in REFUSED


def test_nor_can_their_mode_and_times_be_changed(rig, open_path):
    """Its owner may, and Landlock does not object: the read-only mount does."""
    mine = open_path / "mine"
    mine.write_text("data")
    child = rig.child(lockdown=strict(read=(str(open_path),)))
    if IS_ROOT:
        os.chown(mine, USERS_FROM + child.job_pid, -1)
    before = mine.stat()
    assert rig.result(child, "touch_up", str(mine)) == [READ_ONLY] * 2
    assert mine.stat() == before


def test_a_writable_path_may_lie_in_a_readable_one(rig, open_path):
    """The writable one is writable as elsewhere, the other is not."""
    inner = open_path / "inner"
    inner.mkdir()
    inner.chmod(0o777)
    child = rig.child(lockdown=strict(read=(str(open_path),), write=(str(inner),)))
    rig.result(child, "write_text", str(inner / "new"))
    assert (inner / "new").read_text() == "written"
    assert rig.result(child, "pry", ["write", f"{open_path}/new"]) in REFUSED


def test_a_directory_that_the_application_has_opened_leads_nowhere(rig, child):
    """Through its descriptor, outside files could be seen, marked and connected to."""
    seen, above = rig.result(child, "look_through_descriptors")
    assert seen == [above]


def test_a_child_that_leaves_files_beside_its_directory_is_replaced(rig):
    """The next job neither reads it nor loses the space; its own directory is empty."""
    for kind in ("file", "memory", "segment", "queue", "semaphores"):
        child = rig.child(lockdown=strict())
        assert rig.run(child, "write_text", f"{mounts.OWN}/x").surprise == ""
        left = rig.run(child, "leave", kind).surprise
        assert left.startswith("it left outside of its directory: ")


@pytest.mark.parametrize("kind", ["descriptor", "mapping", "in flight"])
def test_a_child_that_keeps_disk_space_is_replaced(rig, kind):
    """A deleted file that is still held takes space in TMPDIR from the next job."""
    child = rig.child(lockdown=strict())
    assert rig.run(child, "fill", 2).surprise == ""
    kept = rig.run(child, "keep", kind).surprise
    assert kept == "it keeps 1MiB of its TMPDIR, in files deleted but not closed"


def test_a_child_that_keeps_inodes_is_replaced(rig):
    """There are 100,000 inodes, and an empty file takes one as well."""
    child = rig.child(lockdown=strict())
    kept = rig.run(child, "keep", "many in flight").surprise
    assert kept == "it keeps 200 files in its TMPDIR, deleted but not closed"


def test_the_store_is_covered_where_its_directory_is_shown(rig, open_path):
    """A database beside the application looks empty, and so does its run directory."""
    (open_path / "jobpool.db").write_text("secret")
    (open_path / "jobpool.db.run").mkdir()
    (open_path / "jobpool.db.run" / "slots").write_text("secret")
    (open_path / "data").write_text("data")
    hidden = tuple(str(open_path / name) for name in ("jobpool.db", "jobpool.db.run"))
    child = rig.child(lockdown=strict(read=(str(open_path),)), hidden=hidden)
    assert rig.result(child, "read_text", str(open_path / "data")) == "data"
    for path in (hidden[0], hidden[1], f"{hidden[1]}/slots"):
        assert "done" not in rig.result(child, "look_at", path)
    (open_path / "data").chmod(0o666)
    assert rig.result(child, "pry", ["write", str(open_path / "data")]) in REFUSED


def test_a_writable_path_is_shown_with_everything_in_it(rig, open_path):
    """Writes there reach the host, and a store there is not hidden."""
    store = open_path / "jobpool.db"
    store.write_text("mine")
    child = rig.child(lockdown=strict(write=(str(open_path),)), hidden=(str(store),))
    rig.result(child, "write_text", str(open_path / "new"))
    assert (open_path / "new").read_text() == "written"
    if not IS_ROOT:  # root's store is root's
        assert rig.result(child, "read_text", str(store)) == "mine"


def test_the_store_has_no_second_way_past_its_cover(rig, tmp_path_factory):
    """A process that may write where views are built finds no store there."""
    tmp = rig.directory / "tmp"
    tmp.mkdir(exist_ok=True)  # no child may have begun yet
    tmp.chmod(0o777)
    shown = [tmp_path_factory.mktemp(name) for name in ("before", "see")]
    assert str(shown[0]) < str(rig.directory) < str(shown[1])
    stores = [str(path / "jobpool.db") for path in shown]
    for path, store in zip(shown, stores, strict=True):
        path.chmod(0o777)
        Path(store).write_text("secret")
    child = rig.child(
        lockdown=strict(read=tuple(map(str, shown)), write=(str(tmp),)),
        hidden=tuple(stores),
    )
    ways = ["", *map(str, tmp.iterdir())]
    assert len(ways) > 1
    for way in ways:
        for store in stores:
            assert "done" not in rig.result(child, "look_at", f"{way}{store}")


def test_a_path_that_the_enclosure_replaces_cannot_be_shown(rig):
    """The host's /proc would reveal everything; such a path is refused, by name."""
    child = rig.child(lockdown=strict(read=("/",)), ready=False)
    failed = rig.message(child)
    assert "cannot be shown /" in failed.message
    assert rig.exit(child).exit_code == 1


# -- what it cannot reach ------------------------------------------------------------


def test_no_outside_process_is_signalled_traced_or_written(rig, child):
    """Pids outside mean nothing inside, and it cannot end its init."""
    assert rig.result(child, "pry", ["signal", os.getpid()]) == "No such process"
    assert rig.result(child, "pry", ["signal", 1]) == NOT_PERMITTED
    assert rig.result(child, "pry", ["memory", 1]) == DENIED
    assert rig.result(child, "look_at", "/proc/1/environ")[1:] == [DENIED] * 2
    assert rig.result(child, "look_at", "/proc/1/fd")[0] == DENIED


@pytest.mark.parametrize("way", ["unshare", "mount", "keyctl", "new user", "setns"])
def test_the_rest_of_the_kernel_is_out_of_reach(rig, child, way):
    """Namespaces and mounts of its own, keyrings and the like."""
    assert rig.result(child, "pry", [way, None]) == NOT_PERMITTED


def test_shared_memory_and_sockets_of_others_are_not_there(rig):
    """POSIX segments by name, System V by number, abstract sockets by address."""
    child = rig.child(lockdown=strict())
    segment = shared_memory.SharedMemory(create=True, size=10)
    try:
        with socket.socket(socket.AF_UNIX) as server:
            name = f"jobpool-test-{os.getpid()}"
            server.bind(f"\0{name}")
            server.listen()
            assert rig.result(child, "pry", ["abstract", name]) == NOT_PERMITTED
        path = f"/dev/shm/{segment.name}"  # which it then makes: that is its own
        assert rig.result(child, "look_at", path)[:2] == [NO_SUCH] * 2
    finally:
        segment.close()
        segment.unlink()


def test_writes_of_a_strict_child_are_bounded(rig, child):
    """By the pool's memory limit; it is gone with the attempt."""
    done, error = rig.result(child, "fill", 100)
    assert 32 <= done <= 64
    assert error == "No space left on device"
    assert rig.result(child, "fill", 10) == [10, ""]


def test_it_cannot_fill_the_hosts_table_of_processes(rig, child):
    """Its own limit applies, whatever else runs on the machine."""
    count, error = rig.result(child, "breed", PROCESSES_MAX + 10)
    assert PROCESSES_MAX - 10 < count < PROCESSES_MAX
    assert error == "Resource temporarily unavailable"


# -- what still works ----------------------------------------------------------------


def test_an_ordinary_handler_lives_well(rig):
    """Programs, multiprocessing, SQLite, TLS, temporary files, shared memory."""
    child = rig.child(lockdown=strict())
    assert rig.result(child, "live") == ["note", "own.db"]


def test_only_named_variables_are_there(tmp_path, monkeypatch):
    """The level's list and no other: a password is not among them."""
    monkeypatch.setenv("DATABASE_PASSWORD", "secret")
    monkeypatch.setenv("LC_TIME", "C")
    monkeypatch.setenv("ALSO", "1")
    asked = pool_of(sandbox=SandboxLevel.STRICT, env=("ALSO",))
    rig = Rig(tmp_path, "confined", env=variables(asked))
    try:
        rig.loaded()
        names = rig.result(rig.child(lockdown=strict()), "surroundings_of_mine")
    finally:
        rig.close()
    assert {"ALSO", "LC_TIME", "PATH", "HOME", "TMPDIR", "JOBPOOL_RUN"} <= set(
        names["environment"]
    )
    assert "DATABASE_PASSWORD" not in names["environment"]


# -- how it ends ---------------------------------------------------------------------


def is_running(pid):
    stat = process_stat(pid)
    return stat is not None and stat.state not in "ZX"


@pytest.mark.parametrize(
    ("how", "ended"),
    [
        ("exit", (3, None)),
        (signal.SIGABRT, (None, signal.SIGABRT)),
        (signal.SIGSEGV, (None, signal.SIGSEGV)),
        (signal.SIGKILL, (None, signal.SIGKILL)),
        (signal.SIGXCPU, (None, signal.SIGXCPU)),
    ],
)
def test_an_end_is_reported_exactly_and_no_process_survives(rig, how, ended):
    """As without an init. A daemon in its own session dies with the namespace."""
    child = rig.child(lockdown=strict())
    before = set(descendants_of(child.pid))
    assert before == {child.job_pid}
    rig.start(child, "leave_a_daemon_and", how)
    seen = set()
    wait_until(
        lambda: seen.update(descendants_of(child.pid)) or not is_running(child.pid),
        PATIENCE_S,
        "its init's end",
    )
    end = rig.exit(child)
    assert (end.exit_code, end.signal) == ended
    assert end.max_rss_bytes > MIB
    assert not any(map(is_running, seen))
    if how == signal.SIGSEGV:
        assert "in leave_a_daemon_and" in child.stack_text()


def test_a_kill_takes_the_tree_and_its_stack_comes_first(rig):
    """Also after a job has stopped the init, which reports the end."""
    child = rig.child(lockdown=strict())
    rig.start(child, "multiply", 10)
    wait_until(lambda: len(descendants_of(child.pid)) > 10, PATIENCE_S, "all run")
    child.dump_stack(dying=False)
    wait_until(lambda: "in multiply" in child.stack_text(), PATIENCE_S, "its stack")
    os.kill(child.pid, signal.SIGSTOP)
    below = descendants_of(child.pid)
    child.kill_tree()
    assert rig.exit(child).signal == signal.SIGKILL
    assert not any(map(is_running, below))


def test_a_child_is_killed_without_its_init(rig):
    """Killing the init ends everything, and that end is reported."""
    child = rig.child(lockdown=strict())
    os.kill(child.pid, signal.SIGKILL)
    end = rig.exit(child)
    assert (end.exit_code, end.signal) == (None, signal.SIGKILL)
    assert not is_running(child.job_pid)


def test_closing_a_zygote_ends_an_enclosed_child(tmp_path):
    """The init dies with the supervisor, and everything below it."""
    rig = Rig(tmp_path, "confined")
    rig.loaded()
    child = rig.child(lockdown=strict())
    rig.zygote.close()
    assert rig.exit(child).signal == signal.SIGKILL
    assert not is_running(child.job_pid)
    rig.close()


# -- both ways -----------------------------------------------------------------------


def test_the_kind_of_namespace_depends_on_the_user():
    """Root may make namespaces; others use a user namespace."""
    wanted = Enclosure.OWN_USER if IS_ROOT else Enclosure.USER_NAMESPACE
    assert strict().enclosure is wanted
    assert (Feature.USERS in MISSING) is not IS_ROOT


@pytest.mark.timeout(AGAIN_S_MAX + 60)
@pytest.mark.skipif(not IS_ROOT, reason="it is an ordinary user who runs this")
def test_all_of_this_holds_for_an_ordinary_user():
    """The same tests again, as nobody, in user namespaces."""
    script = Path(__file__).parents[2] / "support" / "site" / "ordinary_user.py"
    # Not in tmp_path: pytest closes what is above that to others, again and again.
    with tempfile.TemporaryDirectory() as base:
        shutil.chown(base, NOBODY)
        done = subprocess.run(
            [sys.executable, script, __file__, f"--basetemp={base}/own"],
            capture_output=True,
            text=True,
            timeout=AGAIN_S_MAX,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed, 1 skipped" in done.stdout
