"""What a kind redacts is nowhere shown, unless somebody asks for it."""

import base64
import json

import msgspec
import pytest

from jobpool.core.application.redaction import with_redaction
from jobpool.core.jobs.job import Evidence, JobState, Progress
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.schedules.rule import Rule
from jobpool.core.rules.schedules.schedule import Declared
from jobpool.store.opening import open_store
from jobpool.store.records.operating import Filter
from support.store.cli_store import KIND, RUN, enqueue, run, settle, url_of
from support.store.storing import started

CARD = "4711-0815"
ARGUMENTS = {"path": "a.jpg", "cards": [{"number": CARD}, {"number": 12345678}]}
PAYLOAD = json.dumps(ARGUMENTS).encode()
TOLD = f"refused {CARD}, {{'number': 12345678}}"
EVIDENCE = Evidence(
    reason=TOLD,
    error_class="shop.Refused",
    error=TOLD,
    traceback=f"Traceback: {TOLD}",
    stack=f"File: {TOLD}",
    output=TOLD,
)
REDACTING = msgspec.structs.replace(
    KIND, schema=with_redaction(KIND.schema, ["cards.number"], ["shop.old"])
)


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def store(tmp_path):
    store = open_store(url_of(tmp_path))
    store.begin_run(RUN, [REDACTING], 60.0)
    yield store
    store.close()


def failed(store, state, **more):
    enqueue(store, payload=PAYLOAD, **more)
    return settle(store, Outcome.CRASHED, state, evidence=EVIDENCE)


def told_wherever_it_can(store):
    """Make jobs that show their secret wherever a job can; return their ids."""
    dead = failed(store, JobState.DEAD)
    facts = {"id": dead, "kind": KIND.kind, "error": TOLD}
    facts["payload"] = base64.b64encode(PAYLOAD).decode()
    hook = json.dumps({"job": facts}).encode()
    enqueue(store, kind="jobpool:on_dead", payload=hook)
    enqueue(store, kind="shop.old", payload=PAYLOAD)
    enqueue(store, kind="shop.old", payload=f'"{CARD}"'.encode())
    enqueue(store, kind="shop.old", payload=f"no JSON: {CARD}".encode())
    enqueue(store, payload=PAYLOAD)
    result = json.dumps({"cards": {"number": 5}, "text": TOLD, "n": 12345678}).encode()
    settle(
        store,
        Outcome.SUCCEEDED,
        JobState.SUCCEEDED,
        result=result,
        evidence=Evidence(output=TOLD),
        keeps_output=True,
    )
    enqueue(store, payload=PAYLOAD)
    (lease,) = store.lease(RUN.id, {"cpu": 1}, {"cpu": [KIND.kind]}).leases
    store.begin_attempts([started(lease, "cpu/1")])
    store.record([Progress(lease.id, lease.token, result, result, 1, TOLD.encode())])
    return [job.id for job in store.find(Filter(), 100)]


def test_no_command_shows_a_secret(store):
    """Neither in words nor as JSON: arguments, results, progress, texts, output."""
    ids = told_wherever_it_can(store)
    shown = [
        run("list"),
        run("list", "--json", "--full"),
        run("list", "--group-by", "kind"),
        run("list", "--group-by", "kind,reason,error_class"),
        run("list", "--group-by", "reason", "--json"),
    ]
    for job_id in ids:
        shown += [run("show", job_id, "--payload")]
        shown += [run("show", job_id, "--payload", "--json")]
    for result in shown:
        assert result.exit_code == 0
        for secret in (CARD, "12345678", base64.b64encode(PAYLOAD).decode()):
            assert secret not in result.output
    assert "a.jpg" in run("show", ids[-1], "--payload").stdout
    (row,) = [json.loads(run("show", ids[-1], "--payload", "--json").stdout)]
    assert row["payload"]["cards"] == [{"number": "[redacted]"}] * 2
    assert row["error"] == "refused [redacted], {'number': [redacted]}"


def test_who_asks_is_shown_it(store):
    """With --unredacted."""
    job_id = failed(store, JobState.DEAD)
    shown = run("show", job_id, "--payload", "--unredacted").stdout
    assert shown.count(CARD) >= 5
    assert CARD in run("list", "--json", "--unredacted").stdout
    grouped = run("list", "--group-by", "reason")
    assert "--unredacted tells them apart" in grouped.stderr
    grouped = run("list", "--group-by", "reason", "--unredacted")
    assert CARD in grouped.stdout
    assert grouped.stderr == ""


def test_a_kind_that_no_run_publishes_any_more_still_redacts(store):
    """By what was published last; of a kind that never was, nothing is known."""
    job_id = failed(store, JobState.DEAD)
    store.end_run(RUN.id)
    assert CARD not in run("show", job_id, "--payload").stdout
    (unknown,) = enqueue(store, kind="never.published", payload=PAYLOAD)
    shown = run("show", unknown, "--payload")
    assert CARD in shown.stdout
    assert "never.published: nothing of it is redacted" in shown.stderr
    assert "nothing of it" not in run("show", job_id, "--payload").stderr


def test_what_a_replay_would_change_is_shown_without_it(store):
    """Before and after; with --edit, which shows arguments, somebody has asked."""
    (job_id,) = enqueue(store, kind="shop.open", payload=PAYLOAD)
    store.cancel([job_id])
    schema = with_redaction(b'{"type":"object"}', ["cards.number"], [])
    known = msgspec.structs.replace(KIND, kind="shop.open", schema=schema)
    store.begin_run(msgspec.structs.replace(RUN, id="run-2"), [known], 60.0)
    given = {"cards": [{"number": "5555-6666"}, {"number": 1, "name": CARD}]}
    flags = ("replay", job_id, "--dry-run", "--set", json.dumps(given))
    shown = run(*flags)
    assert shown.exit_code == 0
    assert "+ /cards/0/number: " in shown.stdout
    for secret in (CARD, "5555-6666", "12345678"):
        assert secret not in shown.output
    assert CARD in run(*flags, "--unredacted").stdout
    assert "5555-6666" not in run(*flags, "--json").output


def test_the_arguments_of_a_schedule_are_shown_without_it(store):
    """As those of its jobs; they are shown only if somebody asks for them."""
    store.put_schedule(
        Declared(
            name="pay",
            kind=KIND.kind,
            pool=KIND.pool,
            payload=PAYLOAD,
            rule=Rule(every_ms=60_000),
        )
    )
    asked = ("schedules", "show", "pay", "--payload")
    for shown in (run(*asked[:3]), run(*asked), run(*asked, "--json")):
        assert shown.exit_code == 0
        assert (CARD in shown.stdout, "12345678" in shown.stdout) == (False, False)
    assert '"path":"a.jpg"' in run(*asked).stdout
    assert CARD in run(*asked, "--unredacted").stdout
