"""Stores on PostgreSQL that tests use one after the other: each is as new."""

import pytest
from psycopg import sql

from jobpool.store.opening import open_store
from support.postgres.server import query_of, server
from support.store.storing import begin_run, lease_one, new_job, succeeded

RANDOM = ("store_id", "ref_key_high", "ref_key_low")


def schema_of(url):
    return query_of(url)["schema"]


def everything(schema):
    """Return the rows of every table, and where every sequence stands."""
    found = {}
    with server().connect() as connection:
        tables = connection.execute(
            "SELECT relname, relkind::text FROM pg_class WHERE relkind IN ('r', 'S') "
            "AND relnamespace = %s::regnamespace",
            [schema],
        ).fetchall()
        for name, kind in tables:
            query = "SELECT last_value, is_called FROM {}"
            if kind == "r":
                query = "SELECT * FROM {}"
            rows = connection.execute(
                sql.SQL(query).format(sql.Identifier(schema, name))
            ).fetchall()
            found[name] = sorted(row for row in rows if row[0] not in RANDOM)
    return found


def random_numbers(schema):
    with server().connect() as connection:
        return connection.execute(
            sql.SQL("SELECT value FROM {} WHERE name = ANY(%s) ORDER BY name").format(
                sql.Identifier(schema, "meta")
            ),
            [list(RANDOM)],
        ).fetchall()


def test_a_store_that_comes_back_is_as_new():
    """No row is left, sequences begin again, and it is another store by its number."""
    url = server().store_url()
    schema = schema_of(url)
    new, numbers = everything(schema), random_numbers(schema)
    store = open_store(url)
    begin_run(store)
    store.enqueue([new_job()] * 2)
    store.settle([succeeded(lease_one(store))])
    store.close()
    assert everything(schema) != new
    server().drop(url)
    again = server().store_url()
    assert schema_of(again) == schema
    assert everything(schema) == new
    others = random_numbers(schema)
    assert len(numbers) == len(RANDOM)
    assert all(one != other for one, other in zip(numbers, others, strict=True))
    server().drop(again)


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE {}.jobs ADD COLUMN mine int",
        "ALTER TABLE {}.runs DISABLE TRIGGER USER",
        "ALTER TABLE {}.jobs SET (autovacuum_enabled = off)",
        "DROP INDEX {}.jobs_waiting",
        "GRANT SELECT ON {}.jobs TO public",
        "GRANT USAGE ON SCHEMA {} TO public",
        "CREATE FUNCTION {}.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    ],
)
def test_a_store_that_is_no_longer_as_it_was_made_is_not_used_again(change):
    """Whatever about it: its tables, rules, indexes, rights or functions."""
    url = server().store_url()
    schema = schema_of(url)
    with server().connect() as connection:
        connection.execute(change.replace("{}", schema))
        server().drop(url)
        (left,) = connection.execute("SELECT to_regnamespace(%s)", [schema]).fetchone()
    assert left is None
