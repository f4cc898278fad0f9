"""Refused starts: nothing runs, and the message names the remedy."""

import os
import re
import signal

import pytest

from support.site.supervising import PATIENCE_S, PRELUDE, Site
from support.waiting import wait_until

FINE = """
@jobs.job("cpu", kind="work")
def work():
    return os.getpid()
"""


@pytest.fixture
def site(tmp_path):
    with Site(tmp_path, FINE) as site:
        yield site


def refused(site, *flags, code, app=None, env=None):
    """Expect that a start ends with this exit code; return its output."""
    if app is not None:
        (site.folder / "jobs.py").write_text(app)
    supervisor = site.launch(*flags, "--log-format", "json", env=env, nursed=True)
    assert supervisor.wait_exit() == code, supervisor.said()
    assert supervisor.events("supervisor_ready") == []
    site.wait_nobody()
    runs = site.folder / "jobpool.db.run"
    assert not runs.exists() or list(runs.iterdir()) == []
    said = supervisor.said()
    assert "/jobpool/supervisor/" not in said, "no traceback of ours"
    return said


@pytest.mark.parametrize(
    ("pools", "message"),
    [
        ("cpu=0", "--pools cpu: 0 is out of range"),
        ("cpu=abc", "--pools cpu: 'abc' is not"),
        ("cpu=4,cpu=2", "pool 'cpu' is named twice"),
        ("", "is not of the form"),
        ("cpu=4..2", "4..2"),
        ("cpu=2000", "out of range"),
        ("cpu", "is not of the form"),
        ("=4", "--pools"),
        ("c pu=4", "'c pu' is not a valid name"),
    ],
)
def test_bad_pools(site, pools, message):
    """The error names what was expected, before anything is made."""
    said = refused(site, "--pools", pools, code=2)
    assert message in said
    assert not (site.folder / "jobpool.db").exists()


@pytest.mark.parametrize("preload", [True, False])
def test_an_application_that_does_not_import(site, preload):
    """Its own traceback is shown, once, with exit code 3: no crash loop."""
    if not preload:
        (site.folder / "jobpool.toml").write_text("[pools.cpu]\npreload = false\n")
    app = "def broken():\n    return 1 / 0\n\nbroken()\n"
    said = refused(site, "--pools", "cpu=2", code=3, app=app)
    assert "ZeroDivisionError: division by zero" in said
    assert 'jobs.py", line 2, in broken' in said
    assert said.count("ZeroDivisionError: division by zero") <= 2


@pytest.mark.parametrize(
    ("app", "message"),
    [
        ("import nowhere_to_be_found\n", "nowhere_to_be_found"),
        ("def half(:\n", "SyntaxError"),
        ("import sys\nsys.exit(5)\n", "SystemExit"),
        ("import os\nos._exit(5)\n", "ended"),
        ("import os\nos.abort()\n", "ended"),
        ("x = 1\n", "JobPool"),
    ],
)
def test_a_module_without_an_application_is_refused(site, app, message):
    """Whatever is wrong with it: exit code 3, and what it is instead."""
    assert message in refused(site, "--pools", "cpu=1", code=3, app=app)


@pytest.mark.parametrize("preload", [True, False])
def test_an_application_that_hangs_while_importing(site, preload):
    """It is given app_timeout and then ended; the setting is named."""
    (site.folder / "jobpool.toml").write_text(
        f'app_timeout = "1s"\n[pools.cpu]\npreload = {str(preload).lower()}\n'
    )
    app = "import time\ntime.sleep(600)\n"
    said = refused(site, "--pools", "cpu=1", code=3, app=app)
    assert "did not load within 1 s" in said
    assert "app_timeout" in said


def test_an_application_that_allocates_while_importing(site):
    """Using more memory than a child may is refused before the host runs short."""
    app = "import time\nkept = b'x' * (300 << 20)\ntime.sleep(600)\n"
    said = refused(site, "--pools", "cpu=1", "--memory", "128MiB", code=3, app=app)
    assert "while it was imported" in said
    assert "128MiB" in said


def test_an_application_that_leaves_a_thread(site):
    """A process with threads cannot be forked safely.

    The thread is named, with a way out.
    """
    app = (
        "import threading, time\nfrom jobpool import JobPool\njobs = JobPool()\n"
        "threading.Thread(target=time.sleep, args=(600,), name='poller').start()\n"
        "@jobs.job('cpu')\ndef work(): ...\n"
    )
    said = refused(site, "--pools", "cpu=1", code=3, app=app)
    assert "poller" in said
    assert "preload = false" in said


def test_without_preload_such_an_application_runs(site):
    """The way out works: each child imports the application itself."""
    (site.folder / "jobpool.toml").write_text("[pools.cpu]\npreload = false\n")
    (site.folder / "jobs.py").write_text(
        "import os, threading, time\nfrom jobpool import JobPool\njobs = JobPool()\n"
        "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
        "@jobs.job('cpu', kind='work')\ndef work(): return threading.active_count()\n"
    )
    site.start("cpu=1")
    assert site.result(site.add("work")) == 2
    assert site.supervisors[0].stop() == 0


def test_pools_in_which_nothing_could_run(site):
    """All its jobs would wait forever: the error says how to run them."""
    app = (
        "from jobpool import JobPool\njobs = JobPool()\n"
        "@jobs.job('gpu')\ndef train(): ...\n"
    )
    said = refused(site, "--pools", "cpu=1", code=2, app=app)
    assert "--pools gpu=N" in said


def test_an_application_with_another_store(site, tmp_path):
    """Its jobs would go to a store that no supervisor reads."""
    app = (
        f"from jobpool import JobPool\njobs = JobPool('sqlite:///{tmp_path}/other.db')\n"
        "@jobs.job('cpu')\ndef work(): ...\n"
    )
    said = refused(site, "--pools", "cpu=1", code=2, app=app)
    assert "other.db" in said
    assert "jobpool.db" in said


@pytest.mark.parametrize("flags", [("--memory", "cpu=4MiB"), ("--memory", "1MiB")])
def test_a_memory_limit_below_a_bare_child(site, flags):
    """It is refused, with the memory that a child needs."""
    said = refused(site, "--pools", "cpu=1", *flags, code=2)
    assert re.search(r"below the [\d.]+MiB that a bare child .* needs", said)


def test_no_application_at_all(tmp_path):
    """No application named and no jobs.py: the message names the three ways."""
    with Site(tmp_path) as site:
        said = refused(site, "--pools", "cpu=1", code=2)
        assert "no application is named" in said
        assert "--app" in said


def test_an_application_that_is_not_there(site):
    """A misspelt module is not reported as jobpool's bug."""
    said = refused(site, "--pools", "cpu=1", "--app", "nowhere.jobs", code=3)
    assert "nowhere" in said


@pytest.mark.parametrize(
    "content", [b"this is no database" * 100, b"\0" * 4096], ids=["text", "zeros"]
)
def test_a_file_that_is_no_database(site, content):
    """A foreign file is left as it is."""
    path = site.folder / "jobpool.db"
    path.write_bytes(content)
    refused(site, "--pools", "cpu=1", code=4)
    assert path.read_bytes() == content


def test_a_broken_hook_of_a_childs_start_blames_no_job(site):
    """It is reported again and again, ever more rarely; jobs wait unharmed."""
    (site.folder / "jobs.py").write_text(
        (site.folder / "jobs.py").read_text() + "\n@jobs.on_child_start\n"
        "def connect():\n    if not (HERE / 'fixed').exists():\n"
        "        raise OSError('no route to the tracker')\n"
    )
    supervisor = site.start("cpu=2")

    def alarms():
        texts = [event["text"] for event in supervisor.events("alarm")]
        return [text for text in texts if "no route to the tracker" in text]

    wait_until(alarms, PATIENCE_S, "the alarm")
    assert "no child could be started" in alarms()[0]
    job_id, before = site.add("work"), len(alarms())
    wait_until(lambda: len(alarms()) >= before + 2, PATIENCE_S, "two more")
    assert (site.job(job_id).state, site.job(job_id).attempt) == ("runnable", 0)
    site.open_gate("fixed")
    assert site.finish(job_id).attempt == 1
    assert len(alarms()) < 30
    assert supervisor.stop() == 0


def test_a_damaged_row_stops_no_other_job(tmp_path):
    """A row written by hand is set aside; the others run."""
    with Site(tmp_path, FINE, config='unknown_for = "1s"\n') as site:
        site.start("cpu=1")
        bad = site.add("work", {"unexpected": os.getpid()})
        good = site.add("work")
        assert site.finish(good).state == "succeeded"
        job = site.finish(bad)
        assert (job.state, job.attempt) == ("dead", 1)
        assert "unexpected" in job.error


NAMED = """
@jobs.job("cpu", kind="shop.thumbnail", aliases=("thumb",), timeout="9s")
def thumbnail(): ...
"""


def test_a_misspelt_kind_in_the_configuration_stops_the_start(tmp_path):
    """Its limits would silently not apply."""
    config = '[kinds."shop.thumbnial"]\ntimeout = "1s"\n'
    with Site(tmp_path, NAMED, config=config) as site:
        said = refused(site, "--pools", "cpu=1", code=2)
    assert "shop.thumbnial" in said
    assert "did you mean 'shop.thumbnail'?" in said


def test_kinds_of_others_and_former_names_may_be_configured(tmp_path):
    """Another application's supervisor has published one; an alias stands for its kind.

    A reload is refused where a start would be, and everything continues unchanged.
    """
    config = '[kinds."thumb"]\ntimeout = "1s"\n[kinds."bill.pay"]\ntimeout = "1s"\n'
    bill = NAMED.replace("shop.thumbnail", "bill.pay").replace("thumb", "note")
    with Site(tmp_path, NAMED, config=config) as site:
        (site.folder / "bill.py").write_text(PRELUDE + bill)
        refused(site, "--pools", "cpu=1", code=2)
        other = "[pools.cpu]\nsize = 1\n"
        (site.folder / "bill.toml").write_text(other)
        one = site.launch("run", "--app", "bill.py", "--config", "bill.toml")
        one.wait_ready()
        two = site.start("cpu=1")
        wait_until(lambda: len(site.store.kinds()) == 2, PATIENCE_S, "both have kinds")
        found = {record.kind: record.timeout_s for record in site.store.kinds()}
        assert found == {"bill.pay": 9.0, "shop.thumbnail": 1.0}
        (site.folder / "jobpool.toml").write_text('[kinds."thumbs"]\ntimeout = "2s"\n')
        two.send(signal.SIGHUP)
        alarm = two.wait_event("alarm")
        assert "did you mean 'thumb'?" in alarm["text"]
        assert (one.stop(), two.stop()) == (0, 0)
