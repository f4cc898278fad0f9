"""Named SQL: what is in the files is what the code uses, no more and no less."""

import ast
from pathlib import Path

import pytest

from jobpool.errors import JobpoolBug
from jobpool.store.statements import named_sql
from jobpool.store.statements.named_sql import load_migrations, load_queries, parse

SOURCES = Path(__file__).parents[4] / "src" / "jobpool" / "store"
RUNNERS = {"rows", "run", "value"}


def strings_of(path):
    return {
        node.value
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def names_run(path):
    """Return the names given straight to a session."""
    return {
        node.args[0].value
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in RUNNERS
        and node.args
        and isinstance(node.args[0], ast.Constant)
    }


BOTH = [SOURCES / "move" / "move.py", SOURCES / "handler_transactions.py"]
"""They name queries of either database."""
SHARED = [
    *BOTH,
    *sorted((SOURCES / "operations").rglob("*.py")),
    *sorted((SOURCES / "statements").glob("*.py")),
]
ENDS_OF_MOVE = {
    "sqlite": [SOURCES / "move" / "source.py", SOURCES / "move" / "portable_rows.py"],
    "postgres": [SOURCES / "move" / "target.py"],
}
MODULES = {
    database: [*SHARED, *ends, *sorted((SOURCES / database).rglob("*.py"))]
    for database, ends in ENDS_OF_MOVE.items()
}


@pytest.mark.parametrize("database", MODULES)
def test_every_query_is_used(database):
    """No query is left over from a change."""
    used = set().union(*map(strings_of, MODULES[database]))
    assert set(load_queries(database)) - used == set()


@pytest.mark.parametrize("database", MODULES)
def test_every_query_that_is_used_exists(database):
    """A misspelt name is found here, not in production."""
    own = [path for path in MODULES[database] if path not in BOTH]
    wanted = set().union(*map(names_run, own))
    assert len(wanted) > 50
    assert wanted - set(load_queries(database)) == set()


def test_every_query_used_with_both_databases_exists():
    """Code that works with two databases names queries of either."""
    known = {*load_queries("sqlite"), *load_queries("postgres")}
    assert set().union(*map(names_run, BOTH)) - known == set()


def test_no_sql_statement_is_in_python_code():
    """SQL is in its files, where it can be read and explained."""
    verbs = ("SELECT ", "INSERT ", "UPDATE ", "DELETE ", "PRAGMA ", "BEGIN")
    for path in sorted({*MODULES["sqlite"], *MODULES["postgres"]}):
        for text in strings_of(path):
            assert not text.lstrip().startswith(verbs), (path, text[:60])


def test_every_query_is_one_statement():
    """Without a remaining comment line, and without a final semicolon."""
    for name, statement in load_queries("sqlite").items():
        assert ";" not in statement, name
        assert "--" not in statement, name


def test_every_query_says_what_it_is_for():
    """A comment line follows each name."""
    files = [f for f in SOURCES.rglob("*.sql") if "-- name: " in f.read_text()]
    assert len(files) > 15
    for file in files:
        lines = file.read_text().splitlines()
        for place, line in enumerate(lines):
            if line.startswith("-- name: "):
                assert lines[place + 1].startswith("-- "), line


def test_parse_returns_names_in_order():
    """What is before the first one is the file's own comment."""
    text = "-- About.\n\n-- name: b\n-- why\nSELECT 1\nFROM x\n\n-- name: a\nSELECT 2\n"
    assert list(parse(text).items()) == [("b", "SELECT 1\nFROM x"), ("a", "SELECT 2")]


@pytest.mark.parametrize(
    "text", ["-- name: a\n-- why\n", "-- name: a\nSELECT 1\n-- name: a\nSELECT 2\n"]
)
def test_parse_refuses_incomplete_and_duplicate_names(text):
    """A name without a statement, and a name that is taken."""
    with pytest.raises(JobpoolBug, match="'a' is named twice or is empty"):
        parse(text)


def test_a_name_in_two_files_is_an_error(tmp_path, monkeypatch):
    """Either could be meant; other files of the folder are not SQL."""
    monkeypatch.setattr(named_sql, "_folder", lambda _database: tmp_path)
    (tmp_path / "a.sql").write_text("-- name: a\nSELECT 1\n")
    (tmp_path / "notes").write_text("-- name: a\nSELECT 2\n")
    assert load_queries.__wrapped__("x") == {"a": "SELECT 1"}
    (tmp_path / "b.sql").write_text("-- name: a\nSELECT 2\n")
    with pytest.raises(JobpoolBug, match=r"in two files: \{'a'\}"):
        load_queries.__wrapped__("x")


def test_a_gap_in_the_migrations_is_an_error(tmp_path, monkeypatch):
    """A store would count as newer than it is."""
    folder = tmp_path / "migrations"
    folder.mkdir()
    monkeypatch.setattr(named_sql, "_folder", lambda _database: tmp_path)
    (folder / "001_init.sql").write_text("SELECT 1")
    assert load_migrations.__wrapped__("x") == ("SELECT 1",)
    (folder / "003_more.sql").write_text("SELECT 3")
    with pytest.raises(JobpoolBug, match=r"numbered \[1, 3\]"):
        load_migrations.__wrapped__("x")


def test_migrations_are_numbered_without_a_gap():
    """The first one makes the tables."""
    first, *_ = load_migrations("sqlite")
    assert "CREATE TABLE jobpool_jobs" in first
