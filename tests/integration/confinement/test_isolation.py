"""What children must not do: each measure is tested by a handler that tries it."""

import os
import socket
import subprocess
import sys

import pytest

from jobpool.core.config.settings import SandboxLevel
from jobpool.core.isolation.measures import Feature
from jobpool.sandbox.confinement.features import lacking
from support.machine.sandbox_rig import Rig, lockdown_of

NOT_PERMITTED = "Operation not permitted"
DENIED = "Permission denied"


def needs(*features):
    """Skip, with the reason, if the kernel lacks the feature."""
    missing = [lacking()[feature] for feature in features if feature in lacking()]
    return pytest.mark.skipif(bool(missing), reason="; ".join(missing))


@pytest.fixture
def rig(tmp_path):
    rig = Rig(tmp_path, "prying")
    rig.loaded()
    yield rig
    rig.close()


def child_of(rig, **options):
    return rig.child(lockdown=lockdown_of(**options))


def tried(rig, child, way, target=None):
    """Let a child try a way; return "done", or the error that it met."""
    return rig.result(child, "pry", [way, target])


@pytest.fixture
def stranger():
    """A process that is not a child, as the supervisor is not."""
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE
    ) as it:
        yield it.pid
        it.kill()


@needs(Feature.SCOPES)
@pytest.mark.parametrize(
    ("way", "error"), [("signal", NOT_PERMITTED), ("memory", DENIED)]
)
def test_nothing_outside_is_signalled_or_written(rig, stranger, way, error):
    """Neither the supervisor, nor strangers, nor the next job; not even by root."""
    first, second = child_of(rig), child_of(rig)
    for target in (os.getpid(), stranger, second.pid):
        assert tried(rig, first, way, target) == error
    assert tried(rig, first, "own child") == "done"


@needs(Feature.FILTERS)
@pytest.mark.parametrize(
    ("way", "error"),
    [
        ("leave", NOT_PERMITTED),
        ("sibling", NOT_PERMITTED),
        ("ptrace", NOT_PERMITTED),
        ("bpf", NOT_PERMITTED),
        ("reboot", NOT_PERMITTED),
        ("clone3", "Function not implemented"),
    ],
)
def test_calls_that_are_no_jobs_business_are_denied(rig, way, error):
    """Leaving the process tree that gets killed, tracing, changing the machine."""
    assert tried(rig, child_of(rig), way) == error


@needs(Feature.FILTERS)
@pytest.mark.parametrize(
    "way",
    [
        "idle",
        "param",
        "attr",
        "nice",
        "nice group",
        "nice user",
        "disk",
        "disk user",
        "high bits",
    ],
)
def test_no_other_process_loses_its_share_of_the_machine(rig, stranger, way):
    """CPU time and disk bandwidth: not the supervisor's, nor the next job's."""
    child, other = child_of(rig), child_of(rig)
    for target in (os.getpid(), stranger, other.pid):
        assert tried(rig, child, way, target) == NOT_PERMITTED
    assert tried(rig, child, "own scheduling") == "done"


@needs(Feature.FILTERS)
def test_affinity_may_be_set_except_for_the_supervisor_and_its_zygotes(rig, stranger):
    """Libraries set their threads' affinity by number, which no filter can check."""
    child = rig.child(lockdown=lockdown_of(), spared=(os.getpid(), rig.zygote.pid))
    for target in (os.getpid(), rig.zygote.pid):
        assert tried(rig, child, "cores", target) == NOT_PERMITTED
    assert tried(rig, child, "cores", stranger) == "done"
    assert tried(rig, child, "own scheduling") == "done"


def test_no_program_gives_a_child_more_rights(rig):
    """Unless the pool allows it."""
    assert tried(rig, child_of(rig), "gain") == NOT_PERMITTED
    assert tried(rig, child_of(rig, new_privileges=True), "gain") == "done"


@pytest.mark.parametrize("way", ["program", "multiprocessing", "threads", "temporary"])
def test_an_ordinary_handler_notices_nothing(rig, tmp_path, way):
    """Programs, processes, threads, files and sockets are as without the sandbox."""
    child = child_of(rig)
    assert tried(rig, child, way) == "done"
    assert tried(rig, child, "write", str(tmp_path / "written")) == "done"
    assert tried(rig, child, "local") == "done"


def test_at_level_off_nothing_is_in_force(rig, stranger):
    """The same attempts succeed then, so the tests above do test the measures."""
    child = child_of(rig, sandbox=SandboxLevel.OFF)
    assert tried(rig, child, "signal", stranger) == "done"
    assert tried(rig, child, "nice", stranger) == "done"
    assert tried(rig, child, "gain") == "done"
    done = rig.run(child, "pry", ["leave", None])
    assert done.ok
    assert "escape" in done.surprise


@pytest.fixture
def shelf(tmp_path):
    """Two directories with a file in each: one to write in, one not."""
    for name in ("mine", "yours"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "book").write_text("text")
    return tmp_path


@needs(Feature.FILE_RULES)
@pytest.mark.parametrize("way", ["write", "remove", "truncate", "rename", "link"])
def test_files_are_written_only_where_the_pool_says(rig, shelf, way):
    """Everywhere else they can be read, and not changed in any way."""
    child = child_of(rig, write=(str(shelf / "mine"),))
    book = "new" if way in {"link", "write"} else "book"
    assert tried(rig, child, way, str(shelf / "yours" / book)) == DENIED
    assert (shelf / "yours" / "book").read_text() == "text"
    if way != "link":  # a link across directories needs more than both
        assert tried(rig, child, way, str(shelf / "mine" / book)) == "done"


@needs(Feature.FILE_RULES)
@pytest.mark.parametrize("way", ["temporary", "null", "program", "threads"])
def test_without_writable_paths_there_is_still_a_temporary_directory(rig, way):
    """And /dev/null, for programs that it starts."""
    child = child_of(rig, write=())
    assert tried(rig, child, way) == "done"
    assert rig.run(child, "pry", [way, None]).surprise == ""


@needs(Feature.FILTERS)
@pytest.mark.parametrize("way", ["tcp", "udp"])
def test_without_network_no_socket_leads_out(rig, way):
    """TCP and UDP. Unix sockets and netlink queries still work."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert tried(rig, child_of(rig), way, port) == "done"
        child = child_of(rig, network=False)
        assert tried(rig, child, way, port) == DENIED
        assert tried(rig, child, "local") == "done"
        assert tried(rig, child, "interfaces") == "done"


@needs(Feature.FILTERS)
def test_an_option_holds_at_level_off_as_well(rig, stranger):
    """It was requested by name; the rest of the level is absent."""
    child = child_of(rig, sandbox=SandboxLevel.OFF, network=False)
    assert tried(rig, child, "udp", 9) == DENIED
    assert tried(rig, child, "signal", stranger) == "done"


def test_niceness_and_cores_are_the_pools(rig):
    """As configured, and they do not count as a change made by the handler."""
    core = min(os.sched_getaffinity(0))
    child = child_of(rig, nice=3, cpus=(core,))
    wanted = {"nice": os.nice(0) + 3, "cpus": [core]}
    for _ in range(2):
        done = rig.run(child, "surroundings")
        assert (done.surprise, done.ok) == ("", True)
    assert rig.result(child, "surroundings") == wanted
