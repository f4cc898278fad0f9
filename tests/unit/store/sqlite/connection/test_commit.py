"""A failed commit: may it be in the log all the same?"""

import sqlite3

import pytest

from jobpool.errors import OutcomeUnknown, StoreUnavailable
from jobpool.store.sqlite.connection.commit import commit


class Failing:
    """A session whose first commit fails, and the statements sent to it afterwards."""

    path = "/jobs.db"

    def __init__(self, cause=None, *, fails_again=False):
        self.cause, self.fails_again, self.asked = cause, fails_again, []
        self.connection = self

    in_transaction = True

    def run(self, name):
        self.asked.append(name)
        if name == "commit" and (self.fails_again or self.asked == ["commit"]):
            raise StoreUnavailable("no") from self.cause


def error(code):
    made = sqlite3.OperationalError("x")
    made.sqlite_errorcode = code
    return made


AFRESH = ["commit", "rollback", "begin", "overwrite", "commit"]


@pytest.mark.parametrize(
    ("cause", "asked"),
    [
        (error(sqlite3.SQLITE_BUSY), ["commit"]),
        (error(sqlite3.SQLITE_BUSY_SNAPSHOT), ["commit"]),
        (error(sqlite3.SQLITE_FULL), ["commit"]),
        (error(sqlite3.SQLITE_IOERR_WRITE), ["commit"]),
        (error(sqlite3.SQLITE_IOERR_FSYNC), AFRESH),
        (error(sqlite3.SQLITE_IOERR), AFRESH),
        (error(sqlite3.SQLITE_CORRUPT), AFRESH),
        (OSError("x"), AFRESH),
        (None, AFRESH),
    ],
    ids=str,
)
def test_a_failed_commit_that_may_be_in_the_log_is_overwritten(cause, asked):
    """Unless nothing can have been written: then it is simply not there."""
    session = Failing(cause)
    with pytest.raises(StoreUnavailable):
        commit(session)
    assert session.asked == asked


def test_a_failed_commit_that_cannot_be_overwritten_is_in_doubt():
    """It is unknown whether the file's next reader will see it."""
    session = Failing(error(sqlite3.SQLITE_IOERR_FSYNC), fails_again=True)
    with pytest.raises(OutcomeUnknown, match="could not be removed from the log"):
        commit(session)


def test_a_transaction_that_has_ended_is_not_rolled_back():
    """SQLite may have ended it with the error."""
    session = Failing(error(sqlite3.SQLITE_IOERR_FSYNC))
    session.in_transaction = False
    with pytest.raises(StoreUnavailable):
        commit(session)
    assert session.asked == ["commit", "begin", "overwrite", "commit"]
