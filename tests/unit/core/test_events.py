"""Events as lines: one line each, harmless, bounded, complete."""

import json
import re

import msgspec
import pytest

from jobpool.core.event_lines import LINE_MAX_BYTES, human_line, iso_time, json_line
from jobpool.core.events.event import Event, Level
from jobpool.core.events.jobs import JobDead, JobEnded, JobFailure, JobQuarantined
from jobpool.core.events.pools import ChildEnded, ChildStarted
from jobpool.core.events.supervisor import Alarm, Beside, UnknownKind, UnknownKinds
from jobpool.core.jobs.budget import Budget, Spent
from jobpool.core.jobs.job import JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.circuit_breaker import BreakerState

AT = 1_700_000_002_500  # 2023-11-14T22:13:22.500Z
EVIL = "x\x1b[2J\r\n10:00:00 job 1 succeeded\x9b31m\u202e\u2028\x00\udcff"

ENDED = JobEnded(
    at_ms=AT,
    id=2,
    kind="shop.thumbnail",
    slot="cpu/1",
    attempt=1,
    max_attempts=3,
    outcome=Outcome.OUT_OF_MEMORY,
    state=JobState.PENDING,
    delay_s=15.0,
    reason="killed at 512MiB",
)


def sample(kind, text="text"):
    """Build an event of any class, every text in it being *text*."""
    values = {
        str: text,
        int: 7,
        float: 1.5,
        bool: True,
        Outcome: Outcome.CRASHED,
        JobState: JobState.DEAD,
        BreakerState: BreakerState.OPEN,
    }
    given = {}
    for field in msgspec.structs.fields(kind):
        wanted = field.type
        plain = next((t for t in values if t in (wanted, *_members(wanted))), None)
        if kind is UnknownKinds and field.name == "kinds":
            given["kinds"] = (UnknownKind(text, 3, 4.0),)
        elif field.name == "pools":
            given["pools"] = {"cpu": text}
        elif field.name == "spent":
            given["spent"] = (Spent(Budget.FAILURE, 6, 6, text),)
        elif field.name.startswith("cgroup"):
            given[field.name] = {} if field.name.endswith("missing") else ()
        else:
            given[field.name] = values[plain]
    return kind(**given)


def _members(wanted):
    return getattr(wanted, "__args__", ())


ALL = [
    one
    for base in (Event, JobFailure, Beside)
    for one in base.__subclasses__()
    if one not in {JobFailure, Beside}
    and one.level > Level.NOTSET  # those are in no log
]


def test_the_line_of_an_attempts_end():
    """The line says what, where, which attempt, why and what comes next."""
    assert human_line(ENDED) == (
        "22:13:22 job 2 out_of_memory  cpu/1  attempt 1  shop.thumbnail  "
        "killed at 512MiB, again in 15s"
    )


def test_the_json_line_has_every_field():
    """Programs get the time, the level, the event's name and all of its fields."""
    found = json.loads(json_line(ENDED))
    assert found == {
        "time": "2023-11-14T22:13:22.500Z",
        "level": "warning",
        "event": "job_ended",
        "id": 2,
        "kind": "shop.thumbnail",
        "slot": "cpu/1",
        "attempt": 1,
        "outcome": "out_of_memory",
        "state": "pending",
        "max_attempts": 3,
        "delay_s": 15.0,
        "reason": "killed at 512MiB",
        "error_class": None,
        "error": None,
        "frame": None,
        "key": None,
        "tenant": None,
        "timeout_s": None,
        "memory_bytes": None,
        "spent": [],
        "counters_reset": False,
        "duration_s": None,
        "peak_rss_bytes": None,
        "trace_id": None,
    }


def test_the_names_of_events_are_as_agreed():
    """Names are an interface: what people alert on does not change by accident."""
    assert {kind.name for kind in ALL} == {
        "alarm",
        "alert_not_sent",
        "incident_ended",
        "incident_opened",
        "not_watched",
        "child_ended",
        "child_started",
        "isolation_reduced",
        "downstream_closed",
        "downstream_opened",
        "job_cleared",
        "job_completed",
        "job_dead",
        "import_not_shared",
        "job_ended",
        "job_output",
        "job_quarantined",
        "job_snoozed",
        "job_succeeded",
        "job_suspected",
        "job_unfit",
        "kind_resumed",
        "kind_slowed",
        "lease_fenced",
        "lease_regained",
        "lines_dropped",
        "host_memory_short",
        "slots_beyond_memory",
        "memory_awaited",
        "metrics_refused",
        "memory_soft_passed",
        "pool_reloaded",
        "pool_resized",
        "pool_unused",
        "pools_left",
        "quota_differs",
        "quotas_held_back",
        "rate_too_tight",
        "run_reclaimed",
        "schedule_paused",
        "schedule_refused",
        "schedules_changed",
        "reports_dropped",
        "restart_needed",
        "spans_dropped",
        "stale_settlement",
        "store_back",
        "store_concern",
        "store_trouble",
        "store_went_back",
        "supervisor_draining",
        "supervisor_outdated",
        "supervisor_ready",
        "supervisor_stopped",
        "ticks_missed",
        "unknown_kinds",
        "zygote_failed",
    }
    assert JobQuarantined.level is Level.ERROR
    assert JobDead.level is Level.WARNING
    assert ChildStarted.level is ChildEnded.level is Level.DEBUG


@pytest.mark.parametrize(
    "kind", [k for k in ALL if k is not Alarm], ids=lambda kind: kind.name
)
def test_every_event_has_words_of_its_own(kind):
    """No event falls back to its bare name in the human log."""
    line = human_line(sample(kind))
    assert line.startswith("00:00:00 ")
    assert kind.name not in line


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.name)
@pytest.mark.parametrize("render", [human_line, json_line])
def test_no_text_can_forge_a_line_or_reach_the_terminal(kind, render):
    """Control characters, line breaks and direction marks are made visible."""
    line = render(sample(kind, EVIL))
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e]", line)
    line.encode()  # no lone surrogate is left
    if render is json_line:
        json.loads(line)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.name)
@pytest.mark.parametrize("render", [human_line, json_line])
@pytest.mark.parametrize("char", ["a", "\x00", "\U0001f600", "\U000e0001"])
def test_a_line_is_at_most_8_kib(kind, render, char):
    """Whatever a job reports, a line has its limit; what was cut is marked."""
    line = render(sample(kind, char * 100_000))
    assert len(line.encode()) <= LINE_MAX_BYTES
    if char * 30 in json_text_of(line):
        assert "more characters" in line


def json_text_of(line):
    return json.dumps(json.loads(line), ensure_ascii=False) if line[0] == "{" else line


def test_thousands_of_unknown_kinds_are_one_short_line():
    """The first few are named and the rest is counted."""
    kinds = tuple(UnknownKind(f"shop.kind{n}", 1, 2.0) for n in range(5000))
    line = human_line(UnknownKinds(at_ms=AT, kinds=kinds))
    assert "shop.kind0 (1 job, oldest 2s)" in line
    assert "and 4980 more" in line
    assert len(line) < 1500


@pytest.mark.parametrize(
    ("at_ms", "text"),
    [
        (None, None),
        (0, "1970-01-01T00:00:00.000Z"),
        (253_402_300_799_000, "9999-12-31T23:59:59.000Z"),
        (2**62, f"{2**62}ms"),
        (-(2**62), f"-{2**62}ms"),
    ],
)
def test_times_are_iso_8601_utc(at_ms, text):
    """A time outside the calendar is written as a number; nothing raises."""
    assert iso_time(at_ms) == text
