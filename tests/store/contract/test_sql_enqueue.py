"""Enqueueing with one SQL statement, from any language."""

import json
import re
import sqlite3
from contextlib import closing

import psycopg
import pytest

from jobpool.core.jobs.job import JobState
from jobpool.core.rules.quotas.definition import Need
from jobpool.store.opening import open_store
from jobpool.store.records.operating import Filter
from support.postgres.server import query_of, server
from support.store.quotas import publish, quota
from support.store.storing import begin_run, kind_record, lease

ENGINES = ["sqlite", "postgres"]
KIND = "shop.thumbnail"
OF_SQLITE = {
    "run_in": "run_in_s",
    "expires_in": "expires_in_s",
    "timeout": "timeout_s",
}
"""The columns of the view whose names say their unit; PostgreSQL has intervals."""


class Other:
    """A program in another language: it has a connection and SQL, nothing else."""

    def __init__(self, url):
        self._is_file = url.startswith("sqlite")
        if self._is_file:
            self.connection = sqlite3.connect(url.removeprefix("sqlite:///"))
        else:
            self.connection = server().connect(url)
            self.connection.autocommit = False
            self.schema = query_of(url)["schema"]

    def enqueue(self, kind=KIND, arguments="{}", *, commit=True, **options):
        """Return the new job's id; on SQLite None: a view returns none."""
        if self._is_file:
            options = {OF_SQLITE.get(name, name): v for name, v in options.items()}
            names = ", ".join(["kind", "arguments", *options])
            marks = ", ".join("?" * (2 + len(options)))
            self.connection.execute(
                f"INSERT INTO jobpool_enqueue ({names}) VALUES ({marks})",  # noqa: S608 - our names
                (kind, arguments, *options.values()),
            )
            found = None
        else:
            given = "".join(
                f", {name} => %s::interval"
                if name in OF_SQLITE
                else f", {name} => to_timestamp(%s)"
                if name == "run_at"
                else f", {name} => %s"
                for name in options
            )
            values = [
                f"{value} seconds" if name in OF_SQLITE else value
                for name, value in options.items()
            ]
            found = self.connection.execute(
                f"SELECT {self.schema}.enqueue(%s, %s::jsonb{given})",
                (kind, arguments, *values),
            ).fetchone()[0]
        if commit:
            self.connection.commit()
        return found

    def refused(self, *args, **options):
        """Return why it was refused, and begin anew."""
        with pytest.raises((sqlite3.Error, psycopg.Error)) as refused:
            self.enqueue(*args, **options)
        self.connection.rollback()
        return str(refused.value)


@pytest.fixture
def url(new_store_url):
    return new_store_url()


@pytest.fixture
def store(url):
    with closing(open_store(url)) as store:
        begin_run(store, kinds=[kind_record(KIND, "cpu")])
        yield store


@pytest.fixture
def other(url, store):
    other = Other(url)
    yield other
    other.connection.close()


def jobs_of(store):
    return sorted(store.find(Filter()), key=lambda job: job.id)


def test_a_job_is_leased_with_its_arguments_in_the_pool_of_its_kind(store, other):
    made = other.enqueue(arguments='{"to": "zoë", "n": 12345678901234567890}')
    (job,) = jobs_of(store)
    assert made in (None, job.id)
    assert (job.kind, job.pool, job.state) == (KIND, "cpu", JobState.RUNNABLE)
    (granted,) = lease(store)
    assert granted.id == job.id
    assert json.loads(granted.payload) == {"to": "zoë", "n": 12345678901234567890}


def test_options_are_those_of_a_job(store, other):
    other.enqueue(
        priority=7,
        key="k",
        unique_text="u",
        tenant="acme",
        max_attempts=3,
        timeout=90.5,
        memory_bytes=2**20,
        run_in=60,
        expires_in=3600,
    )
    other.enqueue("shop.other", pool="io", run_at=4_000_000_000)
    job, later = jobs_of(store)
    assert (job.priority, job.key, job.unique, job.tenant) == (7, "k", "u", "acme")
    assert (job.max_attempts, job.timeout_s, job.memory_bytes) == (3, 90.5, 2**20)
    assert job.state is JobState.PENDING
    assert job.run_at_ms - job.created_at_ms == 60_000
    assert job.expires_at_ms - job.created_at_ms == 3_600_000
    assert (later.pool, later.run_at_ms) == ("io", 4_000_000_000_000)
    assert later.state is JobState.PENDING


def test_a_key_makes_one_job_and_other_arguments_are_refused(store, other):
    first = other.enqueue(arguments='{"a": 1, "b": [2]}', key="k")
    again = other.enqueue(arguments='{"a":1,"b":[2]}', key="k")
    assert first == again
    assert "this key with other arguments" in other.refused(arguments="{}", key="k")
    assert len(jobs_of(store)) == 1
    other.enqueue("shop.other", pool="cpu", key="k")
    assert len(jobs_of(store)) == 2


def test_one_unfinished_job_has_a_unique_text(store, other):
    first = other.enqueue(unique_text="u")
    assert other.enqueue(unique_text="u") == first
    (job,) = jobs_of(store)
    store.cancel([job.id])
    other.enqueue(unique_text="u")
    assert len(jobs_of(store)) == 2


@pytest.mark.parametrize(
    ("arguments", "options", "said"),
    [
        ("[1]", {}, "no JSON object"),
        ('"text"', {}, "no JSON object"),
        ("null", {}, "no JSON object"),
        ("{}", {"kind": "nobody.knows"}, "no supervisor has ever known"),
        ("{}", {"kind": "  "}, "no kind of a handler"),
        ("{}", {"kind": "jobpool:hook"}, "no kind of a handler"),
        ("{}", {"run_in": 5, "run_at": 5}, "both given"),
        ("{}", {"priority": 40_000}, "priority"),
        ("{}", {"timeout": 0}, "not above 0"),
        ("{}", {"timeout": -1}, "not above 0"),
        ("{}", {"max_attempts": 0}, "not above 0"),
        ("{}", {"memory_bytes": -1}, "not above 0"),
        ("{}", {"memory_bytes": 2**61}, "too large"),
        ("{}", {"expires_in": -5}, "not above 0"),
        ("{}", {"pool": ""}, "1 to 255 characters"),
        ("{}", {"key": ""}, "1 to 255 characters"),
        ("{}", {"tenant": "é" * 256}, "1 to 255 characters"),
        ("{}", {"unique_text": "a\0b"}, "NUL|1 to 255 characters"),
    ],
)
def test_what_is_wrong_is_refused_and_nothing_is_stored(
    store, other, arguments, options, said
):
    told = other.refused(**{"kind": KIND, "arguments": arguments} | options)
    assert re.search(said, told)
    assert jobs_of(store) == []


def test_text_that_is_no_json_is_refused(store, other):
    assert "json" in other.refused(arguments="{'a': 1}").lower()
    assert jobs_of(store) == []


def test_it_commits_or_vanishes_with_the_callers_transaction(store, other):
    other.enqueue(commit=False)
    other.connection.rollback()
    assert jobs_of(store) == []
    other.enqueue(commit=False)
    other.enqueue(commit=False)
    other.connection.commit()
    assert len(jobs_of(store)) == 2


def test_quotas_count_it_by_its_arguments(store, other):
    """Nobody has stamped it: that is done before it may be leased."""
    cap = quota(concurrency=1, per="args.vendor")
    publish(store, cap, needs={KIND: [Need("stripe")]}, run_id="run-2")
    for vendor in ("a", "a", "b"):
        other.enqueue(arguments=json.dumps({"vendor": vendor}))
    granted = {json.loads(one.payload)["vendor"] for one in lease(store, "run-2")}
    granted |= {json.loads(one.payload)["vendor"] for one in lease(store, "run-2")}
    assert granted == {"a", "b"}
    assert sum(job.state is JobState.LEASED for job in jobs_of(store)) == 2


def test_it_counts_in_the_depth_of_the_queue(store, other):
    for _ in range(3):
        other.enqueue()
    assert sum(row.jobs for row in store.waiting()) == 3
