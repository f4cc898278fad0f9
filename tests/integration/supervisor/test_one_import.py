"""A supervisor imports its application once, for all pools that may share that."""

import os
import signal
from pathlib import Path

import pytest

from jobpool.sandbox.system.procfs import process_start_time
from support.site.supervising import MARKER, PATIENCE_S, PRELUDE, Site, is_alive
from support.waiting import wait_until

HANDLERS = """
VERSION = "old"
with open(HERE / "imports", "a") as file:
    file.write(f"{os.getpid()}\\n")


@jobs.job("cpu", kind="hold", timeout="1m")
def hold_(gate):
    hold(gate)
    return [os.getpid(), VERSION]


@jobs.job("cpu", kind="pid")
def pid():
    return os.getpid()


@jobs.job("cpu", kind="version")
def version():
    return VERSION


@jobs.job("io", kind="variable")
def variable(name):
    return os.environ.get(name)
"""
WAITS = """
(HERE / f"loading.{os.getpid()}").touch()
while not (HERE / "go").exists():
    time.sleep(0.005)
"""
STARTS_A_THREAD = """
def start():
    if not (HERE / "started").exists():  # in the second zygote, and in no child
        (HERE / "started").touch()
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()


os.register_at_fork(after_in_child=start)
"""
DIES_AS_IT_FORKS = """
def die():
    if not (HERE / "died").exists():
        (HERE / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)


os.register_at_fork(before=die)
"""
NEW_CODE = """
VERSION = "new"
"""
POOLS = "cpu=1,io=1"


@pytest.fixture
def site(tmp_path):
    with Site(tmp_path, app=PRELUDE + HANDLERS) as site:
        yield site


def imports(site):
    """Return the pids of the processes that imported the application, in order."""
    path = site.folder / "imports"
    return list(map(int, path.read_text().split())) if path.exists() else []


def zygotes(site, supervisor, count=2):
    """Return the zygotes, once they are this many and all children are on record."""
    return wait_until(
        lambda: found if len(found := site.zygotes(supervisor)) == count else None,
        PATIENCE_S,
        f"{count} zygotes",
    )


def both_work(site):
    """Run a job in each pool."""
    assert site.result(site.add("pid")) > 0
    assert site.result(site.add("variable", {"name": "NOWHERE"}, pool="io")) is None


def renew_cpu(site):
    """Run a job in a child of the zygote that cpu has now."""
    os.kill(site.result(site.add("pid")), signal.SIGKILL)
    assert site.result(site.add("pid")) > 0


def append(site, code):
    """Make code a part of the application."""
    path = site.folder / "jobs.py"
    path.write_text(path.read_text() + code)


def test_two_pools_import_the_application_once(site):
    """The second pool's zygote is forked from the first one, and is another process."""
    supervisor = site.start(POOLS)
    both_work(site)
    assert len(imports(site)) == 1
    assert set(imports(site)) < set(zygotes(site, supervisor))
    assert supervisor.events("import_not_shared") == []
    assert supervisor.stop() == 0


def test_the_zygote_starts_before_its_supervisor_has_been_imported(site):
    """If no configuration forbids it: both import side by side."""
    # Forked from a process that has imported it, both would start in the same moment.
    supervisor = site.launch("--pools", "cpu=1", "--log-format", "json")
    supervisor.wait_ready()
    (zygote,) = zygotes(site, supervisor, count=1)
    threads = [*Path(f"/proc/{supervisor.pid}/task").iterdir()]
    threads.remove(Path(f"/proc/{supervisor.pid}/task/{supervisor.pid}"))
    begun = [process_start_time(int(each.name)) for each in threads]
    assert process_start_time(zygote) < min(filter(None, begun))  # one may be gone


def test_the_death_of_the_one_that_imported_costs_nobody(site):
    """The others and all children go on; its next is forked from one that lives.

    Nor does the end of that next one, in a reload, cost the other's children anything.
    """
    supervisor = site.start("cpu=2,io=2")
    held = [site.add("hold", {"gate": name}, pool=name) for name in ("cpu", "io")]
    children = [site.wait_begun(job).pid for job in held]
    (root,) = imports(site)
    (other,) = set(zygotes(site, supervisor)) - {root}
    os.kill(root, signal.SIGKILL)
    assert supervisor.wait_event("zygote_failed")["pool"] == "cpu"
    renew_cpu(site)
    (branch,) = set(zygotes(site, supervisor)) - {other}
    assert imports(site) == [root]
    supervisor.send(signal.SIGHUP)
    for name in ("cpu", "io"):
        supervisor.wait_event("pool_reloaded", pool=name)
    both_work(site)
    assert all(map(is_alive, children))
    site.open_gate("cpu")
    assert site.result(held[0])[0] == children[0]
    wait_until(lambda: not is_alive(branch), PATIENCE_S, "the end of the former one")
    assert is_alive(children[1])
    site.open_gate("io")
    assert site.result(held[1])[0] == children[1]
    assert len(supervisor.events("zygote_failed")) == 1


def test_a_forked_zygote_ends_the_children_of_the_lost_one(site):
    """If the supervisor dies too, nothing of its jobs is left."""
    supervisor = site.start("cpu=2,io=1")
    child = site.wait_begun(site.add("hold", {"gate": "never"})).pid
    (root,) = imports(site)
    os.kill(root, signal.SIGKILL)
    renew_cpu(site)
    supervisor.kill()
    wait_until(lambda: not is_alive(child), PATIENCE_S, "the child's end")
    site.wait_nobody()


def test_a_reload_imports_once_and_leaves_no_gap(site):
    """Running jobs end in the old code; others begin meanwhile, then in the new."""
    supervisor = site.start("cpu=2,io=1")
    held = site.add("hold", {"gate": "open"})
    child = site.wait_begun(held).pid
    append(site, NEW_CODE + WAITS)
    supervisor.send(signal.SIGHUP)
    wait_until(
        lambda: list(site.folder.glob("loading.*")), PATIENCE_S, "the second import"
    )
    assert site.result(site.add("version")) == "old"
    site.finish(site.add("variable", {"name": "NOWHERE"}, pool="io"))
    site.open_gate("go")
    for pool in ("cpu", "io"):
        supervisor.wait_event("pool_reloaded", pool=pool)
    assert site.result(site.add("version")) == "new"
    assert is_alive(child)
    site.open_gate("open")
    assert site.result(held) == [child, "old"]
    both_work(site)
    assert len(imports(site)) == 2
    assert len(list(site.folder.glob("loading.*"))) == 1


def test_a_reload_that_fails_leaves_every_pool_as_it_was(site):
    """One import fails for both, and both say so."""
    supervisor = site.start(POOLS)
    append(site, "raise RuntimeError('new and broken')\n")
    supervisor.send(signal.SIGHUP)
    wait_until(lambda: len(supervisor.events("alarm")) == 2, PATIENCE_S, "two alarms")
    assert all("new and broken" in e["text"] for e in supervisor.events("alarm"))
    assert len(imports(site)) == 2
    both_work(site)


def test_a_pool_that_sees_other_variables_imports_for_itself(site):
    """What one pool may see is never in the memory of another's children."""
    config = f'[pools.cpu]\nenv = ["PATH", "{MARKER}"]\n'
    (site.folder / "jobpool.toml").write_text(config)
    supervisor = site.start(POOLS, env={"SECRET": "s3cret"})
    assert site.result(site.add("variable", {"name": "SECRET"}, pool="io")) == "s3cret"
    assert len(imports(site)) == 2
    (event,) = supervisor.events("import_not_shared")
    assert (event["pool"], "other variables" in event["reason"]) == ("io", True)
    reports = wait_until(
        lambda: site.cli("status")[0]["reports"], PATIENCE_S, "the first report"
    )
    assert reports[0]["pools"]["io"]["own_import"] == event["reason"]
    assert "own_import" not in reports[0]["pools"]["cpu"]


def test_an_application_that_starts_threads_after_a_fork_is_imported_again(site):
    """A forked zygote with threads cannot fork: the pool says so and imports."""
    append(site, STARTS_A_THREAD)
    supervisor = site.start(POOLS)
    (event,) = supervisor.events("import_not_shared", pool="io")
    assert "threads do not survive a fork" in event["reason"]
    assert len(imports(site)) == 2
    both_work(site)


def test_those_that_wait_for_an_import_that_is_killed_import_themselves(site):
    """Nothing else is at fault, and both pools start."""
    append(site, WAITS)
    supervisor = site.launch("--pools", POOLS, "--log-format", "json")
    wait_until(lambda: imports(site), PATIENCE_S, "the import")
    os.kill(imports(site)[0], signal.SIGKILL)
    wait_until(lambda: len(imports(site)) == 2, PATIENCE_S, "another import")
    site.open_gate("go")
    supervisor.wait_ready()
    both_work(site)
    assert len(imports(site)) == 2


def test_one_that_dies_as_it_forks_another_is_replaced(site):
    """Its pool and the other one have zygotes in the end; one more import is made."""
    append(site, DIES_AS_IT_FORKS)
    supervisor = site.start("cpu=1,io=1")
    both_work(site)
    assert len(zygotes(site, supervisor)) == 2
    assert len(imports(site)) == 2
    assert supervisor.events("import_not_shared") == []
    supervisor.wait_event("zygote_failed")
    (failed,) = supervisor.events("zygote_failed")
    assert failed["pool"] == "cpu"


def test_a_zygote_killed_in_a_reload_costs_no_more_than_that(site):
    """The new one takes over, from nobody; what runs goes on."""
    supervisor = site.start("cpu=2,io=1")
    held = site.add("hold", {"gate": "open"})
    child = site.wait_begun(held).pid
    (root,) = imports(site)
    append(site, NEW_CODE + WAITS)
    supervisor.send(signal.SIGHUP)
    wait_until(
        lambda: list(site.folder.glob("loading.*")), PATIENCE_S, "the second import"
    )
    (site.folder / "go").touch()
    os.kill(root, signal.SIGKILL)
    for pool in ("cpu", "io"):
        supervisor.wait_event("pool_reloaded", pool=pool)
    assert site.result(site.add("version")) == "new"
    site.open_gate("open")
    assert site.result(held) == [child, "old"]
    assert supervisor.stop() == 0


def test_a_pool_without_preload_waits_for_no_other(site):
    """Its children import for themselves; the others' zygotes do not count."""
    (site.folder / "jobpool.toml").write_text("[pools.io]\npreload = false\n")
    site.start(POOLS)
    both_work(site)
    assert len(imports(site)) == 3  # the cpu pool's, the probe, and io's child
