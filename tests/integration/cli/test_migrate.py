"""migrate: what it would do, what it does, on both databases."""

import re
import subprocess
from pathlib import Path

import pytest

import jobpool.manual
from jobpool.store.opening import open_store
from support.postgres.server import binaries, libpq_url, query_of, server
from support.store.cli_store import rows, run
from support.store.old_stores import layout, make_old

OLD = 4
"""The last version before steps had phases."""
MANUAL = Path(jobpool.manual.__file__).parent


@pytest.fixture
def old_url():
    url = server().fresh_url()
    make_old(url, OLD)
    yield url
    server().drop(url)


@pytest.fixture
def old_file(tmp_path):
    url = f"sqlite:///{tmp_path}/jobs.db"
    make_old(url, 5)
    return url


def test_a_plan_names_locks_sizes_and_times(old_url):
    """And changes nothing."""
    before = layout(old_url)
    (plan,) = rows(run("migrate", "--plan", "--json", "--store", old_url))
    assert (plan["schema_version"], plan["newest_version"]) == (4, 11)
    expand, *others = plan["parts"]
    online = [one for one in others if one["what"] != "expand"]
    assert (expand["what"], expand["lock"]) == ("expand", "ACCESS EXCLUSIVE")
    assert expand["tables"] == ["runs", "kinds", "jobs", "attempts", "pauses", "meta"]
    assert [(one["what"], one["name"]) for one in online] == [
        ("index", "jobs_in_lane"),
        ("index", "jobs_of_step"),
        ("index", "jobs_waiting"),
        ("constraint", "jobs_state_check"),
        ("index", "lanes_of_tenant"),
        ("index", "lanes_in_turn"),
        ("index", "jobs_of_tenant"),
        ("index", "jobs_of_flow_step"),
        ("index", "jobs_bad"),
    ]
    assert {one["lock"] for one in online} == {"SHARE UPDATE EXCLUSIVE"}
    of_jobs = [one for one in online if one["name"].startswith("jobs_")]
    assert all(one["tables"] == ["jobs"] and one["size_bytes"] > 0 for one in of_jobs)
    text = run("migrate", "--plan", "--store", old_url).stdout
    assert "schema version 4, would be 11" in text
    assert "SHARE UPDATE EXCLUSIVE" in text
    assert layout(old_url) == before


def test_a_finished_store_has_nothing_to_do(old_url):
    """Before and after, by the same words."""
    done = run("migrate", "--store", old_url)
    assert done.stdout.endswith("schema version 11\n")
    assert "index jobs_waiting: done in " in done.stderr
    assert "nothing to do" in run("migrate", "--plan", "--store", old_url).stdout
    assert run("migrate", "--sql", "--store", old_url).stdout == ""


def test_the_sql_that_is_printed_does_the_same(old_url, tmp_path):
    """Run by psql, it leaves the store as `migrate` would."""
    script = run("migrate", "--sql", "--store", old_url).stdout
    subprocess.run(
        [binaries() / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", libpq_url(old_url)],
        input=script,
        text=True,
        check=True,
        capture_output=True,
        timeout=60,
    )
    store = open_store(old_url)
    store.close()
    new = server().fresh_url()
    open_store(new).close()
    assert layout(old_url) == layout(new)
    server().drop(new)


def test_the_sql_for_a_new_store_makes_it():
    """By somebody who may create schemas."""
    url, other = server().fresh_url(), server().fresh_url()
    (plan,) = rows(run("migrate", "--plan", "--json", "--store", url))
    assert plan["schema_version"] == 0
    assert [part["what"] for part in plan["parts"]] == ["create"]
    script = run("migrate", "--sql", "--store", url).stdout
    assert f"CREATE SCHEMA IF NOT EXISTS {query_of(url)['schema']}" in script
    with server().connect(url) as connection:
        connection.execute(script)
    open_store(other).close()
    assert layout(url) == layout(other)
    for made in (url, other):
        server().drop(made)


def test_a_plan_for_a_file(old_file):
    """One transaction a step: writers wait, readers do not."""
    before = layout(old_file)
    (plan,) = rows(run("migrate", "--plan", "--json", "--store", old_file))
    assert [part["version"] for part in plan["parts"]] == [6, 7, 8, 9, 10, 11, 12, 13]
    assert {part["rows"] for part in plan["parts"]} == {7}
    assert all("writers" in part["waits"] for part in plan["parts"])
    script = run("migrate", "--sql", "--store", old_file).stdout
    assert script.count("BEGIN IMMEDIATE;") == 8
    assert "all writers" in run("migrate", "--plan", "--store", old_file).stdout
    assert layout(old_file) == before
    assert "schema version 13" in run("migrate", "--store", old_file).stdout


def test_a_plan_for_a_file_that_does_not_exist_makes_none(tmp_path):
    """Looking creates nothing."""
    path = tmp_path / "new.db"
    (plan,) = rows(run("migrate", "--plan", "--json", "--store", f"sqlite:///{path}"))
    assert plan["schema_version"] == 0
    assert not path.exists()


def test_the_plan_in_the_manual_is_one(old_url):
    """Line by line, but for sizes, times and the store's name."""
    page = (MANUAL / "upgrading.md").read_text()
    (shown,) = re.findall(
        r"\$ jobpool migrate --plan\n(postgresql:.*?)```", page, re.DOTALL
    )
    seen = run("migrate", "--plan", "--store", old_url).stdout
    assert [comparable(line) for line in seen.splitlines()] == [
        comparable(line) for line in shown.splitlines()
    ]


def comparable(line):
    return re.sub(
        r" +", " ", re.sub(r"[\d.]+(KiB|MiB|ms|s)?\b|postgresql:\S*", "", line)
    )
