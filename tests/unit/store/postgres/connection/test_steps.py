"""Reading a migration's phases, and what each phase of ours may do."""

import re

import pytest

from jobpool.store.postgres.connection.steps import at_once, read_step, steps_of

TEXT = """-- Why.

-- lock:
LOCK TABLE q.a;
-- expand:
ALTER TABLE q.a ADD COLUMN b int;
CREATE TABLE q.c (d int);
-- index: a_b
DROP INDEX CONCURRENTLY IF EXISTS q.a_b;
-- As few as possible.
CREATE INDEX CONCURRENTLY a_b ON q.a (b);
-- constraint: a_check
ALTER TABLE q.a VALIDATE CONSTRAINT a_check;
"""
PHASED = [step for step in steps_of("q") if step.online]


def test_a_file_is_read_by_its_sections():
    """Each statement of an online part by itself, without comments."""
    step = read_step(7, TEXT)
    assert (step.version, step.lock) == (7, "LOCK TABLE q.a;\n")
    assert "ADD COLUMN" in step.expand
    assert "CREATE TABLE" in step.expand
    assert "INDEX" not in step.expand
    assert [(part.what, part.name) for part in step.online] == [
        ("index", "a_b"),
        ("constraint", "a_check"),
    ]
    assert step.online[0].statements == (
        "DROP INDEX CONCURRENTLY IF EXISTS q.a_b",
        "CREATE INDEX CONCURRENTLY a_b ON q.a (b)",
    )


def test_a_file_without_sections_is_one_transaction():
    """As migrations were before."""
    assert read_step(1, "CREATE TABLE q.a (b int);\n") == (
        1,
        "",
        "CREATE TABLE q.a (b int);\n",
        (),
    )


def test_for_new_tables_nothing_is_built_concurrently():
    """That cannot be done in a transaction."""
    assert "CONCURRENTLY" not in at_once(TEXT)
    assert "CREATE INDEX a_b ON q.a (b)" in at_once(TEXT)


@pytest.mark.parametrize("step", PHASED, ids=lambda step: str(step.version))
def test_expanding_reads_no_table(step):
    """It adds indexes to its own tables only, and validates nothing."""
    made = set(re.findall(r"CREATE TABLE q\.(\w+)", step.expand))
    indexed = set(re.findall(r"INDEX \w+\s+ON q\.(\w+)", step.expand))
    assert indexed <= made
    assert "VALIDATE CONSTRAINT" not in step.expand
    checks = re.findall(
        r"ADD CONSTRAINT (jobs_\w+) CHECK (?:.*?);", step.expand, re.DOTALL
    )
    assert all(f"VALIDATE CONSTRAINT {name}" in str(step.online) for name in checks)


@pytest.mark.parametrize("step", PHASED, ids=lambda step: str(step.version))
def test_online_parts_can_be_begun_again(step):
    """What a killed build has left is dropped by name, before the index is built."""
    for part in step.online:
        if part.what == "index":
            drop, create = part.statements
            assert drop == f"DROP INDEX CONCURRENTLY IF EXISTS q.{part.name}"
            assert re.match(
                rf"CREATE (UNIQUE )?INDEX CONCURRENTLY {part.name}\s", create
            )
        else:
            (validate,) = part.statements
            assert validate.endswith(f"VALIDATE CONSTRAINT {part.name}")


@pytest.mark.parametrize("step", PHASED, ids=lambda step: str(step.version))
def test_expanding_locks_every_table_that_it_changes_at_the_beginning(step):
    """So that one limit holds for all of its waiting."""
    made = set(re.findall(r"CREATE TABLE q\.(\w+)", step.expand))
    changed = set(re.findall(r"(?:ALTER TABLE|INTO|UPDATE) q\.(\w+)", step.expand))
    assert changed - made <= set(re.findall(r"q\.(\w+)", step.lock))
