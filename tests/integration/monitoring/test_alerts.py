"""Drills: real supervisors, what goes wrong with them, and who is told of it."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from click.testing import CliRunner

from jobpool.cli.root import cli
from jobpool.cli.watch import alerts as alerts_command
from jobpool.core.config.settings import AlertSettings
from jobpool.core.jobs.outcome import Outcome
from jobpool.monitoring.alerts.receivers.configured import receivers_of
from jobpool.monitoring.alerts.watcher import Watcher
from jobpool.store.opening import open_store
from support.site.supervising import PATIENCE_S, Site
from support.store.storing import begin_run, ended, lease, new_job
from support.waiting import wait_until

APP = """
@jobs.job("cpu", kind="shop.die", max_attempts=1)
def die() -> None:
    os._exit(1)


@jobs.job("cpu", kind="shop.poison", max_crashes=1)
def poison() -> None:
    segfault()


@jobs.job("cpu", kind="shop.add")
def add() -> None:
    pass
"""
OFTEN_S = 0.05


@contextmanager
def ear(on_post=lambda told: None):
    """Serve on loopback; yield the URL, and the messages that have come."""
    came = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            told = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            came.append(told)
            on_post(told)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_args):
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{serving.server_address[1]}", came
        finally:
            serving.shutdown()
            thread.join()


@contextmanager
def watched(url, hook, **rules):
    """Watch a store from this process, more often than a user would."""
    settings = AlertSettings(webhook=hook, allow_private=True, **rules)
    one = Watcher(
        lambda: open_store(url),
        settings,
        receivers_of(settings),
        lambda event: None,
        every_s=OFTEN_S,
        queue=url,
    )
    one.start()
    try:
        yield
    finally:
        one.close()


def one_told(came, **fields):
    """Wait until exactly one message with these fields has come, and return it."""

    def find():
        return [told for told in came if fields.items() <= told.items()]

    wait_until(find, PATIENCE_S, f"an alert with {fields}")
    (told,) = find()
    return told


def make_dead(store):
    begin_run(store, "before")
    store.enqueue([new_job("shop.die")])
    kinds = {"cpu": ["shop.die"]}
    store.settle(
        [
            ended(one, Outcome.FAILED, give_up=True)
            for one in lease(store, "before", kinds=kinds)
        ]
    )
    store.end_run("before")


def test_a_supervisor_runs_the_command_of_its_configuration(tmp_path):
    """Though it kills whatever else is a child of its and no attempt's, meanwhile."""
    script = f"sleep 0.5; cat >> {tmp_path}/told"
    config = f'[alerts]\ncommand = ["sh", "-c", "{script}"]\n'
    with Site(tmp_path / "site", APP, config=config) as site:
        make_dead(site.store)
        dying = site.add_many("shop.die", [{}] * 12)
        supervisor = site.start("cpu=1")
        supervisor.wait_event("incident_opened", rule="dead")
        site.add_many("shop.die", [{}] * 12)
        wait_until((tmp_path / "told").exists, PATIENCE_S, "the command's end")
        wait_until(
            lambda: [one for one in site.store.alerts() if one.state == "sent"],
            PATIENCE_S,
            "the alert to be sent",
        )
        site.finish_all(dying)
        assert supervisor.stop() == 0
        assert not supervisor.events("alert_not_sent")
        told = json.loads((tmp_path / "told").read_bytes().splitlines()[0])
        assert (told["event"], told["rule"]) == ("opened", "dead")
        assert told["subject"] == "shop.die"


def test_drill_no_supervisor(tmp_path):
    """Whoever else watches tells it; starting one, as the manual says, ends it."""
    with Site(tmp_path, APP) as site, ear() as (hook, came):
        site.start("cpu=1").stop()
        job = site.add("shop.add")
        with watched(site.url, hook, no_supervisor_s=0.1):
            told = one_told(came, event="opened", rule="no_supervisor", subject="cpu")
            assert told["text"] == "pool cpu has 1 due job, and no supervisor serves it"
            assert told["runbook"] == "jobpool manual alerts#no-supervisor"
            supervisor = site.start("cpu=1")
            site.result(job)
            assert [one["event"] for one in came] == ["opened"], "calm for 60 s first"
        supervisor.stop()


def test_drill_quarantined(tmp_path):
    """A poison pill is told once, with its kind; `jobpool alerts` shows it."""
    with Site(tmp_path, APP) as site, ear() as (hook, came):
        supervisor = site.start("cpu=1")
        job = site.add("shop.poison")
        with watched(site.url, hook, dead=None):
            told = one_told(came, event="opened", rule="quarantined")
            assert (told["subject"], told["severity"]) == ("shop.poison", "ticket")
            assert site.job(job).state == "quarantined"
        shown = CliRunner().invoke(cli, ["alerts", "--json", "--store", site.url])
        (incident,) = map(json.loads, shown.stdout.splitlines())
        assert (incident["rule"], incident["subject"]) == ("quarantined", "shop.poison")
        shown = CliRunner().invoke(cli, ["alerts", "--store", site.url])
        assert "1 job of shop.poison put in quarantine within" in shown.stdout
        supervisor.stop()


TELLER = """
import sys, threading
from jobpool.core.config.settings import AlertSettings
from jobpool.monitoring.alerts import watcher
from jobpool.monitoring.alerts.receivers.configured import receivers_of
from jobpool.store.opening import open_store

watcher._CLAIM_S = 0.5
settings = AlertSettings(webhook=sys.argv[2], allow_private=True)
watcher.Watcher(
    lambda: open_store(sys.argv[1]),
    settings,
    receivers_of(settings),
    print,
    queue=sys.argv[1],
).start()
threading.Event().wait()
"""


def test_a_teller_that_is_killed_is_followed_by_another(tmp_path):
    """After its receiver has the alert, before it has noted that: the name is equal."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    store = open_store(url)
    make_dead(store)
    turns, victims = iter([True]), queue.SimpleQueue()

    def kill(_told):
        if next(turns, False):
            victim = victims.get(timeout=PATIENCE_S)
            os.kill(victim.pid, signal.SIGKILL)
            victim.wait()

    with ear(kill) as (hook, came):
        argv = [sys.executable, "-c", TELLER, url, hook]
        victim = subprocess.Popen(argv)
        victims.put(victim)
        assert victim.wait(PATIENCE_S) == -signal.SIGKILL
        assert [one.state for one in store.alerts()] == ["sending"]
        with watched(url, hook):
            wait_until(
                lambda: [one.state for one in store.alerts()] == ["sent"],
                PATIENCE_S,
                "another to tell it",
            )
    assert [told["id"] for told in came] == ["1-opened"] * 2
    assert came[0] == came[1]
    assert store.alerts()[0].tries == 2
    store.close()


def invoke(tmp_path, config, *words):
    path = tmp_path / "jobpool.toml"
    path.write_text(f'store = "sqlite:///{tmp_path}/jobs.db"\n{config}')
    return CliRunner().invoke(cli, [*words, "--config", str(path)])


def test_a_test_says_what_came_back_of_each_receiver(tmp_path):
    """And fails if one did not take it."""
    with ear() as (hook, came):
        config = f'[alerts]\nwebhook = "{hook}/x"\nallow_private = true\n'
        config += 'command = ["false"]\n'
        done = invoke(tmp_path, config, "alerts", "test")
    assert done.exit_code == 1
    assert f"webhook   ok  {hook}/…  204 No Content" in done.stdout
    assert "command   FAILED  false  false: exit code 1" in done.stdout
    assert [told["event"] for told in came] == ["test"]


def test_nobody_to_tell_is_an_error_of_the_test(tmp_path):
    done = invoke(tmp_path, "", "alerts", "test")
    assert done.exit_code == 2
    assert "there is no [alerts] in the configuration" in done.stderr
    done = invoke(tmp_path, "", "alerts", "--watch")
    assert done.exit_code == 2


def test_alerts_lists_rules_receivers_and_what_could_not_be_sent(tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path}/jobs.db"
    store = open_store(url)
    make_dead(store)
    config = '[alerts]\nwebhook = "http://127.0.0.1:1/secret"\nratio = "none"\n'
    settings = AlertSettings(webhook="http://127.0.0.1:1/secret", ratio=None)
    receivers = receivers_of(settings)
    Watcher(lambda: store, settings, receivers, print, queue=url).step(store)
    store.close()
    done = invoke(tmp_path, config, "alerts")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    words = [" ".join(line.split()) for line in lines]
    assert any(line.startswith("1 dead shop.die") for line in words)
    assert any("127.0.0.1 is not an address of the internet" in x for x in words)
    assert "oldest_age 10m00s page jobpool manual alerts#oldest-age" in words
    assert "ratio none page jobpool manual alerts#ratio" in words
    assert "webhook: http://127.0.0.1:1/…" in words
    assert "secret" not in done.stdout
    assert words[-1].startswith("last watched: ")
    assert "NOT WATCHED" not in done.stdout
    later_ms = alerts_command.now_ms() + 121_000
    monkeypatch.setattr(alerts_command, "now_ms", lambda: later_ms)
    done = invoke(tmp_path, config, "alerts")
    assert done.stdout.startswith("NOT WATCHED: the last look was ")
    done = invoke(tmp_path, "[alerts]\nwatch = true\n", "alerts")
    words = " ".join(done.stdout.split())
    assert "1-opened webhook waiting 1 no webhook is configured here; given up" in words


@pytest.mark.parametrize("command", ["metrics", "dashboard"])
def test_others_who_look_on_watch_as_well(tmp_path, command):
    """They may live where all supervisors have died."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    store = open_store(url)
    make_dead(store)
    (tmp_path / "jobpool.toml").write_text("[alerts]\nwatch = true\n")
    argv = [sys.executable, "-m", "jobpool", command, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        [*argv, "--store", url], cwd=tmp_path, stdout=subprocess.DEVNULL
    ) as process:
        wait_until(store.incidents, PATIENCE_S, "an incident")
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    assert [one.rule for one in store.incidents()] == ["dead"]
    store.close()


def test_a_watch_ends_when_it_is_told_to(tmp_path):
    url = f"sqlite:///{tmp_path}/jobs.db"
    store = open_store(url)
    make_dead(store)
    (tmp_path / "jobpool.toml").write_text("[alerts]\nwatch = true\n")
    argv = [sys.executable, "-m", "jobpool", "alerts", "--watch", "--store", url]
    with subprocess.Popen(
        [*argv, "--json"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        opened = json.loads(process.stdout.readline())
        assert (opened["event"], opened["subject"]) == ("incident_opened", "shop.die")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    assert [one.rule for one in store.incidents()] == ["dead"]
    store.close()


def test_nobody_who_does_not_ask_loads_it():
    """Neither importing jobpool, nor a supervisor without `[alerts]`."""
    code = (
        "import sys, jobpool, jobpool.cli.root, jobpool.cli.launch.launch\n"
        "import jobpool.supervisor.serve\n"
        "assert not [m for m in sys.modules if m.startswith('jobpool.monitoring')]\n"
        "assert 'ssl' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == 0
