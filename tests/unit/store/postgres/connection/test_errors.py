"""PostgreSQL's errors: try again, repair something, or a bug of ours."""

import psycopg
import pytest
from psycopg.errors import lookup

from jobpool.errors import JobpoolBug, StoreFull, StoreRefused, StoreUnavailable
from jobpool.store.postgres.connection.errors import explain, explain_connect
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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("FATAL:  remaining connection slots are reserved for roles with", "(53300)"),
        ("FATAL:  sorry, too many clients already", "(53300)"),
        ('FATAL:  too many connections for role "shop"', "no connection left"),
        ("FATAL:  the database system is starting up", "(57P03)"),
        ("FATAL:  the database system is in recovery mode", "coming up"),
        ("FATAL:  a reason of a later server", "it answers, and takes no connection"),
        ("server does not support SSL, but SSL was required", "check sslmode"),
        ("SSL error: certificate verify failed", "none has expired"),
        ("failed to resolve host 'db'", "check its name in the URL, and the DNS"),
        ("Connection refused", "it does not answer; check that the server runs"),
    ],
)
def test_what_keeps_a_connection_from_coming_about_is_told_from_silence(text, said):
    """All of these may pass, so supervisors wait; people are told where to look."""
    explained = explain_connect(psycopg.OperationalError(f"failed: {text}"), PLACE)
    assert type(explained) is StoreUnavailable
    assert said in str(explained)
    assert ("it does not answer" in str(explained)) == (text == "Connection refused")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('FATAL:  password authentication failed for user "shop"', "(28P01)"),
        ("fe_sendauth: no password supplied", "(28P01)"),
        ('FATAL:  no pg_hba.conf entry for host "::1", no encryption', "(28000)"),
        ('FATAL:  role "shop" does not exist', "(28000)"),
        ('FATAL:  database "shop" does not exist', "(3D000)"),
    ],
)
def test_a_login_that_is_refused_will_be_refused_again(text, said):
    """So a supervisor that starts ends, and says what is to be corrected."""
    explained = explain_connect(psycopg.OperationalError(text), PLACE)
    assert type(explained) is StoreRefused
    assert said in str(explained)
