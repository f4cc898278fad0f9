"""`jobpool schedules`, and what other commands say of schedules."""

import json
import re

import msgspec
import pytest

from jobpool.cli.context import now_ms
from jobpool.cli.diagnose.schedules import summary
from jobpool.core.jobs.job import JobState
from jobpool.core.rules.schedules.rule import Rule
from jobpool.store.records.operating import AuditFilter, Filter
from jobpool.words.figures import clock_time
from support.store.cli_store import CLEAR, KIND, RUN, rows, run, stored, url_of
from support.store.scheduling import declared

RUN_OF_SHOP = msgspec.structs.replace(
    RUN, id="run-2", application="shop", app_version="1"
)
DAILY = Rule(cron="0 2 * * *", tz="Asia/Kolkata")
"""At 20:30 UTC on every day of the year."""


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JOBPOOL_STORE", url_of(tmp_path))
    store = stored(tmp_path)
    yield store
    store.close()


def words(result):
    """Return the lines of an output, with single spaces."""
    assert result.exit_code == 0, result.output
    return [" ".join(line.split()) for line in result.stdout.splitlines()]


def actions(store):
    return [(row.action, row.note) for row in store.audits(AuditFilter())][::-1]


def test_the_list_has_the_next_time_here_and_there_and_the_last_ticks_end(store):
    """For people in words, for programs with everything."""
    store.put_schedule(declared("nightly", DAILY))
    store.put_schedule(declared("chew", Rule(every_ms=3_600_000, from_end=True)))
    job_id = store.run_now("nightly")
    store.cancel([job_id])
    head, chew, nightly = words(run("schedules"))
    assert head == "NAME STATE KIND WHEN NEXT LOCAL MISSED LAST END"
    assert chew.startswith("chew active shop.thumbnail 1h after each end 20")
    assert re.fullmatch(
        r"nightly active shop.thumbnail at 02:00 every day, Asia/Kolkata "
        r"\S+ 20:30Z \S+ 02:00 - \S+ \S+Z job \d+ canceled",
        nightly,
    )
    found = {row["name"]: row for row in rows(run("schedules", "--json"))}
    assert found["nightly"]["cron"] == "0 2 * * *"
    assert found["nightly"]["last_tick"]["job_state"] == "canceled"
    assert len(found["nightly"]["next"]) == 3
    assert found["nightly"]["next"][0]["local"].endswith("T02:00:00+05:30")
    assert (found["chew"]["every_s"], found["chew"]["from_end"]) == (3600, True)


def test_a_long_list_is_cut_and_says_how_many_more_there_are(store):
    """The first ones by name; for programs as well; what acts on one has no limit."""
    for name in "cab":
        store.put_schedule(declared(name, DAILY))
    cut = run("schedules", "--limit", 1)
    assert [line.split()[0] for line in words(cut)] == ["NAME", "a"]
    assert cut.stderr == "and 2 more schedules; --limit shows more\n"
    for_programs = run("schedules", "--limit", 2, "--json")
    assert [row["name"] for row in rows(for_programs)] == ["a", "b"]
    assert for_programs.stderr == "and 1 more schedule; --limit shows more\n"
    assert run("schedules", "--limit", 3).stderr == ""
    wrong = run("schedules", "--limit", 3, "show", "a")
    assert wrong.exit_code == 2
    assert "--limit is for the list of schedules; 'show' is" in wrong.stderr


def test_the_list_says_what_is_paused_and_until_when(store):
    """Also where it has a next time, which is after the pause."""
    for name in ("for-ever", "for-days", "on"):
        store.put_schedule(declared(name, DAILY))
    run("schedules", "pause", "for-ever")
    run("schedules", "pause", "for-days", "--for", "72h")
    (until_ms,) = (row.paused_until_ms for row in store.schedules("for-days"))
    _, days, ever, on = words(run("schedules"))
    assert ever.startswith("for-ever paused shop.thumbnail at 02:00")
    assert ever.endswith("Asia/Kolkata - - - - -")
    assert on.startswith("on active shop.thumbnail")
    next_at = re.match(r"for-days paused .*Kolkata (\S+) 20:30Z", days)[1]
    assert clock_time(until_ms - 86_400_000) < f"{next_at} 20:30Z"


def test_one_that_is_overdue_is_shown_so(store, monkeypatch):
    """Else its next time would look as if somebody made a job of it."""
    store.put_schedule(declared("nightly", DAILY))
    later = now_ms() + 90_000
    monkeypatch.setattr("jobpool.cli.admin.schedules.command.now_ms", lambda: later)
    monkeypatch.setattr("jobpool.cli.admin.schedules.reading.now_ms", lambda: later)
    assert words(run("schedules"))[1].startswith("nightly overdue shop.thumbnail")
    (line,) = (s for s in words(run("schedules", "show", "nightly")) if "overdue" in s)
    assert line.startswith("overdue no supervisor has come since 20")


def test_where_nothing_recurs_a_note_says_so(store, tmp_path):
    """An empty list is no error; no store is one, as for `list`."""
    result = run("schedules")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "`jobpool check` shows them before" in result.stderr
    assert rows(run("schedules", "--json")) == []
    assert run("schedules", "--store", f"sqlite:///{tmp_path}/none.db").exit_code == 4


def test_one_is_shown_with_its_rule_its_times_and_its_ticks(store):
    """The note of a pause is harmless, whatever is in it."""
    rule = Rule(cron="0 2 * * *", jitter_ms=60_000, ends_ms=4_000_000_000_000)
    store.put_schedule(declared("nightly", rule, pause_on_dead=True))
    job_id = store.run_now("nightly")
    run("schedules", "pause", "nightly", "--note", f"vendor{CLEAR} down")
    seen = words(run("schedules", "show", "nightly"))
    assert "when at 02:00 every day (0 2 * * *)" in seen
    assert "bounds not after 2096-10-02 07:06:40Z, later by less than 1m00s" in seen
    assert "policy missed=one within 24h00m, overlap=skip, pause_on_dead" in seen
    (paused,) = (line for line in seen if line.startswith("paused "))
    assert paused.endswith(r"vendor\x1b[2J\x9b1m\u202e down")
    assert seen[-1].endswith(f"open job {job_id} runnable")
    (shown,) = rows(run("schedules", "show", "nightly", "--json"))
    assert (shown["paused"], shown["next"]) == (True, [])
    assert [tick["job"] for tick in shown["ticks"]] == [job_id]


def test_one_whose_jobs_wait_for_a_resume_is_shown_so(store):
    """Its ticks go on; each pause of another kind or pool is nothing to it."""
    one = declared("nightly", DAILY)
    store.put_schedule(one)
    for what in ("--kind", "other"), ("--pool", one.pool), ("--kind", one.kind):
        run("pause", *what)
    run("pause", "--all")
    seen = words(run("schedules", "show", "nightly"))
    waits = [line for line in seen if line.startswith("waits its jobs do: ")]
    for what in f"kind {one.kind}", f"pool {one.pool}":
        said = f"{what} is paused, until: jobpool resume --{what}"
        assert f"waits its jobs do: {said}" in waits
    assert sum("jobpool resume --all" in line for line in waits) == 1
    assert len(waits) == 3


def test_show_says_which_tick_a_job_is_of(store):
    """On the clocks of its zone, and for programs in UTC as well; while it is there."""
    at_ms = 1_709_325_000_000
    store.put_schedule(declared("nightly", DAILY))
    store.backfill("nightly", at_ms, at_ms)
    store.tick()
    job_id = store.ticks("nightly")[-1].job_id
    line = "schedule nightly, 2024-03-02 02:00 Asia/Kolkata, backfilled"
    assert line in words(run("show", job_id))
    (shown,) = rows(run("show", job_id, "--json"))
    assert shown["schedule"] == {
        "name": "nightly",
        "at": "2024-03-01T20:30:00.000Z",
        "local": "2024-03-02T02:00:00+05:30",
        "backfilled": True,
    }
    store.remove_schedule("nightly")
    assert not [one for one in words(run("show", job_id)) if "nightly" in one]
    assert rows(run("show", job_id, "--json"))[0]["schedule"] is None


def test_next_says_as_many_times_as_it_is_asked_for(store):
    """In UTC and in the schedule's zone; the store before the command's name counts."""
    store.put_schedule(declared("nightly", DAILY))
    head, *times = words(run("schedules", "next", "nightly", "--count", 20))
    assert (head, len(times)) == ("UTC Asia/Kolkata", 20)
    assert all(re.fullmatch(r"\S+ 20:30Z \S+ 02:00", time) for time in times)
    assert len(rows(run("schedules", "next", "nightly", "--json"))) == 5
    elsewhere = run("schedules", "--store", "sqlite:///none.db", "next", "nightly")
    assert elsewhere.exit_code == 4
    run("schedules", "pause", "nightly")
    assert "has no next time" in run("schedules", "next", "nightly").stderr
    wrong = run("schedules", "next", "nihgtly")
    assert (wrong.exit_code, "did you mean 'nightly'?" in wrong.stderr) == (2, True)


def test_what_people_do_to_schedules_is_on_record(store):
    """Each with its note; said again it changes nothing, and has no row."""
    store.put_schedule(declared("nightly", DAILY))
    (ran,) = rows(run("schedules", "run", "nightly", "--json", "--note", "asked for"))
    assert store.get(ran["job"]).state is JobState.RUNNABLE
    paused = ("schedules", "pause", "nightly", "--for", "2h", "--note", "vendor down")
    assert words(run(*paused)) == ["schedule nightly paused"]
    (row,) = store.schedules("nightly")
    assert row.paused_until_ms - row.paused_ms == 7_200_000
    assert words(run("schedules", "resume", "nightly")) == ["schedule nightly resumed"]
    again = run("schedules", "resume", "nightly", "--catch-up")
    assert words(again) == ["schedule nightly resumed (no change)"]
    backfill = ("schedules", "backfill", "nightly")
    of_late = (*backfill, "--from", "72h", "--to", "0s", "--dry-run")
    assert words(run(*of_late)) == ["3 ticks would be stored"]
    # Not of late: another day's time may come between two commands.
    span = (*backfill, "--from", "2024-03-01T00:00Z", "--to", "2024-03-04T00:00Z")
    assert words(run(*span, "--dry-run")) == ["3 ticks would be stored"]
    assert len(store.ticks("nightly")) == 1
    assert words(run(*span, "--note", "lost")) == ["3 ticks stored"]
    shown = words(run("schedules", "show", "nightly"))
    waits = "buffered waits for the end of another, backfilled"
    assert sum(line.endswith(waits) for line in shown) == 3
    none = "0 ticks stored: no time in that span lacks one"
    assert words(run(*span)) == [none]
    removed = run("schedules", "remove", "nightly", "--note", "not needed", "--json")
    assert rows(removed) == [
        {"schedule": "nightly", "removed": True, "changed": True},
    ]
    assert store.schedules() == []
    again = words(run("schedules", "remove", "nightly"))
    assert again == ["there is no schedule nightly (no change)"]
    assert actions(store) == [
        ("schedules run", "asked for"),
        ("schedules pause", "vendor down"),
        ("schedules resume", None),
        ("schedules backfill", "lost"),
        ("schedules remove", "not needed"),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "none"), "there is no schedule 'none'"),
        (("pause", "none"), "there is no schedule 'none'"),
        (("pause", "nightly", "--for", "0s"), "--for must be longer than 0"),
        (("resume", "none"), "there is no schedule 'none'"),
        (("backfill", "none", "--from", "1d"), "there is no schedule 'none'"),
        (("backfill", "nightly", "--from", "2026-01-01"), "has no time zone"),
        (("backfill", "nightly", "--from", "2d ago"), "or a moment as ISO 8601"),
        (("backfill", "nightly", "--from", "2999-01-01T00:00Z"), "a span of the past"),
        (("remove", "nightly"), "is declared by the application 'shop'"),
        (("--json", "run", "nightly"), "--json belongs behind 'run'"),
        (("nxt", "nightly"), "No such command 'nxt'"),
    ],
)
def test_what_makes_no_sense_is_refused(store, arguments, message):
    """Nothing is changed, and nothing written down."""
    with store.transaction():
        store.begin_run(RUN_OF_SHOP, [KIND], 60.0)
        store.publish_schedules(RUN_OF_SHOP.id, [declared("nightly", DAILY)])
    before = store.schedules()
    result = run("schedules", *arguments)
    assert (result.exit_code, message in result.stderr) == (2, True), result.output
    assert store.schedules() == before
    assert store.find(Filter()) == []
    assert actions(store) == []


def test_status_counts_schedules_and_names_those_that_are_paused(store):
    """And those whose ticks nobody enqueues."""
    assert "SCHEDULES" not in run("status").stdout
    for name in ("a", "b"):
        store.put_schedule(declared(name, DAILY))
    store.pause_schedule("b", who="ann", note="vendor down")
    lines = words(run("status"))
    assert "2 schedules 1 paused jobpool schedules" in lines
    (paused,) = (line for line in lines if line.startswith("b paused by ann"))
    assert paused.endswith(": vendor down jobpool schedules resume b")
    assert summary(store.schedules(), now_ms() + 86_500_000)["overdue"] == 1
    (seen,) = rows(run("status", "--json"))
    assert seen["schedules"] == {
        "schedules": 2,
        "paused": 1,
        "overdue": 0,
        "missed_ticks": 0,
    }


# -- check -------------------------------------------------------------------------

APP = """
from jobpool import JobPool
jobs = JobPool()

@jobs.cron("0 2 * * *", tz="{tz}")
@jobs.job("cpu", kind="nightly")
def nightly(scope: str = "all") -> None: ...

jobs.schedule("poll", nightly.call("eu"), every="{every}")
"""


def test_check_shows_the_next_three_times_of_each(store, tmp_path):
    """A period counts from when the store has it; a name that others have is told."""
    (tmp_path / "jobs.py").write_text(APP.format(tz="Asia/Kolkata", every="1h"))
    store.put_schedule(declared("poll", Rule(every_ms=3_600_000)))
    store.begin_run(RUN_OF_SHOP, [KIND], 60.0)
    store.publish_schedules(RUN_OF_SHOP.id, [declared("nightly")])
    store.publish_schedules(RUN_OF_SHOP.id, [])
    seen = words(run("check"))
    (nightly,) = (line for line in seen if line.startswith("nightly nightly at 02:00"))
    assert nightly.count("20:30Z") == 3
    (note,) = (line for line in seen if line.startswith("note: schedule"))
    assert "'poll' will not run: the store has another" in note
    said = {row.get("schedule"): row for row in rows(run("check", "--json"))}
    assert len(said["poll"]["next"]) == len(said["nightly"]["next"]) == 3
    retired, stored_one = rows(run("schedules", "--json"))
    assert retired["retired_at"]
    assert said["poll"]["next"][0][:23] == stored_one["next"][0]["at"][:23]


@pytest.mark.parametrize(
    ("tz", "every", "message"),
    [
        ("Asia/Kolkatta", "1h", "did you mean 'Asia/Kolkata'?"),
        ("UTC", "0.1s", "every=100ms is out of range"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused_at_load(tmp_path, tz, every, message):
    """With its name and the line of the code, before anything starts."""
    file = tmp_path / "jobs.py"
    file.write_text(APP.format(tz=tz, every=every))
    result = run("check", "--app", file, "--store", url_of(tmp_path))
    assert result.exit_code != 0
    assert message in result.stderr
    assert "jobs.py" in result.stderr


# -- restored ----------------------------------------------------------------------


def test_a_restored_store_with_schedules_asks_what_becomes_of_them(store):
    """Who cannot be asked has to say it; nothing is changed before."""
    store.end_run(RUN.id)
    # Never near its next time, as a fixed time of the day is once a day.
    store.put_schedule(declared("nightly", Rule(every_ms=86_400_000)))
    store.tick()
    assert store.schedules()[0].next_ms > now_ms()
    refused = run("restored")
    assert (refused.exit_code, "--schedules catch-up" in refused.stderr) == (2, True)
    assert store.paused() == []
    seen = words(run("restored", "--dry-run"))
    either = "skip or catch-up, as --schedules says"
    assert f"1 schedule ticks missed since the backup: {either}" in seen
    assert actions(store) == []
    done = run("restored", "--schedules", "skip", "--json")
    assert rows(done)[0]["schedules"] == 1
    (row,) = store.audits(AuditFilter())
    assert json.loads(row.target)["schedules"] == "skip"
    assert store.schedules()[0].next_ms <= now_ms(), "it is planned anew"


def test_a_person_is_asked_what_becomes_of_them(store, monkeypatch):
    """On a terminal; what was answered is done."""
    store.end_run(RUN.id)
    store.put_schedule(declared("nightly", DAILY))
    monkeypatch.setattr("jobpool.cli.admin.restored._can_ask", lambda: True)
    done = run("restored", stdin="what?\ncatch-up\n")
    assert "The store has 1 schedule. What they have missed" in done.stderr
    assert "1 schedule ticks missed since the backup: catch-up" in words(done)
    (row,) = store.audits(AuditFilter())
    assert json.loads(row.target)["schedules"] == "catch up"
