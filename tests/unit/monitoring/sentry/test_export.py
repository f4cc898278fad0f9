"""What Sentry is told, by its own client, at a server on loopback; no job waits."""

import json
import socket

import msgspec
import pytest
from sentry_sdk.worker import _TERMINATOR

from jobpool.core.application.reports import Item, Report
from jobpool.core.clock import SystemClock
from jobpool.core.config.settings import SentrySettings
from jobpool.core.events.figures import (
    AttemptUnsuccessful,
    ReportsLeft,
    TickBegun,
    TickEnded,
)
from jobpool.core.events.jobs import JobEnded
from jobpool.core.jobs.job import Evidence, JobState, Scheduled
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.jobs.trace import read_trace
from jobpool.core.rules.schedules.rule import Rule
from jobpool.errors import ConfigError
from jobpool.monitoring.sentry import export
from jobpool.monitoring.sentry.export import SentryExport
from jobpool.monitoring.sentry.payloads import check_in_of, error_of, slug_of
from support.sentry import Sentry
from support.waiting import wait_until

PATIENCE_S = 30.0

CAUSE = f"00-{'a' * 32}-{'b' * 16}-01"
TRACEBACK = """Traceback (most recent call last):
  File "/usr/lib/python3.11/site-packages/pay/api.py", line 7, in post
    raise Refused(card)
  File "/srv/shop/jobs.py", line 12, in charge
    post(card)
    ^^^^^^^^^^
"""
STACK = """Current thread 0x01 (most recent call first):
  File "/srv/shop/jobs.py", line 30 in order
  File "/srv/shop/jobs.py", line 12 in charge

"""


def attempt(outcome=Outcome.FAILED, state=JobState.DEAD, **evidence):
    """An attempt that has ended without success."""
    ended = JobEnded(
        at_ms=1_700_000_000_000,
        id=17,
        kind="shop.charge",
        slot="io/1",
        attempt=3,
        max_attempts=3,
        outcome=outcome,
        state=state,
        key="card-4111",
        tenant="ada",
        timeout_s=30.0,
    )
    return AttemptUnsuccessful(
        at_ms=ended.at_ms,
        ended=ended,
        pool="io",
        evidence=Evidence(**evidence),
        cause=CAUSE,
        trace=read_trace(CAUSE)._replace(span_id="c" * 16),
        app_version="v7",
    )


RAISED = attempt(error_class="pay.Refused", error="no", traceback=TRACEBACK)
KILLED = attempt(
    Outcome.TIMED_OUT, reason="killed at 30s", signal=9, stack=STACK, peak_rss_bytes=5
)
TICK = Scheduled("report.nightly", 3_600_000, "UTC", late_ms=0)
BEGUN = TickBegun(
    at_ms=0, id=5, tick=TICK, rule=Rule(cron="0 2 * * *", tz="Asia/Tokyo")
)


def ended(state=JobState.SUCCEEDED):
    return TickEnded(at_ms=0, id=5, tick=TICK, rule=None, state=state, duration_s=2.5)


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Wait for what a busy machine sends, unless a test is about that."""
    monkeypatch.setattr(export, "CLOSE_S", PATIENCE_S)
    monkeypatch.setattr(export, "SEND_S", PATIENCE_S)


@pytest.fixture
def sentry():
    with Sentry() as sentry:
        yield sentry


def exporting(sentry, dropped, **settings):
    given = SentrySettings(dsn=sentry.dsn, **settings)
    return SentryExport(given, "/srv/shop", dropped.append, SystemClock())


def test_an_exception_has_its_frames_its_trace_and_the_evidence():
    """So that Sentry groups it by where it comes from, and shows who has caused it."""
    found = error_of(RAISED, "/srv/shop")
    (exception,) = found["exception"]["values"]
    assert (exception["module"], exception["type"]) == ("pay", "Refused")
    assert exception["value"] == "no"
    outer, inner = exception["stacktrace"]["frames"]
    assert (outer["filename"], outer["lineno"]) == ("pay/api.py", 7)
    assert (inner["filename"], inner["function"]) == ("jobs.py", "charge")
    assert (inner["context_line"], inner["in_app"]) == ("post(card)", True)
    assert not outer["in_app"]
    assert "fingerprint" not in found
    assert found["level"] == "error"
    assert found["contexts"]["trace"] == {
        "trace_id": "a" * 32,
        "span_id": "c" * 16,
        "parent_span_id": "b" * 16,
        "op": "queue.process",
        "status": "internal_error",
    }
    assert found["tags"]["jobpool.state"] == "dead"
    assert found["contexts"]["jobpool"]["attempt"] == 3


def test_a_death_is_one_issue_of_its_kind_with_signal_memory_and_stack():
    found = error_of(KILLED, "/srv/shop")
    (exception,) = found["exception"]["values"]
    assert (exception["type"], exception["value"]) == ("TimedOut", "killed at 30s")
    calls = [call["function"] for call in exception["stacktrace"]["frames"]]
    assert calls == ["charge", "order"]
    assert found["fingerprint"] == ["jobpool", "shop.charge", "timed_out"]
    assert found["level"] == "fatal"
    evidence = found["contexts"]["jobpool"]
    assert (evidence["signal"], evidence["peak_memory_bytes"]) == ("SIGKILL", 5)
    assert (evidence["timeout_s"], evidence["see"]) == (30.0, "jobpool show 17")


def test_soft_limits_are_one_issue_of_their_kind():
    """They interrupt a handler wherever it is."""
    soft = attempt(
        Outcome.TIMED_OUT, error_class="jobpool.errors.SoftTimeout", traceback=TRACEBACK
    )
    found = error_of(soft, "/srv/shop")
    assert found["fingerprint"] == [
        "jobpool",
        "shop.charge",
        "jobpool.errors.SoftTimeout",
    ]
    assert len(found["exception"]["values"][0]["stacktrace"]["frames"]) == 2


def test_a_lost_attempt_of_a_job_without_a_trace_needs_no_more_than_the_log_has():
    lost = msgspec.structs.replace(attempt(Outcome.LOST), trace=None, cause=None)
    found = error_of(lost, "/srv/shop")
    assert found["exception"]["values"][0]["type"] == "Lost"
    assert "trace" not in found["contexts"]


def test_what_a_job_was_given_is_in_no_report():
    """Not its key either, which may be a person's."""
    assert "4111" not in json.dumps([error_of(one, "") for one in (RAISED, KILLED)])


def test_a_tick_is_a_check_in_that_its_end_completes():
    begun, good = check_in_of(BEGUN), check_in_of(ended())
    assert begun["check_in_id"] == good["check_in_id"]
    assert (begun["status"], good["status"]) == ("in_progress", "ok")
    assert check_in_of(ended(JobState.DEAD))["status"] == "error"
    assert (begun["monitor_slug"], good["duration"]) == ("report-nightly", 2.5)
    assert begun["monitor_config"] == {
        "schedule": {"type": "crontab", "value": "0 2 * * *"},
        "timezone": "Asia/Tokyo",
    }
    assert "monitor_config" not in good


@pytest.mark.parametrize(
    ("rule", "config"),
    [
        (
            Rule(every_ms=7_200_000),
            {"schedule": {"type": "interval", "value": 2, "unit": "hour"}},
        ),
        (
            Rule(every_ms=60_000, jitter_ms=61_000),
            {
                "schedule": {"type": "interval", "value": 1, "unit": "minute"},
                "checkin_margin": 3,
            },
        ),
        (Rule(every_ms=1500), None),
    ],
)
def test_periods_are_intervals_as_far_as_sentry_has_them(rule, config):
    found = check_in_of(msgspec.structs.replace(BEGUN, rule=rule))
    assert found.get("monitor_config") == config


def test_ticks_of_the_past_are_no_check_ins():
    """They would be taken for those of today."""
    past = Scheduled("report.nightly", 3_600_000, "UTC", late_ms=0, backfilled=True)
    assert check_in_of(msgspec.structs.replace(BEGUN, tick=past)) is None


def test_names_of_monitors_are_such_as_sentry_takes():
    assert slug_of("Report.Nightly/eu") == "report-nightly-eu"
    long, other = slug_of("a" * 60), slug_of("a" * 61)
    assert len(long) == 50
    assert long != other


def test_reports_arrive_also_those_of_the_last_moment(sentry):
    dropped = []
    with exporting(sentry, dropped, monitors=True) as own:
        for event in (RAISED, BEGUN, ended(), KILLED):
            assert own.hears(type(event))
            own.observe(event)
    kinds = [kind for kind, _item in sentry.items]
    assert kinds == ["event", "check_in", "check_in", "event"]
    assert sentry.of("event")[0]["tags"]["jobpool.kind"] == "shop.charge"
    assert dropped == []


def test_only_a_jobs_last_attempt_is_reported_unless_each_is_wanted(sentry):
    retried = attempt(state=JobState.PENDING, error_class="E")
    stopped = attempt(Outcome.INTERRUPTED, JobState.PENDING)
    for each, reports in ((False, 1), (True, 3)):
        with exporting(sentry, [], each=each) as own:
            for event in (retried, stopped, RAISED):
                own.observe(event)
        assert len(sentry.of("event")) == reports


def test_ticks_are_heard_only_if_they_are_to_be_monitors(sentry):
    assert not exporting(sentry, []).hears(TickBegun)


def test_what_sentry_refuses_is_dropped_and_told_once(sentry):
    sentry.status, dropped = 500, []
    own = exporting(sentry, dropped)
    own.observe(RAISED)
    own.observe(KILLED)
    with own:  # both wait by now: they are sent together, also on a busy machine
        pass
    (told,) = dropped
    assert (told.reports, told.reason) == (2, "Sentry has not taken them: status_500")


def test_an_end_does_not_wait_for_a_sentry_that_does_not_answer(sentry, monkeypatch):
    """What was not sent by then is told."""
    monkeypatch.setattr(export, "CLOSE_S", 0.2)
    monkeypatch.setattr(export, "SEND_S", 0.2)
    dropped = []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(PATIENCE_S)
        sentry.dsn = f"http://key@127.0.0.1:{silent.getsockname()[1]}/42"
        with exporting(sentry, dropped) as own:
            own.observe(RAISED)
            peer, _ = silent.accept()  # else a busy machine may not have begun to send
        peer.close()
    (told,) = dropped
    assert (told.reports, told.reason) == (1, "no answer came before the end")


def test_all_that_a_silent_sentry_has_not_got_at_the_end_is_counted_once(
    sentry, monkeypatch
):
    """Also what its client had no room for, and what the end did not wait for."""
    monkeypatch.setattr(export, "CLOSE_S", 0.3)
    monkeypatch.setattr(export, "SEND_S", 0.02)
    monkeypatch.setattr(export, "ASIDE_MAX", 200)
    monkeypatch.setattr(export, "AT_ONCE", 40)
    dropped = []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        sentry.dsn = f"http://key@127.0.0.1:{silent.getsockname()[1]}/42"
        own = exporting(sentry, dropped)
        worker = own._client.transport._worker
        for _ in range(205):
            own.observe(RAISED)
        with own:
            wait_until(worker.full, PATIENCE_S, "its client has no room left")
            thread = worker._thread
        worker._queue.queue.clear()  # else it would go on trying beside other tests
        worker._queue.put_nowait(_TERMINATOR)  # there was no room for it
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert sum(one.reports for one in dropped) == 205


def test_a_report_that_cannot_be_made_costs_that_one_alone(sentry):
    """The log says where to look; the next report goes out."""
    dropped = []
    broken = msgspec.structs.replace(
        RAISED, evidence=Evidence(error_class="E", traceback=7)
    )
    with exporting(sentry, dropped) as own:
        for event in (broken, RAISED, broken):
            own.observe(event)
        sentry.wait_for("event")
    assert sum(one.reports for one in dropped) == 2
    for one in dropped:
        assert one.reason.startswith("AttributeError: 'int' object has no attribute")
        assert "please report it" in one.reason


def test_what_finds_no_room_is_dropped_and_told(sentry, monkeypatch):
    """The loop never waits for Sentry."""
    monkeypatch.setattr(export, "ASIDE_MAX", 2)
    dropped = []
    own = exporting(sentry, dropped)
    for _ in range(5):
        own.observe(RAISED)
    with own:
        pass
    assert len(sentry.of("event")) == 2
    assert [one.reports for one in dropped] == [3]


LEFT = Report(
    "e" * 32,
    of_error=True,
    items=[
        Item({"type": "event", "content_type": "application/json"}, b'{"by": "it"}')
    ],
    trace={"trace_id": "a" * 32},
)


def test_what_a_child_says_of_its_error_is_sent_instead(sentry):
    """As it is: with the breadcrumbs that only the child knows."""
    with exporting(sentry, []) as own:
        own.observe(msgspec.structs.replace(RAISED, report=LEFT))
        own.observe(ReportsLeft(at_ms=0, reports=(LEFT, LEFT)))
    assert sentry.of("event") == [{"by": "it"}] * 3
    head = sentry.heads[0]
    assert (head["event_id"], head["trace"]) == ("e" * 32, {"trace_id": "a" * 32})


def test_what_an_application_filters_is_reported_by_nobody(sentry):
    nothing = Report("e" * 32, of_error=True)
    with exporting(sentry, []) as own:
        own.observe(msgspec.structs.replace(RAISED, report=nothing))
        own.observe(KILLED)
    assert len(sentry.of("event")) == 1


def test_reports_that_wait_take_only_so_much_memory(sentry, monkeypatch):
    monkeypatch.setattr(export, "ASIDE_MAX_BYTES", 2 * LEFT.size_bytes)
    dropped = []
    own = exporting(sentry, dropped)
    for _ in range(3):
        own.observe(msgspec.structs.replace(RAISED, report=LEFT))
    with own:
        pass
    assert len(sentry.of("event")) == 2
    assert [one.reports for one in dropped] == [1]


@pytest.mark.parametrize(
    ("variable", "named", "told"),
    [
        ("", None, "production"),
        ("", "development", "development"),
        ("staging", "development", "staging"),
    ],
)
def test_the_environment_is_named_by_the_variable_before_all(
    sentry, monkeypatch, variable, named, told
):
    """Check-ins are of it as well."""
    monkeypatch.setenv("SENTRY_ENVIRONMENT", variable)
    settings, clock = SentrySettings(dsn=sentry.dsn, monitors=True), SystemClock()
    with SentryExport(settings, "", lambda _event: None, clock, named) as own:
        own.observe(RAISED)
        own.observe(BEGUN)
    assert [item["environment"] for _, item in sentry.items] == [told, told]


def test_a_dsn_that_the_client_does_not_take_is_refused():
    with pytest.raises(ConfigError, match="nothing was started"):
        SentryExport(
            SentrySettings(dsn="environment"), "", lambda _event: None, SystemClock()
        )
