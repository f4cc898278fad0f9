"""`jobpool audit`, and what `show` tells of it."""

import json
import os
import re
from types import SimpleNamespace

import pytest

from jobpool.operations.principal import user_name
from jobpool.store.records.operating import AuditEntry
from support.store.cli_store import (
    CLEAR,
    KIND,
    RUN,
    dead,
    enqueue,
    quarantined,
    rows,
    run,
    stored,
    succeeded,
)

USER = user_name(os.geteuid())


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SUDO_USER", raising=False)


@pytest.fixture
def store(tmp_path):
    store = stored(tmp_path)
    yield store
    store.close()


def test_every_command_that_changes_jobs_is_on_record(store):
    """With its note, the user, and the program on this host; newest first."""
    gone, bad = dead(store), quarantined(store)
    succeeded(store)
    for words in (
        ("enqueue", KIND.kind, '["secret.jpg"]'),
        ("retry", gone),
        ("release", bad),
        ("cancel", gone),
        ("pause", "--pool", "io", "--for", "10m"),
        ("resume", "--pool", "io"),
        ("prune", "--older-than", "0", "--state", "succeeded"),
    ):
        assert run(*words, "--note", f"why {words[0]}").exit_code == 0, words
    found = rows(run("audit", "--json"))
    verbs = ["prune", "resume", "pause", "cancel", "release", "retry", "enqueue"]
    assert [row["action"] for row in found] == verbs
    assert [row["note"] for row in found] == [f"why {verb}" for verb in verbs]
    assert {(row["who"], row["role"], row["certain"]) for row in found} == {
        (USER, "admin", True)
    }
    for row in found:
        place = f"jobpool {row['action']} on {os.uname().nodename}, uid {os.geteuid()}"
        assert row["origin"] == f"{place}, pid {os.getpid()}"
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\S+Z", row["at"])
    assert found[-2]["target"] == {"ids": str(gone)}
    assert found[2]["target"] == {"pool": "io", "for_s": 600.0}
    assert "secret.jpg" not in json.dumps(found)


def test_a_run_that_others_took_back_meanwhile_is_not_reclaimed(store, monkeypatch):
    """While its user was asked, a supervisor did: nothing was changed, so no row."""

    def asked(*_, **__):
        store.end_run(RUN.id)

    monkeypatch.setattr("jobpool.cli.admin.reclaim.click.confirm", asked)
    result = run("reclaim", RUN.id)
    assert result.exit_code == 2
    assert f"no run '{RUN.id}' is open" in result.stderr
    assert rows(run("audit", "--json")) == []


def test_looking_and_failing_leave_no_row(store):
    """Nothing was done."""
    job_id = dead(store)
    for words in (
        ("retry", job_id, "--dry-run"),
        ("release", 99),
        ("cancel", "--kind", "nobodys"),
        ("prune", "--dry-run"),
        ("enqueue", KIND.kind, "nonsense"),
        ("pause", "--pool", "nobodys"),
        ("show", job_id),
        ("status",),
    ):
        run(*words)
    assert rows(run("audit", "--json")) == []
    quiet = run("audit")
    assert (quiet.exit_code, quiet.stdout) == (0, "")
    assert "nothing of this is in the audit trail" in quiet.stderr


def test_rows_are_chosen_by_time_name_verb_and_job(store):
    """And so many at most."""
    first, second = enqueue(store, 2)
    run("cancel", first)
    run("retry", first)
    run("cancel", second)

    def actions(*flags):
        return [row["action"] for row in rows(run("audit", "--json", *flags))]

    assert actions("--action", "cancel") == ["cancel"] * 2
    assert actions("--job", first) == ["retry", "cancel"]
    assert actions("--job", store.get(second).ref) == ["cancel"]
    assert actions("--who", USER[:2], "--limit", 2) == ["cancel", "retry"]
    assert actions("--who", "nobody else") == actions("--since", "0s") == []
    assert len(actions("--since", "1h")) == 3
    assert run("audit", "--since", "soon").exit_code == 2
    assert run("audit", "--limit", 0).exit_code == 2


def test_people_read_words(store):
    """Durations and moments, not their numbers; and a dash for no note."""
    run("pause", "--kind", KIND.kind, "--for", "90s", "--note", "no more")
    run("pause", "--all")
    enqueue(store, 3)
    run("cancel", "--kind", KIND.kind, "--since", "1h")
    text = run("audit").stdout
    assert re.search(r"pause +0  kind shop\.thumbnail  for 1m30s +no more\n", text)
    assert re.search(r"pause +0  whole_store +-\n", text)
    assert re.search(r"cancel +3  .*since 20\S+Z  ids 1-3 +-\n", text)


def test_show_tells_what_was_done_to_a_job(store):
    """With why and from where; in JSON as well."""
    job_id = dead(store)
    assert "WHAT PEOPLE DID" not in run("show", job_id).stdout
    run("retry", "--kind", KIND.kind, "--note", "the vendor is back")
    text = run("show", job_id).stdout
    assert re.search(
        rf"WHAT PEOPLE DID\nretry by {re.escape(USER)}  \S+ ago  1 job  jobpool retry "
        r"on .*  the vendor is back\n",
        text,
    )
    (row,) = rows(run("show", job_id, "--json"))[0]["audit"]
    assert (row["action"], row["note"]) == ("retry", "the vendor is back")


def test_a_note_controls_no_terminal(store):
    """Nor does a name: whoever can write the database writes them."""
    entry = {"role": f"r{CLEAR}", "origin": f"o{CLEAR}", "action": f"a{CLEAR}"}
    target = json.dumps({"ids": "1", f"n{CLEAR}": f"v{CLEAR}"}, ensure_ascii=False)
    enqueue(store)
    store.audit(AuditEntry(who=f"w{CLEAR}\nforged", note=CLEAR, target=target, **entry))
    for words in (("audit",), ("audit", "--json"), ("show", 1), ("show", 1, "--json")):
        text = run(*words).output
        assert not set(text) & {"\x1b", "\x9b", "\u202e"}
        assert "\nforged" not in text


def test_an_end_before_its_time_says_how_far_it_came(store, monkeypatch):
    """What was done is committed, and the same command goes on."""
    enqueue(store, 30)
    monkeypatch.setattr("jobpool.operations.jobs._BATCH", 10)
    slept = []

    def interrupted(seconds):
        slept.append(seconds)
        if sum(slept) > 0.15:  # between the second batch and the third
            raise KeyboardInterrupt

    clock = SimpleNamespace(monotonic=lambda: sum(slept), sleep=interrupted)
    monkeypatch.setattr("jobpool.operations.jobs.time", clock)
    words = ("cancel", "--kind", KIND.kind)
    result = run(*words, "--rate", "100/s")
    assert result.exit_code == 130
    assert "20 of 30 jobs were changed, the others are as they were" in result.stderr
    assert run(*words).stdout == "10 of 10 jobs canceled\n"
    assert [row["jobs"] for row in rows(run("audit", "--json"))] == [10, 20]
