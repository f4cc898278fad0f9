"""Schedules from Python: put, read and changed, as this process's user."""

import datetime as dt
from zoneinfo import ZoneInfo

import msgspec
import pytest

from jobpool import JobPool, UsageError
from jobpool.core.application.codec import encode_json
from jobpool.core.rules.schedules.rule import Rule
from jobpool.store.opening import open_store
from jobpool.store.records.operating import AuditFilter
from support.store.scheduling import declared

BERLIN = ZoneInfo("Europe/Berlin")
NIGHTLY = {"cron": "0 4 * * *", "tz": "Europe/Berlin"}
"""At an hour that each day has, also where clocks are changed."""


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def store(url):
    store = open_store(url)
    yield store
    store.close()


@pytest.fixture
def jobs(url, store):
    jobs = JobPool(url)
    yield jobs
    jobs.close()


@pytest.fixture
def digest(jobs):
    @jobs.job("io", kind="shop.digest")
    def digest(customer: int) -> str:
        return str(customer)

    return digest


def trail(store):
    return [(row.action, row.note) for row in store.audits(AuditFilter())][::-1]


def test_a_schedule_is_put_read_changed_and_removed(jobs, store, digest):
    """Each change is on record; what changes nothing has no row."""
    call = digest.options(priority=2).call(42)
    assert jobs.schedules.put("digest-42", call, **NIGHTLY, tenant="acme", note="new")
    assert not jobs.schedules.put("digest-42", call, **NIGHTLY, tenant="acme")
    seen = jobs.schedules.get("digest-42")
    assert (seen.kind, seen.pool, seen.tenant) == ("shop.digest", "io", "acme")
    assert (seen.when, seen.tz) == ("at 04:00 every day, Europe/Berlin", BERLIN.key)
    assert [(at.hour, at.tzinfo) for at in seen.next] == [(4, BERLIN)] * 3
    assert (seen.last, seen.missed, seen.application) == (None, 0, None)
    assert jobs.schedules.put("digest-42", call, every="1h", from_="end")
    assert jobs.schedules.get("digest-42").when == "1h after each end"
    assert [one.name for one in jobs.schedules.list()] == ["digest-42"]
    assert jobs.schedules.remove("digest-42", note="closed")
    assert not jobs.schedules.remove("digest-42")
    assert jobs.schedules.get("digest-42") is None
    assert trail(store) == [
        ("schedules put", "new"),
        ("schedules put", None),
        ("schedules remove", "closed"),
    ]
    (row,) = store.audits(AuditFilter(), 1, before_id=2)
    assert msgspec.json.decode(row.target) == {
        "schedule": "digest-42",
        "kind": "shop.digest",
        "pool": "io",
        "when": "at 04:00 every day, Europe/Berlin",
        "tenant": "acme",
    }


def test_a_schedule_is_run_now_and_its_ticks_are_listed(jobs, store, digest):
    """The job is one of its ticks; the trail of the job names who made it."""
    jobs.schedules.put("digest", digest.call(42), **NIGHTLY)
    job = jobs.schedules.run("digest", note="asked for")
    assert (job.kind, job.arguments()) == ("shop.digest", {"customer": 42})
    (tick,) = jobs.schedules.ticks("digest")
    assert (tick.state, tick.job_id, tick.job_state) == ("open", job.id, "runnable")
    assert dt.datetime.now(dt.UTC) - tick.at < dt.timedelta(minutes=10)
    assert (tick.at.tzinfo, tick.backfilled) == (BERLIN, False)
    assert jobs.schedules.get("digest").last == tick
    (row, _) = store.audits(AuditFilter())
    assert (row.action, row.jobs, row.note) == ("schedules run", 1, "asked for")
    assert f'"ids":"{job.id}"' in row.target


def test_a_pause_has_an_end_and_a_reason(jobs, store, digest):
    """What is paused without an end has no next time; the end of a pause moves it."""
    jobs.schedules.put("digest", digest.call(42), every="1h")
    assert jobs.schedules.pause("digest", note="vendor down")
    assert not jobs.schedules.pause("digest", note="vendor down")
    seen = jobs.schedules.get("digest")
    assert (seen.paused, seen.paused_until, seen.note) == (True, None, "vendor down")
    assert seen.paused_by
    assert jobs.schedules.next("digest") == seen.next == ()
    assert jobs.schedules.pause("digest", "10h")
    seen = jobs.schedules.get("digest")
    assert seen.next[0] >= seen.paused_until
    assert jobs.schedules.resume("digest", catch_up=True, note="it is back")
    assert not jobs.schedules.resume("digest")
    seen = jobs.schedules.get("digest")
    assert (seen.paused, len(jobs.schedules.next("digest", 20))) == (False, 20)
    assert trail(store)[1:] == [
        ("schedules pause", "vendor down"),
        ("schedules pause", None),
        ("schedules resume", "it is back"),
    ]


def test_a_span_of_the_past_is_made_up_for(jobs, store, digest):
    """Counted first; what has a tick already is left alone."""
    # Half an hour from now, there and back: no tick comes while this runs.
    last = dt.datetime.now(dt.UTC).replace(second=0) - dt.timedelta(minutes=30)
    jobs.schedules.put("digest", digest.call(42), cron=f"{last.minute} * * * *")
    end = last.replace(microsecond=999_999) - dt.timedelta(hours=1)
    start = end.replace(microsecond=0) - dt.timedelta(hours=9)
    assert jobs.schedules.backfill("digest", start, end, dry_run=True) == 10
    assert jobs.schedules.ticks("digest") == ()
    assert jobs.schedules.backfill("digest", start, end, note="lost") == 10
    assert jobs.schedules.backfill("digest", start, end.timestamp()) == 0
    later = jobs.schedules.backfill("digest", start, dt.datetime.now(dt.UTC))
    assert later == 1
    assert jobs.schedules.backfill("digest", start) == 0
    ticks = jobs.schedules.ticks("digest")
    assert {(tick.state, tick.backfilled) for tick in ticks} == {("buffered", True)}
    assert trail(store)[1:] == [("schedules backfill", note) for note in ("lost", None)]


def test_what_makes_no_sense_is_refused(jobs, store, digest):
    """Nothing is stored, and nothing written down."""
    wrong = [
        lambda of: of.put("a b", digest.call(1), every="1h"),
        lambda of: of.put("a", digest, every="1h"),
        lambda of: of.put("a", digest.call(1), cron="0 0 31 2 *"),
        lambda of: of.put("a", digest.call(1), cron="@daily", tz="Europe/Berln"),
        lambda of: of.put("a", digest.options(key="k").call(1), every="1h"),
        lambda of: of.run("nobody"),
        lambda of: of.next("nobody"),
        lambda of: of.ticks("nobody"),
        lambda of: of.pause("nobody"),
        lambda of: of.pause(5),
        lambda of: of.resume("nobody"),
        lambda of: of.backfill("nobody", 0, 1),
        lambda of: of.next("nobody", 0),
        lambda of: of.ticks("nobody", True),
    ]
    for each in wrong:
        with pytest.raises(UsageError):
            each(jobs.schedules)
    assert store.schedules() == []
    assert store.audits(AuditFilter()) == []


def test_arguments_pass_through_the_codec(url, store):
    """Those of a schedule, and so those of its jobs."""

    class Reversing:
        name = "reversing"

        def encode(self, plain):
            return plain[::-1]

        def decode(self, encoded):
            return encoded[::-1]

    codec = Reversing()
    jobs = JobPool(url, codec=codec)

    @jobs.job("io", kind="secret")
    def secret(text: str) -> None: ...

    jobs.schedules.put("secret", secret.call("hidden"), every="1h")
    (row,) = store.schedules()
    assert row.declared.payload == encode_json(codec, b'{"text":"hidden"}')
    assert jobs.schedules.run("secret").arguments() == {"text": "hidden"}
    jobs.close()


def test_a_zone_that_is_unknown_here_spoils_nothing(jobs, store, monkeypatch):
    """The schedule was put on another host: times are in UTC, and none is next."""
    store.put_schedule(declared("nightly", Rule(cron="0 2 * * *", tz=BERLIN.key)))
    store.run_now("nightly")

    def unknown(key):
        raise KeyError(key)

    monkeypatch.setattr("zoneinfo.ZoneInfo", unknown)
    from jobpool.core.rules.schedules.zone import zone_of

    zone_of.cache_clear()
    try:
        (seen,) = jobs.schedules.list()
        assert (seen.when, seen.tz, seen.next) == ("0 2 * * *", BERLIN.key, ())
        assert seen.last.at.tzinfo is dt.UTC
        assert len(jobs.schedules.ticks("nightly")) == 1
    finally:
        zone_of.cache_clear()
