"""list, show, status: what is there, for people and for programs, always harmless."""

import json
import re

import msgspec
import pytest
from rich.console import Console

from jobpool.cli.context import now_ms
from jobpool.cli.diagnose import usage
from jobpool.cli.jobs.state_names import WORDS
from jobpool.core.formats import CODECS
from jobpool.core.jobs.job import Evidence, JobState, Progress, Throttled
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.run_report import (
    HostReport,
    KindReport,
    MemoryReport,
    PoolReport,
    RunReport,
    StoreReport,
)
from jobpool.errors import FeatureHeldBack
from jobpool.store.records.alerts import Found, Turn
from jobpool.words.jobs.values import running_s
from support.store.cli_store import (
    CLEAR,
    KIND,
    RUN,
    dead,
    enqueue,
    quarantined,
    rows,
    run,
    settle,
    stored,
    succeeded,
)
from support.store.flows import only, step, store_flow
from support.store.storing import ended, lease_one, make_waiting, snoozed, started

UNSAFE = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]")
PROMISED = {
    "id",
    "kind",
    "pool",
    "state",
    "attempt",
    "max_attempts",
    "failures",
    "crashes",
    "interruptions",
    "recoveries",
    "result",
    "error",
    "progress",
    "created_at",
    "run_at",
    "started_at",
    "finished_at",
    "last_heartbeat_at",
    "error_class",
    "outcome",
    "reason",
    "duration_s",
    "cpu_s",
    "peak_rss_bytes",
    "key",
    "unique",
    "tenant",
    "priority",
    "supervisor",
    "slot",
    "attempts",
}
PROMISED_OF_ATTEMPTS = {
    "outcome",
    "reason",
    "signal",
    "exit_code",
    "peak_rss_bytes",
    "duration_s",
    "error_class",
    "error",
    "slot",
    "started_at",
    "finished_at",
}
LONG = {"stack", "output", "traceback"}


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def store(tmp_path):
    store = stored(tmp_path)
    yield store
    store.close()


@pytest.mark.parametrize("command", ["list", "status", "show 1", "cancel 1", "prune"])
def test_a_missing_store_is_refused_and_not_made(tmp_path, command):
    """Reading never creates a file where somebody mistyped a path."""
    result = run(*command.split())
    assert result.exit_code == 4
    assert "Error: there is no store" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_list_json_has_every_promised_field(store):
    """One object a line, newest first, result decoded, times in ISO 8601 UTC."""
    first, second = succeeded(store), quarantined(store)
    found = rows(run("list", "--json"))
    assert [row["id"] for row in found] == [second, first]
    for row in found:
        assert set(row) >= PROMISED
        assert re.fullmatch(r"\d{4}-.*T.*\.\d{3}Z", row["created_at"])
    assert found[1]["result"] == {"ok": True}
    assert found[1]["attempts"] == []
    assert found[0]["max_attempts"] == KIND.max_attempts
    (attempt,) = found[0]["attempts"]
    assert set(attempt) >= PROMISED_OF_ATTEMPTS
    assert not set(attempt) & LONG
    assert attempt["signal"] == 11


def test_list_full_has_stacks_and_output(store):
    """What can be long comes only when it is asked for."""
    quarantined(store)
    (row,) = rows(run("list", "--json", "--full"))
    assert row["attempts"][0]["output"].startswith("about to die")


@pytest.mark.parametrize(
    "command",
    [
        "list",
        "list --json --full",
        "list --group-by kind,reason",
        "show 1",
        "show 1 --json",
        "show 1 --payload",
        "status",
    ],
)
def test_nothing_that_a_job_says_reaches_the_terminal_raw(store, command):
    """Escape sequences in reasons and output are shown, not obeyed."""
    quarantined(store)
    result = run(*command.split())
    assert result.exit_code == 0
    assert not UNSAFE.search(result.stdout)


def test_list_filters_by_state_kind_pool_and_limit(store):
    """Every given filter must hold; retryable is pending that has been tried."""
    dead(store)
    quarantined(store)
    enqueue(store, 3, delay_ms=3_600_000)
    enqueue(store, kind="other", pool="io")

    def ids(*arguments):
        return [row["id"] for row in rows(run("list", "--json", *arguments))]

    assert ids() == [6, 5, 4, 3, 2, 1]
    assert ids("--state", "dead") == [1]
    assert ids("--state", "dead", "--state", "quarantined") == [2, 1]
    assert ids("--state", "retryable") == []
    assert ids("--state", "pending", "--limit", 2) == [5, 4]
    assert ids("--kind", "other") == [6]
    assert ids("--pool", "cpu", "--state", "runnable") == []
    assert ids("--since", "1h") == [6, 5, 4, 3, 2, 1]
    assert run("list", "--state", "finished").exit_code == 2
    assert run("list", "--since", "yesterday").exit_code == 2
    assert run("list", "--limit", 0).exit_code == 2


@pytest.mark.parametrize(
    ("word", "state"),
    [(word, states[0]) for word, states in WORDS.items() if len(states) == 1],
)
def test_other_queues_words_for_a_state_are_understood(store, word, state):
    """Users of another queue type its words from habit."""
    dead(store)
    quarantined(store)
    succeeded(store)
    enqueue(store)
    settle(store, Outcome.FAILED, JobState.PENDING, delay_ms=60_000)
    enqueue(store, delay_ms=60_000)
    store.cancel(enqueue(store))
    enqueue(store, 2)
    store.lease(RUN.id, {"cpu": 1}, {"cpu": [KIND.kind]})
    (row,) = rows(run("list", "--json", "--state", word.upper()))
    assert row["state"] == state


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("list --state failed", ("dead (", "retryable (", "quarantined (")),
        ("retry --state error --dry-run", ("dead (", "retryable (")),
        ("release --state failed --dry-run", ("dead (", "quarantined (")),
        ("prune --state finished", ("succeeded (", "dead (", "canceled (")),
        ("list --state colour", ("'colour' is not one of",)),
        ("retry --state done", ("'done' is not one of 'pending', 'retryable'",)),
    ],
)
def test_an_ambiguous_state_name_lists_the_choices(store, command, words):
    """Nothing is guessed and nothing done: the choices are named."""
    dead(store)
    result = run(*command.split())
    assert result.exit_code == 2
    for one in words:
        assert one in result.stderr
    assert run("list", "--state", "dead").stdout.count("failure 5 of 5") == 1


def test_list_shows_what_runs_as_it_is_now(store):
    """For how long, how far, with how much memory.

    The previous attempt is shown apart.
    """
    enqueue(store)
    again = {"delay_ms": 0, "evidence": Evidence(reason="raised Down", duration_s=9.5)}
    job_id = settle(store, Outcome.FAILED, JobState.PENDING, **again)
    assert "again as soon as it can; raised Down" in run("list").stdout
    (lease,) = store.lease(RUN.id, {"cpu": 1}, {"cpu": [KIND.kind]}).leases
    store.begin_attempts([started(lease, "cpu/1")])
    store.record([Progress(lease.id, lease.token, b"0.423", None)])
    (row,) = rows(run("list", "--json", "--state", "running"))
    assert (row["id"], row["state"], row["progress"]) == (job_id, "leased", 0.423)
    assert 0 <= row["running_s"] < 60
    ahead = now_ms() - 3_600_000
    assert running_s(store.get(job_id), ahead) == 0  # this clock is behind the store's
    text = run("list").stdout
    assert "progress 42%; before: raised Down" in text
    assert "9.5s" not in text


def test_groups_by_class_put_the_orders_of_one_vendor_together(store):
    """However its messages differ. A death has no class; its outcome is used."""
    for order in range(3):
        enqueue(store)
        why = Evidence(reason=f"raised Down: order {order}", error_class="shop.Down")
        settle(store, Outcome.FAILED, JobState.DEAD, evidence=why)
    quarantined(store)
    grouped = run("list", "--group-by", "state,outcome,error_class", "--json")
    dead_ones = {"state": "dead", "outcome": "failed", "error_class": "shop.Down"}
    crashed = {"state": "quarantined", "outcome": "crashed", "error_class": None}
    assert rows(grouped) == [dead_ones | {"jobs": 3}, crashed | {"jobs": 1}]


def test_groups_beyond_the_limit_are_counted(store):
    """Reasons that contain ids make many groups.

    The biggest come first, the rest is counted.
    """
    for reason in ("HTTP 410", "HTTP 410", "HTTP 500", "order 1", "order 2"):
        enqueue(store)
        evidence = Evidence(reason=f"gave up: {reason}")
        settle(store, Outcome.FAILED, JobState.DEAD, evidence=evidence)
    result = run("list", "--group-by", "reason", "--limit", 2, "--json")
    assert [row["jobs"] for row in rows(result)] == [2, 1]
    assert rows(result)[0]["reason"] == "gave up: HTTP 410"
    assert result.stderr == "and 2 smaller groups with 2 jobs; --limit shows more\n"
    assert not run("list", "--group-by", "reason").stderr


def test_list_walks_through_more_than_one_page(store):
    """A limit above the page size returns every job exactly once."""
    ids = enqueue(store, 1203)
    found = [row["id"] for row in rows(run("list", "--json", "--limit", 5000))]
    assert found == ids[::-1]


def test_list_groups_count_what_belongs_together(store):
    """--group-by folds states and reasons as asked."""
    dead(store)
    dead(store)
    enqueue(store, 3)
    found = rows(run("list", "--group-by", "kind,reason", "--json"))
    assert found == [
        {"kind": KIND.kind, "reason": None, "jobs": 3},
        {"kind": KIND.kind, "reason": "failure 5 of 5", "jobs": 2},
    ]
    assert rows(run("list", "--group-by", "kind", "--json"))[0]["jobs"] == 5
    wrong = run("list", "--group-by", "kind,colour")
    assert wrong.exit_code == 2
    assert (
        "'colour' is not one of kind, state, outcome, error_class, reason"
        in wrong.stderr
    )


def test_show_explains_a_quarantined_job(store):
    """State, why, what next, figures beside limits, attempts, stack and output."""
    job_id = quarantined(store)
    text = run("show", job_id).stdout
    for piece in (
        f"job {job_id}  shop.thumbnail  quarantined",
        "crash 3 of 3",
        f"jobpool release {job_id}",
        "ran 3.2s  peak 530MiB",
        "time 30s  memory 512MiB",
        "crashes 1 of 3",
        "signal 11",
        "line 7 in thumbnail",
        "about to die\\x1b[2J",
        "second line",
        "read      jobpool manual retries",
    ):
        assert piece in text, piece


def test_show_has_the_output_of_a_success(store):
    """If it was kept; once it was dropped, when and why, and what would keep more."""
    enqueue(store)
    evidence = Evidence(output="42 pages\x1b[2J\n")
    said = settle(
        *(store, Outcome.SUCCEEDED, JobState.SUCCEEDED),
        evidence=evidence,
        keeps_output=True,
    )
    assert run("show", said).stdout.endswith("OUTPUT OF ATTEMPT 1\n42 pages\\x1b[2J\n")
    (row,) = rows(run("show", said, "--json"))
    assert (row["output"], row["output_dropped_at"]) == (evidence.output, None)
    store.drop_outputs(0)
    text = run("show", said).stdout
    assert re.search(
        r"OUTPUT OF ATTEMPT 1\ndropped 20\d\d-.* \(.* ago\): newer outputs took up its "
        r"room; to keep more, raise outputs in \[retention\]\n$",
        text,
    )
    (row,) = rows(run("show", said, "--json"))
    assert row["output"] is None
    assert row["output_dropped_at"].startswith("20")


def test_show_explains_a_dead_job(store):
    """The error is there with its class, and the command that brings it back."""
    job_id = dead(store)
    text = run("show", job_id).stdout
    assert "shop.VendorDown: no answer" in text
    assert f"jobpool retry {job_id}" in text
    assert "Traceback (most recent call last):" in text


@pytest.mark.parametrize("codec", [None, "fernet"])
def test_show_leaves_out_what_is_encoded_and_nothing_else(store, codec):
    """A plain job's texts may begin like an encoded one's."""
    (job_id,) = enqueue(store, payload=b'"encoded:AAA="', codec=codec)
    evidence = Evidence(
        error_class="shop.VendorDown",
        error="encoded:BBB=",
        traceback="encoded:CCC=",
        output="encoded:DDD=",
    )
    settle(store, Outcome.FAILED, JobState.DEAD, evidence=evidence)
    (done,) = enqueue(store, codec=codec)
    settle(
        *(store, Outcome.SUCCEEDED, JobState.SUCCEEDED),
        result=b'"encoded:EEE="',
        evidence=Evidence(output="encoded:FFF="),
        keeps_output=True,
    )
    text = run("show", job_id, "--payload").stdout + run("show", done).stdout
    seen = re.findall("encoded:([A-F])", text)
    assert sorted(seen) == ([] if codec else list("ABCDEF"))
    assert text.count("encoded by fernet") == (2 if codec else 0)


def test_show_says_why_a_job_waits(store):
    """An unknown kind or a paused pool is named; it does not just wait."""
    (job_id,) = enqueue(store, kind="other", pool="io")
    store.pause(pool="io")
    text = run("show", job_id).stdout
    assert "pool io is paused, no supervisor has ever known this kind" in text
    assert "read      jobpool manual questions" in text


def test_show_says_what_lets_a_job_go_on_that_ran_out_of_memory(store):
    """With a limit that may do, and not with the one that has killed it."""
    (job_id,) = enqueue(store)
    granted = lease_one(store, RUN.id)
    end = ended(granted, Outcome.OUT_OF_MEMORY)
    store.settle([msgspec.structs.replace(end, state=JobState.QUARANTINED)])
    said = f"nothing, until: jobpool release {job_id} --memory 768MiB\n"
    assert said in run("show", job_id).stdout


def test_show_names_the_trace_and_where_to_look_at_it(store, tmp_path):
    """If the configuration says where; one that is not recorded is nowhere."""
    trace_id = "a" * 32
    for flags in ("01", "00"):
        enqueue(store, trace=f"00-{trace_id}-{'b' * 16}-{flags}")
    (other,) = enqueue(store)
    assert f"  trace     {trace_id}\n" in run("show", 1).stdout
    (tmp_path / "jobpool.toml").write_text(
        '[traces]\nlink = "https://tempo.example/t/{trace_id}"\n'
    )
    assert f"{trace_id}  https://tempo.example/t/{trace_id}\n" in run("show", 1).stdout
    assert f"  trace     {trace_id}  not recorded\n" in run("show", 2).stdout
    assert "  trace  " not in run("show", other).stdout
    assert json.loads(run("show", 1, "--json").stdout)["trace_id"] == trace_id
    assert json.loads(run("show", other, "--json").stdout)["trace_id"] is None


def test_show_says_that_no_supervisor_serves_the_pool(store):
    """A due job waits for one; a later job waits for its time first."""
    (due,) = enqueue(store)
    assert "runs as soon as a slot of its pool is free" in run("show", due).stdout
    store.end_run(RUN.id)
    (later,) = enqueue(store, delay_ms=3_600_000)
    text = run("show", due).stdout
    assert "waits: no supervisor serves pool cpu; start one: jobpool --pools " in text
    assert "  next      runs in " in run("show", later).stdout


def test_a_waiting_job_is_shown_as_such(store):
    """By list, show and status; it is neither due nor late."""
    flow = store_flow(store, step(0), step(1, 0))
    job_id = only(store, flow, 1).id
    assert [row["id"] for row in rows(run("list", "--json", "--state", "waiting"))] == [
        job_id
    ]
    text = run("show", job_id).stdout
    assert text.splitlines()[0].endswith("waiting")
    assert "next      runs when what it depends on has ended" in text
    (status,) = rows(run("status", "--json"))
    assert status["pools"]["cpu"]["waiting"] == 1
    assert "PENDING  WAITING  RUNNABLE" in run("status").stdout


def test_a_job_that_waits_for_nothing_is_named_with_what_to_do(store):
    """By doctor, and when it is shown: it would wait for ever."""
    (job_id,) = enqueue(store)
    assert "waits for ever" not in run("doctor").stdout
    make_waiting(store, job_id)
    words = "another program has damaged its row"
    text = run("show", job_id).stdout
    assert f"next      nothing: what it waits for is not there, since {words}" in text
    said = " ".join(run("doctor").stdout.split())
    assert f"job {job_id} waits for ever" in said
    assert f"{words}; end it: jobpool cancel {job_id}" in said


def test_show_tells_how_often_a_job_snoozed(store):
    """And since when, how often it may, why, and when it is called again."""
    (job_id,) = enqueue(store)
    (lease,) = store.lease(RUN.id, {"cpu": 1}, {"cpu": [KIND.kind]}).leases
    assert "snoozes" not in run("show", job_id).stdout
    store.settle([snoozed(lease, 600.0)])
    text = run("show", job_id).stdout
    assert "throttled" not in text
    assert "why       not yet: busy" in text
    assert re.search("next      runs in (9m[0-5]|10m00)", text)
    assert re.search(
        r"snoozes   1 of 1,000 in a row, since .*Z \(.* ago\), for 7d", text
    )
    (row,) = rows(run("show", job_id, "--json"))
    assert (row["snoozes"], row["attempt"], row["attempts"]) == (1, 0, [])
    assert row["snoozed_since"].endswith("Z")


def test_show_tells_how_often_a_job_was_throttled(store):
    """Far fewer times than it may snooze; a snooze of its own is none of them."""
    (job_id,) = enqueue(store)
    (lease,) = store.lease(RUN.id, {"cpu": 1}, {"cpu": [KIND.kind]}).leases
    throttled = Throttled(3, since_ms=now_ms())
    end = msgspec.structs.replace(snoozed(lease, 600.0), throttled=throttled)
    store.settle([end])
    assert "throttled 3 of 20 times in a row, within 24h" in run("show", job_id).stdout
    (row,) = rows(run("show", job_id, "--json"))
    assert (row["snoozes"], row["throttles"]) == (1, 3)


def test_a_job_that_fits_nobody_is_told_by_show_and_status(store):
    """What it waits for, since when, and when it will be dead."""
    (job_id,) = enqueue(store)
    (lease,) = store.lease(RUN.id, {"cpu": 1}, {"cpu": [KIND.kind]}).leases
    store.settle([ended(lease, give_up=True, misfit=True)])
    text = run("show", job_id).stdout
    assert (
        "its arguments do not fit the handler of any live supervisor; dead in " in text
    )
    assert "waits for a supervisor that has another version of its kind" in text
    text = run("status").stdout
    assert "MISFITS" in text
    assert f"kind {KIND.kind}  1 job  the first " in text
    (row,) = rows(run("show", job_id, "--json"))
    assert row["unfit_since"].endswith("Z")


def test_show_keeps_arguments_to_itself_unless_asked(store):
    """Payloads may be secret: --payload shows them, nothing else does."""
    (job_id,) = enqueue(store, payload=b'{"path": "hunter2"}')
    for command in ("show", "list", "status"):
        for form in ((), ("--json",)):
            ids = (job_id,) if command == "show" else ()
            assert "hunter2" not in run(command, *ids, *form).stdout
    assert "hunter2" in run("show", job_id, "--payload").stdout
    (row,) = rows(run("show", job_id, "--payload", "--json"))
    assert row["payload"] == {"path": "hunter2"}


def test_show_of_no_job_is_not_found(store):
    """Exit code 1 and the reasons why it may be gone."""
    result = run("show", 99)
    assert result.exit_code == 1
    assert "Error: there is no job 99" in result.stderr
    assert "pruned" in result.stderr
    assert run("show", 0).exit_code == 2


def test_show_survives_results_that_are_not_json(store):
    """Garbage written by hand is shown as text."""
    job_id = succeeded(store, result=b"\xff not json" + CLEAR.encode())
    (row,) = rows(run("show", job_id, "--json"))
    assert row["result"].startswith("\ufffd not json")
    assert run("show", job_id).exit_code == 0


def test_status_shows_supervisors_pools_and_what_waits(store, tmp_path):
    """Where the store is, who is alive, counts by pool, unknown kinds by name."""
    quarantined(store)
    enqueue(store, 2, kind="other", pool="io")
    store.pause(kind="other", for_s=3600, who="ann", note="vendor down")
    text = run("status").stdout
    for piece in (
        f"store  sqlite:///{tmp_path}/jobpool.db",
        "supervisor 4711 on host-1  cpu=2..8 io=16",
        "KINDS THAT NO SUPERVISOR KNOWS",
        "jobpool resume --kind other",
    ):
        assert piece in text, piece
    assert "SILENT" not in text
    (found,) = rows(run("status", "--json", "--figures"))
    assert found["supervisors"][0]["alive"] is True
    assert found["pools"]["cpu"]["quarantined"] == 1
    assert found["pools"]["io"]["runnable"] == 2
    assert [row["kind"] for row in found["unknown_kinds"]] == ["other"]
    (pause,) = store.pauses()
    assert found["paused"] == [msgspec.to_builtins(pause)]
    assert (pause.what, pause.name) == ("kind", "other")
    assert re.search(
        r"kind other  by ann, \S+ ago, until \S+Z: vendor down  jobpool "
        r"resume --kind other",
        text,
    )
    assert found["figures"][0]["kind"] == KIND.kind


def test_figures_are_two_tables_on_a_narrow_terminal(store, monkeypatch):
    """Side by side they need more than 80 columns, and would be folded."""
    quarantined(store)
    assert run("status", "--figures").stdout.count("KIND ") == 1
    monkeypatch.setattr(usage, "console", lambda: Console(width=80))
    text = run("status", "--figures").stdout
    memory, time = (line for line in text.splitlines() if line.startswith("KIND "))
    assert memory.split()[2:] == ["ATTEMPTS", "RSS", "P50", "P99", "MAX", "LIMIT"]
    assert time.split()[2:] == ["ATTEMPTS", "RAN", "P50", "P99", "MAX", "LIMIT"]


def test_status_names_the_supervisors_that_hold_a_feature_back(store):
    """With version, host and process, and what to do; and those that are outdated."""
    old = msgspec.structs.replace(
        RUN, id="old", version="0.3.0", host="a", pid=17, format=1
    )
    store.begin_run(old, [], 60.0)
    with pytest.raises(FeatureHeldBack):
        store.require(CODECS)
    text = run("status").stdout
    assert "codecs wait for jobpool 0.3.0 on host a, pid 17  upgrade or stop it" in text
    assert "OUTDATED" not in text
    (found,) = rows(run("status", "--json"))
    (held_back,) = found["held_back"]
    assert held_back == {
        "feature": "codecs",
        "by": "old",
        "version": "0.3.0",
        "host": "a",
        "pid": 17,
    }
    with store._database.writing() as session:
        session.run("grant_format", granted=CODECS)
    text = run("status").stdout
    assert "wait for" not in text
    (line,) = (one for one in text.splitlines() if "OUTDATED" in one)
    assert line.startswith("supervisor 17 on a")
    (found,) = rows(run("status", "--json"))
    outdated = {one["id"]: one["outdated"] for one in found["supervisors"]}
    assert (outdated, found["held_back"]) == ({"run-1": False, "old": True}, [])


def test_status_says_why_a_pool_has_its_size(store):
    """Of pools that could have another; with --signals, what tells of bottlenecks."""
    ranged = msgspec.structs.replace(RUN, id="ranged", pools={"io": "2..8", "cpu": "4"})
    store.begin_run(ranged, [KIND], 60.0)
    why = "not grown: memory pressure 14 %"
    report = RunReport(
        pools={
            "io": PoolReport(size=2, busy=2, wanted=6, why=why),
            "cpu": PoolReport(size=4, busy=4, why="its size is fixed"),
        },
        kinds={"shop.fetch": KindReport(ends_per_s=1.5, timeouts=2, throttled=7)},
        host=HostReport(cpu_busy=0.5, memory_pressure=14.0, available_bytes=2**30),
        store=StoreReport(commit_p50_ms=1.5, commit_p99_ms=9.0, lock_waits=3),
    )
    store.put_report("ranged", report)
    text = run("status").stdout
    assert f"SIZES\npool io on {RUN.host}  2 of 2 busy  wants 6  {why}\n" in text
    assert "its size is fixed" not in text
    assert "HOSTS" not in text
    told = run("status", "--signals").stdout
    assert "cpu 50 % busy  pressure memory 14 %  1GiB free" in told
    assert "commits 1.5 ms, P99 9 ms  3 wait for locks" in told
    assert re.search(r"shop.fetch +1.5 +2 +7 +0", told)
    (found,) = rows(run("status", "--json"))
    (row,) = found["reports"]
    assert row["pools"]["io"]["why"] == why
    assert (row["supervisor"], row["host_signals"]["memory_pressure"]) == ("ranged", 14)
    store.put_report(
        "ranged", RunReport(pools={"cpu": PoolReport(size=4, holds="suspects")})
    )
    assert "its jobs wait for suspects" in run("status").stdout


def test_status_says_for_which_pools_the_application_was_imported_once_more(store):
    """With the reason, and only of those."""
    why = "its children see other variables than those of cpu"
    pools = {"cpu": PoolReport(size=4), "io": PoolReport(size=2, own_import=why)}
    store.put_report(RUN.id, RunReport(pools=pools))
    text = run("status").stdout
    heading, line = text.partition("IMPORTED ONCE MORE")[2].splitlines()[:2]
    assert "import" in heading
    assert line == f"pool io on {RUN.host}  {why}"
    assert "pool cpu" not in text.partition("IMPORTED")[2]
    (found,) = rows(run("status", "--json"))
    assert found["reports"][0]["pools"]["io"]["own_import"] == why
    store.put_report(RUN.id, RunReport(pools={"cpu": PoolReport(size=4)}))
    assert "IMPORTED" not in run("status").stdout


def test_status_says_that_slots_cannot_be_used_and_why(store):
    """With the kind that counts with most, and whether that is its limit."""
    memory = MemoryReport(
        slots=64,
        usable=37,
        budget_bytes=19 * 2**30,
        kind="io.fetch",
        bytes=512 * 2**20,
        is_limit=True,
    )
    store.put_report(RUN.id, RunReport(memory=memory))
    text = run("status").stdout
    heading, line = text.partition("SLOTS BEYOND")[2].splitlines()[:2]
    assert "MEMORY BUDGET" in heading
    assert "37 of 64 slots can be used at once  memory_budget is 19GiB" in line
    assert line.endswith("kind io.fetch counts with 512MiB, its limit")
    (found,) = rows(run("status", "--json"))
    assert found["reports"][0]["slots_beyond_memory"]["usable"] == 37
    store.put_report(RUN.id, RunReport())
    assert "SLOTS BEYOND" not in run("status").stdout


def test_status_says_what_jobs_have_waited_for(store):
    """In shares of the time of all of them together."""
    assert "nothing has waited" in run("status", "--why").stdout
    enqueue(store, 6)
    assert store.sample_waits(10.0)
    text = run("status", "--why").stdout
    assert re.search(rf"{KIND.kind} +cpu +1m00s +slots 100 %", text)
    (found,) = rows(run("status", "--why", "--json"))
    (row,) = found["waits"]
    assert (row["cause"], row["job_s"]) == ("slots", 60.0)


def test_status_warns_of_pools_that_nobody_serves(store):
    """Only pools that have waiting jobs and no living supervisor are named."""
    enqueue(store, 2, kind="big", pool="gpu")
    enqueue(store, 1, pool="cpu")
    text = run("status").stdout
    assert "POOLS THAT NO SUPERVISOR SERVES\npool gpu  2 jobs waiting" in text
    assert "jobpool --pools gpu=N" in text
    (found,) = rows(run("status", "--json"))
    (unserved,) = found["unserved_pools"]
    assert (unserved["pool"], unserved["jobs"]) == ("gpu", 2)
    store.end_run("run-1")
    (found,) = rows(run("status", "--json"))
    assert [row["pool"] for row in found["unserved_pools"]] == ["cpu", "gpu"]


def test_status_says_what_is_full(store, tmp_path):
    """By the configuration of whoever asks, who may not enqueue there either."""
    enqueue(store, 2)
    assert "FULL" not in run("status").stdout
    (tmp_path / "jobpool.toml").write_text(
        "[pools.cpu]\ndepth_max = 2\n[kinds.'other']\nage_max = '1m'\n"
    )
    text = run("status").stdout
    assert "FULL (more jobs are refused" in text
    assert re.search(
        r"pool cpu  2 jobs of at most 2  the oldest for \S+  room in about 1m00s", text
    )
    (found,) = rows(run("status", "--json"))
    (full,) = found["full"]
    assert (full["what"], full["depth"], full["depth_max"]) == ("pool cpu", 2, 2)
    refused = run("enqueue", KIND.kind, '{"path": "a"}')
    assert refused.exit_code == 1
    assert "pool cpu holds 2 due jobs that wait of at most 2; 1 more" in refused.output
    assert len(rows(run("list", "--json"))) == 2


def test_status_begins_with_what_is_wrong_and_what_to_read(store):
    """Whoever is woken types this first."""
    assert "INCIDENTS" not in run("status").stdout
    found = Found(rule="dead", subject="a", summary="3 jobs of a became dead")
    assert store.take_turn(Turn(number=0, notes="", opened=(found,)))
    text = run("status").stdout
    said = r"INCIDENTS\n3 jobs of a became dead  for \S+  jobpool manual alerts#dead\n"
    assert re.search(said, text)
    assert text.index("INCIDENTS") < text.index("POOLS")
    (seen,) = rows(run("status", "--json"))
    assert [one["rule"] for one in seen["incidents"]] == ["dead"]


def test_status_says_when_no_supervisor_runs(store):
    """A store without a supervisor names the command that starts one."""
    store.end_run("run-1")
    assert "no supervisor is running" in run("status").stdout


def test_the_store_may_be_named_before_or_after_the_command(store, tmp_path):
    """--store and JOBPOOL_STORE mean the same store as the default does here."""
    quarantined(store)
    url = f"sqlite:///{tmp_path}/jobpool.db"
    plain = run("list", "--json").stdout
    assert plain == run("--store", url, "list", "--json").stdout
    assert plain == run("list", "--store", url, "--json").stdout
    assert json.loads(plain)["id"] == 1


def test_status_says_which_supervisor_is_the_cheapest_to_end(tmp_path, monkeypatch):
    """The one whose end interrupts the least work; with one there is no choice."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("jobpool.cli.diagnose.status.why_silent", lambda *_: "")
    store = stored(tmp_path)
    assert "cheapest" not in run("status").stdout
    other = msgspec.structs.replace(RUN, id="run-2", pid=4712)
    store.begin_run(other, [KIND], 60.0)
    enqueue(store, 3)
    kinds = {"cpu": [KIND.kind]}
    for granted in store.lease(RUN.id, {"cpu": 3}, kinds).leases:
        store.begin_attempts([started(granted, "cpu/1", began_s=0.0)])
    said = run("status").stdout
    assert "cheapest to end: supervisor 4712 on host-1  idle" in said
    (status,) = rows(run("status", "--json"))
    assert status["cheapest_to_end"] == "run-2"
    store.close()
