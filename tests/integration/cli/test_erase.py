"""`jobpool erase`: it counts first, asks, and says what is left."""

import json
import signal
import subprocess
import sys

import msgspec
import pytest

from jobpool.core.jobs.job import JobState
from jobpool.operations.operate import operate
from jobpool.operations.principal import local_principal
from jobpool.operations.schedules import PutSchedule
from support.store.cli_store import KIND, dead, enqueue, rows, run, stored
from support.store.scheduling import declared
from support.store.telling import SECRET, lived

TENANT = f"tenant {SECRET}"


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def store(tmp_path):
    store = stored(tmp_path)
    yield store
    store.close()


def in_files(folder):
    """Return how often the secret stands in all files of a folder."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert any(path.name == "jobpool.db-wal" for path in files)
    return sum(path.read_bytes().count(SECRET.encode()) for path in files)


def two_lived(store, first, second):
    """Return the ids of two jobs with secrets, which ended in these states."""
    return lived(store, first), lived(store, second, key=None, unique=None)


def test_a_tenants_data_is_in_no_file_afterwards(store, tmp_path):
    """Neither in the database nor in its log; what people did is known without it."""
    ids = two_lived(store, JobState.SUCCEEDED, JobState.CANCELED)
    other = dead(store)
    assert run("retry", ids[1], "--note", f"{TENANT} asked").exit_code == 0
    assert run("cancel", "--tenant", TENANT).exit_code == 0
    assert in_files(tmp_path) > 10
    done = run("erase", "--tenant", TENANT, "--yes", "--note", "ticket 7")
    assert (done.exit_code, in_files(tmp_path)) == (0, 0)
    assert "backups" in done.stderr
    assert [store.get(job_id).is_erased for job_id in (*ids, other)] == [
        *(True, True),
        False,
    ]
    text = run("audit").stdout
    assert "ticket 7" in text
    assert "[erased]" in text


def test_a_schedule_of_the_tenant_is_named_and_gone_once_it_is_removed(store, tmp_path):
    """It is no job: whoever wants it to end has to say so, and then erases again."""
    lived(store, JobState.SUCCEEDED)
    of = {"tenant": TENANT, "payload": f'{{"path":"{SECRET}"}}'.encode()}
    put = PutSchedule(declared=msgspec.structs.replace(declared("digest"), **of))
    operate(store, local_principal("a test"), put)
    erase = ("erase", "--tenant", TENANT, "--yes")
    said = run(*erase)
    assert "schedule digest holds arguments for this tenant; remove it" in said.stderr
    assert in_files(tmp_path) > 0
    assert run("schedules", "remove", "digest").exit_code == 0
    assert "schedule digest" not in run(*erase).stderr
    assert in_files(tmp_path) == 0


def test_it_is_counted_first(store):
    """By state and kind of data; until somebody agrees, nothing is erased."""
    two_lived(store, JobState.SUCCEEDED, JobState.DEAD)
    before = run("list", "--json").stdout
    counts = run("erase", "--kind", KIND.kind, "--dry-run").stdout.split("\n")
    assert counts[:3] == [
        "2 jobs  1 dead, 1 succeeded",
        "  attempts             3",
        "  outputs              1",
    ]
    (row,) = rows(run("erase", "--tenant", TENANT, "--dry-run", "--json"))
    assert (row["matched"], row["erased"], row["attempts"]) == (2, 0, 3)
    asked = run("erase", "--tenant", TENANT)
    assert asked.exit_code == 2
    assert "--yes to erase" in asked.stderr
    assert run("list", "--json").stdout == before
    assert rows(run("audit", "--json")) == []


@pytest.mark.parametrize("answer", ["y", "n"])
def test_a_person_is_asked(store, monkeypatch, answer):
    """And only "yes" erases."""
    job_id = lived(store)
    monkeypatch.setattr("jobpool.cli.admin.erase._can_ask", lambda: True)
    done = run("erase", "--job", job_id, stdin=f"{answer}\n")
    assert "cannot be brought back" in done.stderr
    assert store.get(job_id).is_erased == (answer == "y")
    assert done.exit_code == (0 if answer == "y" else 1)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ((), "say whose data"),
        (("--job", 1, "--tenant", "x"), "say whose data"),
        (("--older-than", "30d"), "say whose data"),
        (("--job", 1, "--older-than", "30d"), "among others"),
        (("--kind", KIND.kind, "--older-than", "soon"), "--older-than"),
    ],
)
def test_an_unclear_wish_is_refused(store, flags, words):
    """Nothing is erased, and the message says what to give."""
    job_id = lived(store)
    done = run("erase", *flags, "--yes")
    assert done.exit_code == 2
    assert words in done.stderr
    assert not store.get(job_id).is_erased


def test_jobs_that_have_not_ended_are_refused_or_canceled(store):
    """--cancel ends them first; what is old enough has ended anyway."""
    (job_id,) = enqueue(store, tenant=TENANT)
    flags = ("erase", "--tenant", TENANT, "--yes")
    refused = run(*flags)
    assert refused.exit_code == 2
    assert "1 of these jobs has not ended (1 runnable)" in refused.stderr
    assert "matched" not in refused.stdout
    assert run(*flags, "--older-than", "0s").exit_code == 0
    assert store.get(job_id).state is JobState.RUNNABLE
    assert rows(run(*flags, "--cancel", "--json"))[0]["erased"] == 1
    assert store.get(job_id).is_erased


def test_what_no_job_has_is_named(store):
    """A slip is not taken for an erasure."""
    lived(store)
    slip = run("erase", "--tenant", "acne", "--yes")
    assert "no job in sqlite:" in slip.stderr
    assert "'acne': it was erased or pruned before, or is spelled" in slip.stderr
    assert "has kind 'x'" in run("erase", "--kind", "x", "--yes").stderr
    unknown = run("erase", "--job", 99, "--yes")
    assert unknown.exit_code == 1
    assert "there is no job 99" in unknown.stderr


def test_an_erased_job_says_so_wherever_it_is_shown(store):
    """When it was; and a retry by hand says why it cannot be."""
    job_id = dead(store)
    assert run("erase", "--job", store.get(job_id).ref, "--yes").exit_code == 0
    why = r"its data was erased on 20"
    assert why in run("list").stdout
    shown = run("show", job_id, "--payload")
    assert why in shown.stdout
    assert "erase by " in shown.stdout
    assert "result" not in shown.stdout
    assert "PAYLOAD" not in shown.stdout
    (row,) = rows(run("show", job_id, "--payload", "--json"))
    assert (row["erased"], row["payload"], row["result"]) == (True, None, None)
    assert "was erased" in run("retry", job_id).stderr


def test_what_a_hook_was_told_goes_as_well(store):
    """Its job carries arguments and error of the dead one. One about another stays."""
    first, second = two_lived(store, JobState.DEAD, JobState.DEAD)
    hooks = [
        enqueue(store, kind="jobpool:on_dead", payload=told(job_id))[0]
        for job_id in (first, second, second)
    ]
    store.cancel(hooks[:2])
    assert rows(run("erase", "--job", first, "--yes", "--json"))[0]["hook_jobs"] == 1
    assert [bool(store.payload(job_id)) for job_id in hooks] == [False, True, True]
    refused = run("erase", "--job", second, "--yes")
    assert "1 of these jobs has not ended" in refused.stderr
    assert run("erase", "--job", second, "--yes", "--cancel").exit_code == 0
    assert [store.payload(job_id) for job_id in hooks] == [b""] * 3


def told(job_id):
    """Return the payload of a hook's job."""
    return json.dumps({"job": {"id": job_id, "error": SECRET}}).encode()


DYING = """
import os, signal
from jobpool.cli.root import cli
from jobpool.store.sqlite.store import SqliteStore

erase, calls = SqliteStore.erase, []

def dying(self, ids):
    calls.append(erase(self, ids))
    if len(calls) == 2:
        os.kill(os.getpid(), signal.SIGKILL)  # before its commit
    return calls[-1]

SqliteStore.erase = dying
cli(["erase", "--tenant", "acme", "--yes"])
"""


def test_killed_in_the_middle_it_is_finished_by_the_next(store, tmp_path):
    """A step is made as a whole or not at all, and the trail says how far it came."""
    payload = f'{{"path": "{SECRET}"}}'.encode()
    ids = enqueue(store, 120, tenant="acme", payload=payload)
    store.cancel(ids)
    killed = subprocess.run([sys.executable, "-c", DYING], check=False)
    assert killed.returncode == -signal.SIGKILL
    erased = [job_id for job_id in ids if store.get(job_id).is_erased]
    assert erased == ids[: len(erased)] != []
    rest = ids[len(erased) :]
    assert {store.payload(job_id) for job_id in rest} == {payload}
    assert {store.get(job_id).tenant for job_id in rest} == {"acme"}
    (row,) = rows(run("audit", "--json"))
    assert (row["jobs"], row["target"]["ids"]) == (len(erased), f"1-{len(erased)}")
    again = rows(run("erase", "--tenant", "acme", "--yes", "--json"))
    assert again[0]["erased"] == len(rest) > 0
    assert all(store.get(job_id).is_erased for job_id in ids)
    assert in_files(tmp_path) == 0
