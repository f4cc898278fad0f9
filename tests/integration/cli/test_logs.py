"""`jobpool logs`: what is stored, and what running jobs write meanwhile."""

import subprocess
import sys

import msgspec
import pytest

from jobpool.cli.watch import logs
from jobpool.cli.watch.logs import added
from jobpool.core.jobs.job import Evidence, JobState, Progress
from support.site.supervising import PATIENCE_S, Site
from support.store.cli_store import KIND, RUN, dead, enqueue, quarantined, run, stored
from support.store.storing import ended, started
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


def begun(store, text):
    """Begin an attempt of the job that is due, which writes something."""
    (lease,) = store.lease(RUN.id, {"cpu": 1}, {"cpu": [KIND.kind]}).leases
    store.begin_attempts([started(lease, "cpu/1")])
    store.record([Progress(lease.id, lease.token, None, None, 1, text)])
    return lease


def failed(store, lease, text):
    """End an attempt, to be made again at once."""
    end = ended(lease, evidence=Evidence(output=text))
    again = msgspec.structs.replace(end, state=JobState.PENDING, delay_ms=0)
    assert store.settle([again]) == [True]


def test_what_a_job_that_is_tried_again_wrote_is_told_once(store, monkeypatch):
    """Also while it waits for that, when what it wrote is of no running attempt."""
    (job_id,) = enqueue(store)
    first = begun(store, b"first\n")
    meanwhile = iter(
        (
            lambda: failed(store, first, "first\nlast\n"),
            lambda: None,
            lambda: begun(store, b"again\n"),
            lambda: store.cancel([job_id]),
            lambda: store.end_run(RUN.id),
        )
    )
    monkeypatch.setattr(logs.time, "sleep", lambda _: next(meanwhile)())
    assert run("logs", job_id, "--follow").stdout == "first\nlast\nagain\n"


def test_attempts_that_nobody_saw_run_are_told(store, monkeypatch):
    """Those that begin and end between two looks, the last one as well."""
    (job_id,) = enqueue(store)
    failed(store, begun(store, b""), "first\n")
    meanwhile = iter((["second\n", "third\n"], ["last\n"]))

    def sleep(_):
        texts = next(meanwhile)
        for text in texts:
            failed(store, begun(store, b""), text)
        if texts == ["last\n"]:
            store.cancel([job_id])

    monkeypatch.setattr(logs.time, "sleep", sleep)
    wanted = "first\nsecond\nthird\nlast\n"
    assert run("logs", job_id, "--follow").stdout == wanted


@pytest.mark.parametrize("text", [None, b"again\n"])
def test_what_ends_while_it_is_looked_at_is_told_once(store, monkeypatch, text):
    """And what is written by then by the next attempt counts as that one's."""
    (job_id,) = enqueue(store)
    lease, looks = begun(store, b"first\n"), []
    output = type(store).output

    def too_late(self, number):
        looks.append(number)
        if len(looks) == 2:
            failed(store, lease, "first\nlast\n")
            if text is not None:
                begun(store, text)
        return output(self, number)

    def sleep(_):
        if len(looks) >= 3 or store.get(job_id).state is not JobState.LEASED:
            store.cancel([job_id])
            store.end_run(RUN.id)

    monkeypatch.setattr(type(store), "output", too_late)
    monkeypatch.setattr(logs.time, "sleep", sleep)
    wanted = "first\nlast\n" + ("" if text is None else text.decode())
    assert run("logs", job_id, "--follow").stdout == wanted


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
