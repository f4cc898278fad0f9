"""SQLite's errors in jobpool's terms: refused or unavailable, and what to do."""

import sqlite3

import pytest

from jobpool.errors import JobpoolBug, StoreFull, StoreRefused, StoreUnavailable
from jobpool.store.sqlite.connection.errors import (
    MOVED,
    REOPEN_AFTER,
    explain,
    primary_code,
)
from jobpool.store.statements.integrity import RowRefused

SAID = {
    "SQLITE_FULL": (StoreFull, "make room"),
    "SQLITE_BUSY": (StoreUnavailable, "another program holds a transaction"),
    "SQLITE_LOCKED": (StoreUnavailable, "another statement of this process"),
    "SQLITE_READONLY": (StoreUnavailable, "has become read-only"),
    "SQLITE_IOERR": (StoreUnavailable, "its disk reported an error"),
    "SQLITE_CANTOPEN": (StoreUnavailable, "the file cannot be opened"),
    "SQLITE_PROTOCOL": (StoreUnavailable, "contended beyond SQLite's patience"),
    "SQLITE_NOMEM": (StoreUnavailable, "out of memory"),
    "SQLITE_INTERRUPT": (StoreUnavailable, "was interrupted"),
    "SQLITE_PERM": (StoreUnavailable, "this user may not access it"),
    "SQLITE_CONSTRAINT": (RowRefused, "violates the table's own rules"),
    "SQLITE_MISMATCH": (RowRefused, "violates the table's own rules"),
    "SQLITE_TOOBIG": (StoreRefused, "larger than SQLite can hold"),
    "SQLITE_NOTADB": (StoreRefused, "not a SQLite database"),
    "SQLITE_CORRUPT": (StoreRefused, "it is damaged"),
}


def error_of(name, text="what SQLite said", extended=0):
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = getattr(sqlite3, name) | extended << 8
    error.sqlite_errorname = name
    return error


@pytest.mark.parametrize("name", SAID)
@pytest.mark.parametrize("extended", [0, 1, 5])
def test_each_code_is_its_own_error_with_its_remedy(name, extended):
    """An extended code counts as its primary one."""
    kind, words = SAID[name]
    found = explain(error_of(name, extended=extended), "/jobs.db", "jobpool_jobs")
    assert type(found) is kind
    text = str(found)
    where = f"the store /jobs.db, table jobpool_jobs, could not be used ({name}): "
    assert text.startswith(where)
    assert words in text


def test_an_error_without_a_table_names_none():
    """A commit concerns no table."""
    found = str(explain(error_of("SQLITE_BUSY"), "/jobs.db"))
    assert found.startswith("the store /jobs.db could not be used (SQLITE_BUSY): ")


@pytest.mark.parametrize("name", ["SQLITE_ERROR", "SQLITE_MISUSE", "SQLITE_RANGE"])
def test_an_unexpected_code_is_reported_as_our_bug(name):
    """It repeats SQLite's message."""
    found = explain(error_of(name), "/jobs.db")
    assert type(found) is JobpoolBug
    assert f"({name}: what SQLite said)" in str(found)


def test_errors_without_a_code_are_classified():
    """The module's own; some versions report a full disk like this."""
    assert primary_code(sqlite3.ProgrammingError("x")) == 0
    found = explain(sqlite3.ProgrammingError("x"), "/jobs.db")
    assert type(found) is JobpoolBug
    assert "(ProgrammingError: x)" in str(found)
    full = explain(sqlite3.OperationalError("database or disk is full"), "/jobs.db")
    assert type(full) is StoreFull
    large = explain(OverflowError("x"), "/jobs.db")
    assert type(large) is StoreRefused
    assert "larger than SQLite can hold" in str(large)


def test_a_queue_that_was_moved_names_its_new_address():
    """As its triggers say."""
    error = error_of("SQLITE_CONSTRAINT", f"{MOVED}postgresql://h/d")
    found = explain(error, "/jobs.db")
    assert type(found) is StoreRefused
    assert "this queue was moved to postgresql://h/d; use that URL" in str(found)


def test_the_errors_after_which_the_file_is_reopened():
    """After those that concern more than one statement."""
    names = {name for name in SAID if getattr(sqlite3, name) in REOPEN_AFTER}
    assert names == {
        "SQLITE_IOERR",
        "SQLITE_CORRUPT",
        "SQLITE_NOTADB",
        "SQLITE_PROTOCOL",
        "SQLITE_READONLY",
    }
    assert len(REOPEN_AFTER) == len(names)
