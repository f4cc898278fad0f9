"""`jobpool logs`: what is stored, and what running jobs write meanwhile."""

import subprocess
import sys

import pytest

from jobpool.cli.watch.logs import added
from support.site.supervising import PATIENCE_S, Site
from support.store.cli_store import dead, quarantined, run, stored
from support.waiting import wait_until

APP = """
@jobs.job("cpu", kind="shop.talk", max_attempts=1)
def talk() -> None:
    print("first", flush=True)
    hold("gate")
    print("last", flush=True)
    raise RuntimeError("so that it is kept")
"""


@pytest.mark.parametrize(
    ("before", "now", "new"),
    [
        ("", "a\nb\n", "a\nb\n"),
        ("a\nb\n", "a\nb\n", ""),
        ("a\nb\n", "a\nb\nc\n", "c\n"),
        ("a\nb\n", "b\nc\n", "c\n"),  # the tail has moved
        ("a\nb\n", "", ""),
        ("c\nd\n", "a\nb\nc\nd\ne\n", "e\n"),  # more is stored than was shown
        ("\ufffdd\n", "c\näd\ne\n", "e\n"),  # the tail began within a character
    ],
)
def test_what_is_new_of_a_tail_is_what_follows_what_was_seen(before, now, new):
    assert added(before, now) == new


def test_lines_that_were_not_seen_in_time_are_said_to_be_missing():
    assert added("a\nb\n", "x\ny\n").splitlines()[1:] == ["x", "y"]
    assert "not seen" in added("a\nb\n", "x\ny\n")


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = stored(tmp_path)
    yield store
    store.close()


def test_what_a_job_has_written_is_harmless(store):
    """Each line as it was written, but for what a terminal would obey."""
    done = run("logs", quarantined(store))
    assert done.exit_code == 0
    first, second = done.stdout.splitlines()
    assert first.startswith("about to die")
    assert second == "second line"
    assert not set("\x1b\x9b\u202e") & set(done.stdout)


def test_lines_of_a_kind_name_their_jobs(store):
    one, other = quarantined(store), quarantined(store)
    silent = dead(store)
    said = run("logs", "--kind", "shop.thumbnail").stdout.splitlines()
    assert [line.partition(" | ")[0] for line in said] == [
        *(str(one), str(one), str(other), str(other))
    ]
    assert run("logs", silent).stdout == ""
    assert f"nothing is stored of what job {silent} has" in run("logs", silent).stderr
    assert len(run("logs", "--kind", "shop.thumbnail", "--limit", 2).stdout) < len(
        "\n".join(said)
    )


@pytest.mark.parametrize(
    ("args", "code"), [((), 2), ((1, "--kind", "a"), 2), ((999,), 1)]
)
def test_one_job_or_one_kind_is_named(store, args, code):
    done = run("logs", *args)
    assert done.exit_code == code
    assert done.stderr


@pytest.mark.parametrize("named", [True, False], ids=["one job", "its kind"])
def test_a_running_job_is_followed_to_its_end(tmp_path, named):
    """Its lines come while it runs; the last ones after its end, each once."""
    with Site(tmp_path, APP) as site:
        site.start("cpu=1")
        job_id = site.add("shop.talk")
        site.wait_begun(job_id)
        which = [str(job_id)] if named else ["--kind", "shop.talk"]
        words = [sys.executable, "-m", "jobpool", "logs", *which, "--follow"]
        with subprocess.Popen(
            [*words, "--store", site.url], stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                prefix = "" if named else f"{job_id} | "
                assert process.stdout.readline() == f"{prefix}first\n"
                site.open_gate("gate")
                assert process.stdout.readline() == f"{prefix}last\n"
                if named:
                    wait_until(
                        lambda: process.poll() is not None, PATIENCE_S, "its end"
                    )
                    assert process.stdout.read() == ""
                    assert process.returncode == 0
            finally:
                process.kill()
