"""Programs as jobs, with a real supervisor: their limits and ends are as any job's."""

import contextlib
from pathlib import Path

import pytest

from jobpool.core.jobs.job import JobState
from jobpool.core.jobs.outcome import Outcome
from support.site.supervising import Site
from support.waiting import wait_until

APP = """
count = jobs.command("count", ["wc", "-l", "{file}"], pool="cpu")
upper = jobs.command("upper", ["tr", "a-z", "A-Z"], pool="cpu", stdin="text")
shell = jobs.command(
    "shell", ["sh", "-c", 'eval "$1"', "sh", "{script}"], pool="cpu",
    timeout="1s", memory="64MiB", max_attempts=1, exit_codes={65: "dead", 3: "ok"},
)
"""

EATS = "(head -c 90000000 /dev/zero; sleep 62) | tail -c 90000000"
"""Keeps more than it may have, far less than it would be refused, and waits for more:
the kill is late on a busy machine."""
CONFIG = """
[commands."configured.lower"]
argv = ["tr", "A-Z", "a-z"]
pool = "cpu"
stdin = "text"
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with Site(tmp_path_factory.mktemp("site"), APP, config=CONFIG) as site:
        site.start("cpu=2")
        yield site


def test_a_commands_jobs_end_as_its_program_does(site):
    """Results, declared ends, failures that are tried again, and the evidence."""
    (site.folder / "two lines").write_text("1\n2\n")
    counted = site.add("count", {"file": "two lines"})
    missing = site.add("count", {"file": "none"}, max_attempts=1)
    upper = site.add("upper", {"text": "grüße"})
    lower = site.add("configured.lower", {"text": "LOUD"})
    ok = site.add("shell", {"script": "echo fine; exit 3"}, timeout_s=60.0)
    dead = site.add("shell", {"script": "echo why >&2; exit 65"}, timeout_s=60.0)
    assert site.result(counted) == "2 two lines\n"
    assert site.result(upper).endswith("E")
    assert site.result(lower) == "loud"
    assert site.result(ok) == "fine\n"
    failed = site.finish(missing)
    assert failed.state is JobState.DEAD
    assert failed.error_class == "jobpool.errors.CommandFailed"
    assert "wc ended with exit status 1" in failed.reason
    [attempt] = site.attempts(dead)
    assert "gave up: sh ended with exit status 65" in attempt.reason
    assert attempt.output == "why\n"


@pytest.mark.parametrize(
    ("script", "timeout_s", "outcome"),
    [
        ("sleep 62", None, Outcome.TIMED_OUT),
        (EATS, 60.0, Outcome.OUT_OF_MEMORY),
    ],
)
def test_its_limits_count_the_program_and_a_kill_takes_it_along(
    site, script, timeout_s, outcome
):
    job = site.add("shell", {"script": script}, timeout_s=timeout_s)
    ended = site.finish(job)
    assert ended.outcome is outcome
    wait_until(lambda: not programs_of(site), 20, "its programs are gone")


def programs_of(site):
    """Return the commands of this site that are no Python."""
    found = []
    for pid in site.processes():
        with contextlib.suppress(OSError):
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            found += [name] if name in ("head", "sleep", "tail", "sh") else []
    return found
