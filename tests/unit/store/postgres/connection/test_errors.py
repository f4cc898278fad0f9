"""PostgreSQL's errors: try again, repair something, or a bug of ours."""

import psycopg
import pytest
from psycopg.errors import lookup

from jobpool.errors import JobpoolBug, StoreFull, StoreRefused, StoreUnavailable
from jobpool.store.postgres.connection.errors import explain
from jobpool.store.statements.integrity import RowRefused

PLACE = "postgresql://host/db"
NAMED = [
    ("53100", StoreFull, "no room on its disk"),
    ("53300", StoreUnavailable, "no connection left"),
    ("28P01", StoreRefused, "the password was refused"),
    ("28000", StoreRefused, "check the user's name"),
    ("3D000", StoreRefused, "that database does not exist"),
    ("42501", StoreRefused, "lacks a privilege"),
    ("42P01", StoreRefused, "a table of jobpool's is missing"),
    ("42703", StoreRefused, "not as jobpool made it"),
    ("3F000", StoreRefused, "the schema is missing"),
    ("25006", StoreUnavailable, "accepts no writes"),
    ("55000", StoreUnavailable, "accepts no writes"),
    ("55P03", StoreUnavailable, "a lock could not be taken"),
    ("57014", StoreUnavailable, "canceled or took too long"),
    ("25P02", StoreUnavailable, "had failed before"),
    ("23505", StoreUnavailable, "another transaction was quicker"),
    ("22021", StoreRefused, "not text in the database's encoding"),
]
OF_A_CLASS = [
    ("08006", StoreUnavailable, "the connection was lost"),
    ("22003", RowRefused, "beyond what PostgreSQL can hold"),
    ("23514", RowRefused, "violates the table's own rules"),
    ("25001", StoreUnavailable, "the transaction was ended"),
    ("28P02", StoreRefused, "the login was refused"),
    ("40P01", StoreUnavailable, "another transaction was in the way"),
    ("53200", StoreUnavailable, "out of resources"),
    ("55006", StoreUnavailable, "something is in use"),
    ("57P01", StoreUnavailable, "going down, or coming up"),
    ("58030", StoreUnavailable, "check the server's log"),
    ("XX001", StoreUnavailable, "an internal error"),
]


def error_of(state, text="what the server said"):
    """Return an error with a five-letter SQLSTATE, as psycopg raises it."""
    try:
        return lookup(state)(text)
    except KeyError:  # not one of those that have a class
        error = psycopg.DatabaseError(text)
        error.sqlstate = state
        return error


@pytest.mark.parametrize(("state", "kind", "said"), NAMED + OF_A_CLASS)
def test_each_state_is_its_own_error_with_its_remedy(state, kind, said):
    """The class says whether to try again; the text names place, state and remedy."""
    explained = explain(error_of(state), PLACE)
    assert type(explained) is kind
    assert said in str(explained)
    assert f"the store {PLACE} could not be used ({state}): " in str(explained)


def test_an_unexpected_state_is_reported_as_our_bug():
    """No statement of ours should cause it; only the first line may be shown."""
    explained = explain(error_of("42601", "syntax error\nDETAIL: a secret"), PLACE)
    assert type(explained) is JobpoolBug
    assert "(42601: syntax error)" in str(explained)
    assert "secret" not in str(explained)


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (psycopg.OperationalError("no route"), StoreUnavailable, "(no route)"),
        (psycopg.InterfaceError("closed"), StoreUnavailable, "(closed)"),
        (psycopg.OperationalError(), StoreUnavailable, "(OperationalError)"),
        (psycopg.DataError("NUL"), StoreRefused, "beyond what PostgreSQL can hold"),
        (psycopg.ProgrammingError("args"), JobpoolBug, "(ProgrammingError: args)"),
    ],
)
def test_errors_of_the_driver_without_a_state_are_classified(error, kind, said):
    """A connection error may pass, a value error is the caller's, the rest is ours."""
    explained = explain(error, PLACE)
    assert type(explained) is kind
    assert said in str(explained)


def test_only_the_start_of_a_servers_error_is_shown():
    """200 characters of its first line: what the server reports may be long."""
    explained = str(explain(psycopg.OperationalError("x" * 500), PLACE))
    assert explained.count("x") == 200
