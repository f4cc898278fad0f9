"""What `jobpool show` says about a death."""

import json

import pytest

from jobpool.core.jobs.job import Attempt, Job
from jobpool.core.jobs.memory_trail import Trail
from jobpool.core.jobs.outcome import Outcome
from jobpool.words.jobs.attempts import attempt_lines, counts, evidence
from jobpool.words.jobs.memory_line import memory_line
from support.store.cli_store import KIND

NOW_MS = 1_000_000
MIB = 2**20
STACK = """Fatal Python error: Segmentation fault

Current thread 0x00007f2687bf5b80 (most recent call first):
  File "/srv/shop/jobs.py", line 7 in decode
  File "/srv/shop/jobs.py", line 6 in resize
  File "/srv/venv/jobpool/client/handler.py", line 99 in __call__
  File "/srv/venv/jobpool/sandbox/child.py", line 12 in run

Processes below it:
  pid 1922  1.766MiB  ffmpeg

Extension modules: msgspec._core (total: 1)
"""


def attempt(**changes):
    """Make an attempt of which little is known."""
    nothing = dict.fromkeys(Attempt.__struct_fields__)
    known = {
        "attempt": 2,
        "outcome": Outcome.CRASHED,
        "finished_at_ms": NOW_MS - 28_500,
        "slot": "cpu/1",
    }
    return Attempt(**{**nothing, **known, **changes})


def test_a_death_is_two_lines():
    """How, when, with which figures and where; then why."""
    crashed = attempt(
        reason="killed by SIGSEGV (Segmentation fault)",
        duration_s=0.25,
        peak_rss_bytes=23 << 20,
        cpu_s=0.125,
    )
    assert list(attempt_lines([crashed], NOW_MS)) == [
        "attempt 2 crashed  28.5s ago  ran 250ms  peak 23MiB  CPU 125ms  cpu/1",
        "   killed by SIGSEGV (Segmentation fault)",
    ]


def test_a_death_shows_its_memory_over_time_and_its_applications_version():
    """At most 32 columns of equal time, the highest block being the limit."""
    points = [[100 * place, place * MIB] for place in range(1, 65)]
    text = json.dumps({"limit_bytes": 64 * MIB, "points": points})
    killed = attempt(memory_trail=text, app_version="v1.2")
    first, memory = attempt_lines([killed], NOW_MS)
    assert first.endswith("cpu/1  version v1.2")
    assert memory == (
        "   memory 1MiB -> 64MiB in 6.3s  ▁▁▁▂▂▂▂▃▃▃▃▄▄▄▄▅▅▅▅▆▆▆▆▇▇▇▇█████  limit 64MiB"
    )


def test_memory_that_fell_before_the_end_is_shown_with_its_peak():
    """Between two samples memory is taken to stay as it was."""
    points = [[0, 8 * MIB], [1000, 40 * MIB], [9000, 4 * MIB], [10_000, 4 * MIB]]
    trail = Trail(32 * MIB, tuple(map(tuple, points)))
    assert memory_line(trail) == (
        "memory 8MiB -> 4MiB in 10s, peak 40MiB  ███▁  limit 32MiB"
    )


@pytest.mark.parametrize("text", [None, "", "[]", "{", '{"limit_bytes":1,"points":[]}'])
def test_a_memory_trail_that_cannot_be_read_is_not_shown(text):
    assert list(attempt_lines([attempt(memory_trail=text)], NOW_MS)) == [
        "attempt 2 crashed  28.5s ago  cpu/1"
    ]


def test_unknown_figures_are_not_shown():
    """Of a host that died no figures are known."""
    lost = attempt(outcome=Outcome.LOST, reason="its supervisor died", slot=None)
    assert list(attempt_lines([lost], NOW_MS)) == [
        "attempt 2 lost  28.5s ago",
        "   its supervisor died",
    ]


@pytest.mark.parametrize(
    ("of_job", "rules", "words"),
    [
        ({"attempt": 0}, (), "attempts 0, failures 0 of 5, crashes 0 of 3"),
        ({"attempt": 2, "failures": 2}, (None, None), "attempts 2, failures 2 of 5"),
        ({"attempt": 2, "failures": 2, "max_attempts": 9}, (), "failures 2 of 9"),
        (
            {"attempt": 6, "failures": 6},
            ("Down",) * 6,
            "attempts 6, failures 6 (6 under Down), crashes 0 of 3, ",
        ),
        ({"attempt": 7, "failures": 1}, ("Down",) * 6 + (None,), "failures 1 of 5, "),
        ({"attempt": 7, "failures": 1}, ("Down",) * 7, "recoveries 0 (counters reset)"),
        ({"attempt": 6, "failures": 0}, ("Down",) * 6, "failures 0 of 5, crashes"),
        ({"attempt": 1, "failures": 0}, (), "interruptions 0 of 20, recoveries 0"),
    ],
)
def test_the_spent_part_of_a_budget_is_shown(of_job, rules, words):
    """Never more of a budget than it has. Rules are named, and so is a fresh start."""
    none = dict.fromkeys(Job.__struct_fields__)
    zero = dict.fromkeys(("failures", "crashes", "interruptions", "recoveries"), 0)
    job = Job(**{**none, **zero, **of_job})
    past = [attempt(outcome=Outcome.FAILED, rule=rule) for rule in rules]
    assert words in counts(job, past, KIND)


def test_the_shown_stack_is_the_handlers():
    """No frame of jobpool's; the processes below the job stay."""
    assert list(evidence(attempt(stack=STACK, output="last words\n"))) == [
        (
            "STACK",
            """Fatal Python error: Segmentation fault

Current thread 0x00007f2687bf5b80 (most recent call first):
  File "/srv/shop/jobs.py", line 7 in decode
  File "/srv/shop/jobs.py", line 6 in resize

Processes below it:
  pid 1922  1.766MiB  ffmpeg""",
        ),
        ("OUTPUT", "last words\n"),
    ]
