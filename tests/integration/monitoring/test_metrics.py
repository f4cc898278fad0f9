"""A real supervisor, scraped; and the fleet's gauges by `jobpool metrics`."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import contextmanager

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from jobpool.cli.root import cli
from support.site.supervising import PATIENCE_S, Site
from support.waiting import wait_until

APP = """
@jobs.job("cpu", kind="shop.add")
def add(a: int, b: int) -> int:
    return a + b


@jobs.job("cpu", kind="shop.hang", timeout="0.2s", max_attempts=1)
def hang() -> None:
    time.sleep(60)


@jobs.job("io", kind="shop.told")
def told() -> int:
    print("a success that leaves output takes the long way")
    return 1
"""


@contextmanager
def free_port():
    """Yield a port that is nobody else's meanwhile: whoever names it may listen."""
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("127.0.0.1", 0))
        yield one.getsockname()[1]


def scrape(port):
    """Return all values at an address, each by its name with its labels' values."""
    with urllib.request.urlopen(
        f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S
    ) as answer:
        return values_in(answer.read().decode())


def if_served(port):
    """Return the same; None: nobody listens there yet."""
    try:
        return scrape(port)
    except OSError:
        return None


def values_in(text):
    return {
        (sample.name, *(sample.labels[name] for name in sorted(sample.labels))): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.fixture
def site(tmp_path):
    with free_port() as port:
        config = f'[metrics]\nlisten = "127.0.0.1:{port}"\n'
        with Site(tmp_path, APP, config=config) as site:
            site.port = port
            yield site


def test_a_supervisor_is_scraped(site):
    """Successes of both ways, a kill with its cause, waits, and slots."""
    supervisor = site.start("cpu=2,io=1")
    ids = site.add_many("shop.add", [{"a": n, "b": 1} for n in range(20)])
    ids += [site.add("shop.hang"), site.add("shop.told", pool="io")]
    site.finish_all(ids)

    total = "jobpool_attempts_total"
    last = (
        ("jobpool_slots", "cpu"),
        ("jobpool_kills_total", "timeout"),
        ("jobpool_dead_total", "shop.hang"),
        (total, "shop.hang", "timed_out", "cpu"),
        (total, "shop.told", "succeeded", "io"),
    )

    def counted():
        found = if_served(site.port) or {}
        added = found.get((total, "shop.add", "succeeded", "cpu"))
        return found if added == 20 and all(map(found.get, last)) else None

    found = wait_until(counted, PATIENCE_S, "figures of the supervisor")
    assert found[total, "shop.add", "succeeded", "cpu"] == 20
    assert found[total, "shop.told", "succeeded", "io"] == 1
    assert found[total, "shop.hang", "timed_out", "cpu"] == 1
    assert found[total, "shop.hang", "failed", "cpu"] == 0
    assert found["jobpool_dead_total", "shop.hang"] == 1
    assert found["jobpool_attempt_wait_seconds_count", "shop.add", "cpu"] == 20
    assert 0 <= found["jobpool_attempt_wait_seconds_sum", "shop.add", "cpu"] < 20 * 30
    assert found["jobpool_slots", "io"] == 1
    assert found["jobpool_store_up",] == 1
    assert found["process_resident_memory_bytes",] > 2**23
    assert supervisor.stop() == 0


def test_a_supervisor_starts_beside_one_that_has_the_address(site):
    """It says so, runs jobs, and has the address once the other has ended."""
    first = site.start("cpu=1,io=1")
    wait_until(lambda: if_served(site.port), PATIENCE_S, "the first is scraped")
    second = site.start("cpu=1,io=1")
    second.wait_event("metrics_refused")
    assert first.stop() == 0
    assert site.result(site.add("shop.add", {"a": 1, "b": 2})) == 3

    def counted():
        found = if_served(site.port) or {}
        return found.get(("jobpool_attempts_total", "shop.add", "succeeded", "cpu"))

    assert wait_until(counted, PATIENCE_S, "the second is scraped") == 1


def test_the_fleet_is_scraped_in_one_place(site):
    site.add_many("shop.add", [{"a": 1, "b": 1}] * 5)
    site.add("shop.add", {"a": 1, "b": 1}, tenant="acme")
    once = CliRunner().invoke(
        cli, ["metrics", "--once", "--by-tenant", "--store", site.url]
    )
    assert once.exit_code == 0, once.output
    found = values_in(once.stdout)
    # In the order of the labels' names: band, kind, pool, state.
    assert found["jobpool_jobs", "normal", "shop.add", "cpu", "runnable"] == 6
    assert found["jobpool_tenant_jobs", "runnable", "acme"] == 1
    assert found["jobpool_unknown_kind_jobs", "shop.add", "cpu"] == 6


@contextmanager
def served(site):
    """Serve the fleet's gauges; yield the process and its port."""
    words = [sys.executable, "-m", "jobpool", "metrics", "--store", site.url]
    with subprocess.Popen(
        [*words, "--listen", "127.0.0.1:0"],
        cwd=site.folder,
        env={k: v for k, v in os.environ.items() if not k.startswith("JOBPOOL_")},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            said = process.stdout.readline().strip()
            url = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/metrics", said)
            assert url, said
            yield process, int(url[1])
        finally:
            process.kill()


def read(port):
    """Return all values once the store was read: a scrape never waits for that."""

    def seen():
        found = scrape(port)
        return found if found["jobpool_fleet_up",] == 1 else None

    return wait_until(seen, PATIENCE_S, "the store is read")


def test_the_fleet_s_server_ends_when_it_is_told_to(site):
    site.add("shop.add", {"a": 1, "b": 1})
    with served(site) as (process, port):
        found = read(port)
        assert found["jobpool_jobs", "normal", "shop.add", "cpu", "runnable"] == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


def test_a_store_that_cannot_be_read_is_an_error(tmp_path):
    url = f"sqlite:///{tmp_path}/none.db"
    once = CliRunner().invoke(cli, ["metrics", "--once", "--store", url])
    assert once.exit_code == 4
    assert "none.db" in once.stderr


def test_a_configuration_that_is_wrong_ends_the_command(tmp_path):
    """It had served empty gauges, and said nothing."""
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("store = 3\n")
    once = CliRunner().invoke(cli, ["metrics", "--once", "--config", str(wrong)])
    assert once.exit_code == 2
    assert "store" in once.stderr


@pytest.mark.parametrize(
    "value", ["9464", "localhost", "shop.example:80", "1.2.3.4:99999"]
)
def test_an_address_that_is_none_is_refused(tmp_path, monkeypatch, value):
    """And nothing was started."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs.py").write_text("from jobpool import JobPool\njobs = JobPool()\n")
    (tmp_path / "jobpool.toml").write_text(f'[metrics]\nlisten = "{value}"\n')
    done = CliRunner().invoke(cli, ["--pools", "cpu=1"])
    assert done.exit_code == 2
    assert "[metrics] listen" in done.stderr
    assert "127.0.0.1:9464" in done.stderr


def test_nobody_who_does_not_ask_loads_the_library():
    """Neither importing jobpool nor its command line."""
    code = (
        "import sys, jobpool, jobpool.cli.root, jobpool.supervisor.serve\n"
        "assert not [m for m in sys.modules if m.startswith('prometheus')]"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == 0


def test_scaling_is_answered_for_each_pool(site):
    """0 for a pool that nobody knows, and not nothing: a scaler takes it for 0."""
    site.start("cpu=2,io=1").stop()
    site.add_many("shop.add", [{"a": 1, "b": 1}] * 5)
    with served(site) as (_, port):

        def ask(pool):
            url = f"http://127.0.0.1:{port}/scaling/{pool}"
            with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
                return json.load(answer)

        read(port)
        cpu = ask("cpu")
        assert (cpu["wanted"], cpu["due"], cpu["slots"]) == (3, 5, 2)
        assert ask("io")["wanted"] == 0
        assert ask("no%20such")["wanted"] == 0
