"""Which job runs when: order, times, keys, pauses, cancellations, jobs from jobs."""

import json
import re
import signal
import subprocess
import sys
import time
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner

from jobpool.cli.root import cli
from jobpool.core.rules.schedules.rule import Rule
from jobpool.core.rules.schedules.schedule import Declared
from jobpool.store.records.operating import Filter
from support.site.supervising import PATIENCE_S, Site, is_alive
from support.waiting import Running, wait_until

APP = """
@jobs.job("cpu", kind="work")
def work(note: str = ""):
    witness("work")
    return note


@jobs.job("io", kind="work.io")
def work_io(note: str = ""):
    witness("work")


@jobs.job("cpu", kind="time")
def take(seconds: float = 0.0, *, fails: bool = False, gate: str = ""):
    (HERE / f"at.{current().id}").write_text(repr(time.time()))
    time.sleep(seconds)
    if gate:
        hold(gate)
    if fails:
        raise GiveUp("as it was asked to")


@jobs.job("cpu", kind="hold")
def wait_at(gate: str):
    sleeper = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    (HERE / f"sleeper.{current().id}").write_text(str(sleeper.pid))
    hold(gate)


@jobs.job("cpu", kind="chatty")
def chat(gate: str):
    print("one", flush=True)
    hold(gate)
    print("two \x1b[31mred", flush=True)
    hold(gate + ".2")
    print("three")


@jobs.job("cpu", kind="parent", max_attempts=1)
def parent(children: int):
    made = [work.enqueue(f"child {number}") for number in range(children)]
    return [job.id for job in made]


@jobs.job("cpu", kind="threads", max_attempts=1)
def threads():
    made = []
    def make():
        for number in range(10):
            made.append(work.enqueue(f"thread {number}").id)
    several = [threading.Thread(target=make) for _ in range(4)]
    for one in several:
        one.start()
    for one in several:
        one.join()
    return made


@jobs.job("cpu", kind="then_die", max_attempts=1, max_crashes=1)
def then_die():
    made = work.enqueue("of a crash")
    (HERE / "made").write_text(str(made.id))
    os._exit(1)


@jobs.job("cpu", kind="conflict", max_attempts=1)
def conflict():
    first = work.options(key="k").enqueue("one")
    again = work.options(key="k").enqueue("one")
    try:
        work.options(key="k").enqueue("two")
    except jobpool.KeyConflict as exc:
        return [first.id == again.id, again.created, exc.job_id == first.id]


@jobs.job("cpu", kind="types", max_attempts=1)
def types(texts: str):
    newest = work.options(unique="typed", on_conflict="replace")
    made = [newest.enqueue(text) for text in texts]
    return [(job.id == made[0].id, job.created, job.replaced) for job in made]


@jobs.job("io", kind="peek", max_attempts=1)
def peek():
    made = jobs.get(work.enqueue("x").id)
    seen = [made.kind, made.info().tenant, str(made.state)]
    for nobodys in (10**9, 2**70, -1):
        try:
            jobs.get(nobodys)
        except jobpool.JobNotFound as exc:
            seen.append("JobNotFound")
    try:
        made.result()
    except jobpool.UsageError as exc:
        seen.append(str(exc))
    while True:
        time.sleep(0.01)
        try:
            return seen + [made.result(timeout=0)]
        except jobpool.WaitTimeout:
            pass


@jobs.job("cpu", kind="says_what_it_is", max_attempts=3)
def says_what_it_is():
    now = current()
    return [now.tenant, now.key, now.priority, now.attempt, list(now.limits)]


@jobs.job("cpu", kind="says_its_tick", max_attempts=1)
def says_its_tick():
    tick = current().schedule
    return tick and [tick.name, str(tick.at), tick.late.total_seconds()]


@jobs.job("cpu", kind="crowds", max_attempts=1)
def crowds():
    try:
        work.options(tenant="crowded").enqueue("one too many")
    except jobpool.QueueFull as exc:
        return [exc.what, exc.depth, exc.depth_max, exc.age_s, exc.retry_after_s]


@jobs.job("cpu", kind="too_much", max_attempts=1)
def too_much():
    try:
        return work.enqueue("x" * 2000).id
    except jobpool.ArgumentsRejected as exc:
        return str(exc)
"""
CONFIG = """
payload_max = 2000
[tenants.crowded]
depth_max = 0
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with Site(tmp_path_factory.mktemp("queue"), APP) as site:
        site.of_tomorrow = site.add("of.tomorrow", {"a": 1})
        (site.folder / "other.toml").write_text(CONFIG)
        site.start("cpu=1,io=1", "--config", "other.toml")
        yield site
        site.supervisors[0].stop()


@pytest.fixture
def busy(site, request):
    """Keep the one slot of pool cpu busy until the test opens the gate."""
    gate = f"gate.{request.node.name}"
    job_id = site.add("hold", {"gate": gate}, priority=100)
    site.wait_begun(job_id)
    yield gate
    site.open_gate(gate)
    site.finish(job_id)


def order_of(site, ids):
    """Wait for the ends of these jobs; return them in the order of their beginning."""
    site.finish_all(ids)
    return [one.job for one in site.witnesses("work") if one.job in ids]


def test_order_is_priority_then_time_then_number(site, busy):
    """Higher priority first; of equals the one due longest, then the older one."""
    plain, low, high, second = (
        site.add("work", priority=priority) for priority in (0, -5, 5, 0)
    )
    early = site.add("work", run_at_ms=1_000_000)
    site.open_gate(busy)
    ids = [plain, low, high, second, early]
    assert order_of(site, ids) == [high, early, plain, second, low]


def test_a_full_pool_does_not_delay_another(site, busy):
    """Pools share nothing: io works while cpu is stuck."""
    stuck = site.add("work")
    assert site.finish(site.add("work.io", pool="io")).state == "succeeded"
    assert site.job(stuck).state == "runnable"


def test_a_job_from_another_process_starts_before_the_next_poll(site):
    """A wake-up starts it, not the poll of each second."""
    waits = []
    for _ in range(9):
        time.sleep(0.3)  # the polls that follow a hint thin out meanwhile
        job = site.finish(site.add("work"))
        waits.append(job.started_at_ms - job.created_at_ms)
    assert sorted(waits)[4] < 200


@pytest.mark.parametrize("seconds", [0.0, 0.3, 1.3])
@pytest.mark.parametrize("fails", [False, True])
def test_times_are_when_things_happened(site, seconds, fails):
    """When the handler began and ended, not when that was recorded."""
    with Running() as running:
        job = site.finish(site.add("time", {"seconds": seconds, "fails": fails}))
        stood_ms = running.stood_ms()
    assert job.state == ("dead" if fails else "succeeded")
    took_ms = job.finished_at_ms - job.started_at_ms
    assert abs(took_ms - 1000 * job.duration_s) <= 2
    began_ms = 1000 * float((site.folder / f"at.{job.id}").read_text())
    assert -300 - stood_ms < job.started_at_ms - began_ms < 2
    for attempt in site.store.attempts(job.id):
        times = attempt.started_at_ms, attempt.finished_at_ms
        assert times == (job.started_at_ms, job.finished_at_ms)


def test_a_running_job_shows_when_it_began(site):
    """The start is recorded a second later, with its true time."""
    with Running() as running:
        job_id = site.add("time", {"gate": "seen"})
        seen = wait_until(
            lambda: site.job(job_id).started_at_ms, PATIENCE_S, "its start"
        )
        stood_ms = running.stood_ms()
    assert site.job(job_id).state == "leased"
    site.wait_begun(job_id)  # who noted its start did not wait for its handler
    began_ms = 1000 * float((site.folder / f"at.{job_id}").read_text())
    assert -500 - stood_ms < seen - began_ms < 2
    site.open_gate("seen")
    site.finish(job_id)


def test_show_has_what_a_running_job_has_written(site):
    """Its tail, harmless on a terminal; at its end it goes to the log as always."""
    job_id = site.add("chatty", {"gate": "chat"})

    def shown(output):
        seen = lambda: site.cli("show", job_id)[0]["output"] == output  # noqa: E731 - only here
        wait_until(seen, PATIENCE_S, f"output {output!r}")

    shown("one\n")
    site.open_gate("chat")
    shown("one\ntwo \x1b[31mred\n")
    done = CliRunner().invoke(cli, ["show", str(job_id), "--store", site.url])
    assert "OUTPUT SO FAR" in done.output
    assert re.search(r"^ +observed +memory \d.*MiB now$", done.output, re.MULTILINE)
    assert "two \\x1b[31mred\n" in done.output
    (listed,) = [one for one in site.cli("list") if one["id"] == job_id]
    assert "output" not in listed
    assert listed["rss_bytes"] > 2**20
    assert not site.supervisors[0].events("job_output", id=job_id)
    site.open_gate("chat.2")
    site.finish(job_id)
    assert site.cli("show", job_id)[0]["output"] is None
    site.supervisors[0].wait_event("job_output", id=job_id, line="three")
    lines = [one["line"] for one in site.supervisors[0].events("job_output", id=job_id)]
    assert lines == ["one", "two \x1b[31mred", "three"]


def test_a_job_of_the_future_waits(site):
    """run_in is counted by the store's clock; until then the job is pending."""
    with Running() as running:
        job_id, later = (site.add("work", delay_ms=ms) for ms in (700, 3_600_000))
        assert site.job(later).state == "pending"
        site.cli("cancel", later)
        job = site.finish(job_id)
        stood_ms = running.stood_ms()
    assert job.started_at_ms >= job.run_at_ms == job.created_at_ms + 700
    assert job.started_at_ms - job.run_at_ms < 5_000 + stood_ms


def test_an_expired_job_is_canceled_and_never_starts(site, busy):
    """A job that did not begin in time never begins."""
    job_id = site.add("work", expires_in_ms=100)
    in_time = site.add("work", expires_in_ms=3_600_000)
    wait_until(
        lambda: time.time() * 1000 > site.job(job_id).expires_at_ms + 50,
        PATIENCE_S,
        "the expiry",
    )
    site.open_gate(busy)
    assert site.finish(job_id).state == "canceled"
    assert site.finish(in_time).state == "succeeded"
    assert order_of(site, [job_id]) == []


def test_unique_allows_one_unfinished_job(site, busy):
    """While it waits or runs there is no second one; afterwards there may be."""
    first = site.add("work", unique="cat")
    assert site.add("work", unique="cat") == first
    site.open_gate(busy)
    site.finish(first)
    later = site.add("work", unique="cat")
    assert later != first
    assert order_of(site, [first, later]) == [first, later]


def test_a_handler_replaces_what_it_has_enqueued(site):
    """Through its supervisor: one job, with the newest arguments."""
    typed = site.finish(site.add("types", {"texts": "abc"})).result
    assert json.loads(typed) == [[True, True, False]] + [[True, False, True]] * 2
    (job,) = site.store.find(Filter(kind="work"), limit=1)
    assert json.loads(site.finish(job.id).result) == "c"
    assert job.replacements == 2


def test_an_update_of_a_running_job_runs_after_it(site):
    """The command line says so, and `show` says for which job it waits."""
    shared = ("--unique", "held", "--on-conflict", "replace")

    def update(gate):
        (said,) = site.cli("enqueue", "hold", json.dumps({"gate": gate}), *shared)
        return said

    first = update("held.1")["id"]
    site.wait_begun(first)
    second = update("lost")
    assert (second["created"], second["state"]) == (True, "waiting")
    third = update("held.2")
    assert (third["id"], third["replaced"]) == (second["id"], True)
    assert (third["created"], third["postponed"]) == (False, False)
    (shown,) = site.cli("show", second["id"])
    assert (shown["follows"], shown["replacements"]) == (first, 1)
    assert site.cli("show", first)[0]["followed_by"] == second["id"]
    text = CliRunner().invoke(cli, ["show", str(second["id"]), "--store", site.url])
    assert f"runs when job {first} has ended, which has its unique text" in text.output
    assert "replaced 1 time" in text.output
    site.open_gate("held.1")
    assert site.finish(first).state == "succeeded"
    site.wait_begun(second["id"])
    site.open_gate("held.2")
    assert site.finish(second["id"]).state == "succeeded"


def test_a_running_job_is_canceled_with_its_processes(site):
    """The whole process tree is killed, and the job is never tried again."""
    job_id = site.add("hold", {"gate": "never"})
    child = site.wait_begun(job_id).pid
    assert site.cli("cancel", job_id)[0]["canceled"] == 1
    job = site.finish(job_id)
    assert (job.state, job.outcome, job.failures) == ("canceled", "canceled", 0)
    sleeper = int((site.folder / f"sleeper.{job_id}").read_text())
    assert not is_alive(child)
    assert not is_alive(sleeper)


def test_a_queued_job_is_canceled_and_never_starts(site, busy):
    """At once, without a supervisor."""
    queued, other = site.add("work"), site.add("work")
    site.cli("cancel", queued)
    assert site.job(queued).state == "canceled"
    site.open_gate(busy)
    assert order_of(site, [queued, other]) == [other]


@pytest.mark.parametrize(("what", "name"), [("--pool", "cpu"), ("--kind", "work")])
def test_a_pause_holds_jobs_back_until_resumed(site, what, name):
    """No job of what is paused is leased; everything else runs."""
    site.cli("pause", what, name)
    try:
        held = site.add("work")
        assert site.finish(site.add("work.io", pool="io")).state == "succeeded"
        assert site.finish(site.add("work.io", pool="io")).state == "succeeded"
        assert (site.job(held).state, site.job(held).attempt) == ("runnable", 0)
    finally:
        site.cli("resume", what, name)
    assert site.finish(held).state == "succeeded"


def test_unknown_kinds_wait_and_are_named(site):
    """A kind not deployed here yet costs no attempt; status and log name it."""
    job_id = site.of_tomorrow
    named = site.supervisors[0].wait_event("unknown_kinds")
    assert named["kinds"][0]["kind"] == "of.tomorrow"
    assert (site.job(job_id).state, site.job(job_id).attempt) == ("runnable", 0)
    status = json.dumps(site.cli("status"))
    assert "of.tomorrow" in status
    site.cli("cancel", job_id)


def test_a_handlers_jobs_are_durable_when_enqueue_returns(site):
    """They go through the supervisor and survive a crash of the enqueueing job."""
    assert site.finish(site.add("then_die")).state == "quarantined"
    made = int((site.folder / "made").read_text())
    assert site.result(made) == "of a crash"


def test_a_handler_enqueues_many(site):
    """Each has its number, in order, and each runs once."""
    made = site.result(site.add("parent", {"children": 25}))
    assert made == sorted(set(made))
    assert [site.result(one) for one in made] == [f"child {n}" for n in range(25)]
    assert order_of(site, made) == made


def test_a_handlers_threads_enqueue_too(site):
    """Each thread gets its own answer."""
    made = site.result(site.add("threads"))
    assert len(set(made)) == 40
    notes = sorted(site.result(one) for one in made)
    assert notes == sorted([f"thread {n}" for n in range(10)] * 4)


def test_keys_hold_in_a_handler(site):
    """The same errors as anywhere else reach it."""
    assert site.result(site.add("conflict")) == [True, False, True]


def test_a_handler_is_told_what_is_full_as_any_producer_is(site):
    """Its supervisor's limits hold, as last read; the error has all of its fields."""
    found = site.result(site.add("crowds"))
    assert found == ["tenant crowded", 0, 0, None, 60.0]
    (supervisor,) = site.supervisors
    changed = CONFIG.replace("depth_max = 0", "") + "[alerts]\nwatch = true\n"
    (site.folder / "other.toml").write_text(changed)
    supervisor.send(signal.SIGHUP)
    wait_until(
        lambda: len(supervisor.events("pool_reloaded")) == 2, PATIENCE_S, "a reload"
    )
    assert site.result(site.add("crowds")) is None
    said = supervisor.wait_event("restart_needed")
    assert said["settings"] == ["[alerts]"]


def test_a_handler_reads_jobs_through_its_supervisor(site):
    """It may read jobs but must not wait for one: that would hold its slot."""
    found = site.result(site.add("peek", pool="io"))
    assert found[2] in ("runnable", "leased", "succeeded")
    assert found[:2] + found[3:6] == ["work", None, *["JobNotFound"] * 3]
    assert "holds its slot" in found[6]
    assert found[7:] == ["x"]


def test_a_handler_knows_its_job_and_limits(site):
    """Its job's options, and its attempt's limits."""
    options = {"tenant": "ada", "key": "evt-1", "priority": 3}
    limits = {"timeout_s": 7.0, "memory_bytes": 200 * 2**20}
    plain = site.result(site.add("says_what_it_is"))
    assert plain == [None, None, 0, 1, [600.0, 2**30, 3, 0]]
    said = site.result(site.add("says_what_it_is", max_attempts=2, **options, **limits))
    assert said == ["ada", "evt-1", 3, 1, [7.0, 200 * 2**20, 2, 0]]


def test_a_handler_can_ask_for_its_tick(site):
    """A schedule's job knows its nominal time; another job has none."""
    rule = Rule(every_ms=3_600_000, tz="Asia/Kolkata")
    made = Declared(
        name="ask", kind="says_its_tick", pool="cpu", payload=b"{}", rule=rule
    )
    site.store.put_schedule(made)
    job_id = site.store.run_now("ask")
    site.store.wake()
    name, at, late_s = site.result(job_id)
    (tick,) = site.store.ticks("ask")
    expected = datetime.fromtimestamp(tick.nominal_ms / 1000, ZoneInfo("Asia/Kolkata"))
    assert (name, at) == ("ask", str(expected))
    assert 0 <= late_s < 60
    assert site.result(site.add("says_its_tick")) is None


# -- the caller's own transaction --------------------------------------------------


def script(site, code):
    """Run a user's program in its own process."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=site.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


IN_TRANSACTION = """
import sqlite3
from jobs import jobs, work
connection = sqlite3.connect("jobpool.db", timeout=40)
connection.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER)")
connection.commit()
"""


ROLLED_BACK = """
try:
    with jobs.transaction(connection):
        connection.execute("INSERT INTO orders VALUES (1)")
        print(work.options(connection=connection).enqueue("lost").id)
        raise KeyError
except KeyError:
    pass
"""
COMMITTED = """
with jobs.transaction(connection):
    connection.execute("INSERT INTO orders VALUES (2)")
    print(work.options(connection=connection).enqueue("kept").id)
"""
OWN_BEGIN = """
connection.execute("INSERT INTO orders VALUES (2)")
print(work.options(connection=connection).enqueue("kept").id)
connection.commit()
"""


def test_a_job_of_a_rolled_back_transaction_never_runs(site):
    """The job disappears with the row it belongs to."""
    assert site.job(int(script(site, IN_TRANSACTION + ROLLED_BACK))) is None
    after = site.add("work")
    assert order_of(site, [after]) == [after]


@pytest.mark.parametrize("how", [COMMITTED, OWN_BEGIN])
def test_a_job_of_a_committed_transaction_runs(site, how):
    """With the row it belongs to, and soon, whichever side began the transaction."""
    job_id = int(script(site, IN_TRANSACTION + how))
    assert site.result(job_id) == "kept"


def test_nothing_else_happened(site):
    """No job here was charged with a crash except the one that caused it."""
    found = site.store.find(Filter(), limit=1000)
    assert {job.kind for job in found if job.crashes} == {"then_die"}
    assert site.supervisors[0].events("stale_settlement") == []


def test_handlers_obey_their_supervisors_payload_max(site):
    """It may come from a file that only the supervisor was given."""
    refused = site.result(site.add("too_much"))
    assert "at most 2,000" in refused
    assert "raise payload_max" in refused
