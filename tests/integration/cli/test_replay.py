"""`jobpool replay`: what it checks, shows, asks and does."""

import shlex
from pathlib import Path

import pytest

from jobpool.core.jobs.job import JobState
from jobpool.core.jobs.outcome import Outcome
from support.store.cli_store import (
    KIND,
    RUN,
    dead,
    enqueue,
    quarantined,
    rows,
    run,
    settle,
    stored,
)
from support.store.storing import kind_record

RESIZE = kind_record("shop.resize", "io", schema=KIND.schema)
WIDTH = '{"path": "a.jpg", "width": 5}'


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VISUAL", raising=False)


@pytest.fixture
def store(tmp_path):
    store = stored(tmp_path)
    store.begin_run(RUN, [KIND, RESIZE], 60.0)
    yield store
    store.close()


@pytest.fixture
def edit(tmp_path, monkeypatch):
    """Let the editor be a sed script."""

    def use(script):
        monkeypatch.setenv("EDITOR", f"sed -i {shlex.quote(script)}")

    return use


def dead_of(store, **more):
    enqueue(store, **more)
    return settle(store, Outcome.FAILED, JobState.DEAD)


def test_a_job_is_replaced_after_its_differences_were_shown(store):
    """`show` and `list` name the new one; no values are in the trail."""
    old_id = dead_of(store, key="cat")
    result = run("replay", old_id, "--args", WIDTH, "--yes", "--note", "too wide")
    assert result.stdout.splitlines() == [
        f"job {old_id}  shop.thumbnail  dead",
        "  + /width: 5",
        f"job {old_id} is replaced by job 2",
        "1 of 1 job replayed",
    ]
    assert store.payload(2) == b'{"path":"a.jpg","width":5}'
    assert store.get(2).key == "cat"
    assert "replays   job 1, which is dead" in run("show", 2).stdout
    assert "replaced  by job 2, which is runnable" in run("show", old_id).stdout
    listed = {row["id"]: row for row in rows(run("list", "--json"))}
    assert (listed[2]["replays"], listed[1]["replaced_by"]) == (1, 2)
    assert "replaced by job 2" in run("list").stdout
    (entry,) = rows(run("audit", "--job", 2, "--json"))
    assert (entry["changed"], entry["note"]) == ("/width", "too wide")
    assert "changed /width" in run("audit").stdout


def test_many_are_counted_first_and_changed_in_part(store):
    """By a filter: dead and quarantined ones; --set keeps the other arguments."""
    ids = [dead(store), quarantined(store)]
    enqueue(store)
    given = ("replay", "--kind", KIND.kind, "--set", '{"width": 5}', "--json")
    counted = {"replayed": 0, "matched": 2, "dry_run": True, "replaced_by": {}}
    changed = {"changed": {"/width": 2}, "refused": []}
    assert rows(run(*given, "--dry-run")) == [counted | changed]
    unasked = run(*given)
    assert unasked.exit_code == 2
    assert "give --yes to replay" in unasked.stderr
    assert store.get(ids[0]).replaced_by is None
    (done,) = rows(run(*given, "--yes"))
    assert done["replaced_by"] == {str(ids[0]): 4, str(ids[1]): 5}
    assert store.payload(5) == b'{"path":"a.jpg","width":5}'
    assert rows(run(*given, "--yes"))[0]["matched"] == 0


def test_what_the_kind_does_not_take_is_refused(store):
    """Nothing is done, and no value is in the message."""
    job_id = dead(store)
    for given, said in (
        ("--args={}", "arguments lack 'path'"),
        ("--set={", "expected a JSON object with the arguments to change"),
        ('--set={"width":"secret"}', "argument 'width': expected integer"),
        ("--kind-to=shop.resise", "did you mean 'shop.resize'?"),
        ('--args={"path": "a.jpg"}', "its arguments would be the same"),
    ):
        result = run("replay", job_id, given, "--yes")
        assert result.exit_code in {1, 2}
        assert said in result.stderr
        assert "secret" not in result.output
    encoded = dead_of(store, payload=b'"encoded:abc"', codec="fernet")
    by_hand = dead_of(store, payload=b"[]")
    for stranger, said in ((encoded, "the codec 'fernet'"), (by_hand, "no JSON obj")):
        for given in ("--edit", '--args={"path": "b.jpg"}'):
            result = run("replay", stranger, given, "--yes")
            assert said in result.stderr
            assert f"jobs.replay({stranger}, handler.call(...))" in result.stderr
        assert store.get(stranger).replaced_by is None
    assert store.get(job_id).replaced_by is None


def test_a_job_becomes_one_of_another_kind(store):
    """In that kind's pool, with its arguments as they are; the change is shown."""
    job_id = dead(store)
    result = run("replay", job_id, "--kind-to", "shop.resize", "--yes")
    assert "  - kind: shop.thumbnail\n  + kind: shop.resize\n" in result.stdout
    assert "  - pool: cpu\n  + pool: io\n" in result.stdout
    new = store.get(store.get(job_id).replaced_by)
    assert (new.kind, new.pool) == ("shop.resize", "io")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--args", "{}"], "say which jobs"),
        ([1, "--kind", "k", "--edit"], "say which jobs"),
        ([1], "say what is to change"),
        ([1, "--args", "{}", "--set", "{}"], "exclude each other"),
        ([1, "--args", "{}", "--edit"], "exclude each other"),
    ],
)
def test_a_command_that_is_not_clear_changes_nothing(store, given, said):
    """Which jobs, and what of them, must be said once."""
    dead(store)
    result = run("replay", *given, "--yes")
    assert result.exit_code == 2
    assert said in result.stderr
    assert store.get(1).replaced_by is None


def test_arguments_are_edited_together(store, edit):
    """Of several jobs in one text; those that stay as they were are left out."""
    first, second = dead(store), dead_of(store, payload=b'{"path":"b.jpg"}')
    edit("s/b.jpg/c.jpg/")
    result = run("replay", "--kind", KIND.kind, "--edit", "--yes", "--json")
    assert rows(result)[0]["replaced_by"] == {str(second): 3}
    assert store.payload(3) == b'{"path":"c.jpg"}'
    assert store.get(first).replaced_by is None


def test_a_text_that_does_not_fit_is_kept(store, edit):
    """Where nobody can be asked to edit it again; and an unchanged one ends it."""
    job_id = dead(store)
    edit("s/path/pfad/")
    result = run("replay", job_id, "--edit", "--yes")
    assert result.exit_code == 2
    assert f"job {job_id}: arguments: arguments lack 'path'" in result.stderr
    kept = Path(result.stderr.split()[-1])
    assert "pfad" in kept.read_text()
    kept.unlink()
    edit("s/nothing//")
    assert "nothing was changed" in run("replay", job_id, "--edit").stderr
    assert store.get(job_id).replaced_by is None
