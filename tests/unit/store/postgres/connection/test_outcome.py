"""What a PostgreSQL call reports when its commit's answer is lost.

The driver is replaced by a fake: only `connect`, the seam to the server, is ours.
"""

from types import SimpleNamespace

import psycopg
import pytest

from jobpool.errors import OutcomeUnknown, StoreRefused, StoreUnavailable, UsageError
from jobpool.store.postgres.connection import database
from jobpool.store.postgres.connection.database import Database
from jobpool.store.postgres.connection.url import read_address

LIFE = ("00000001", "since")
LOST = StoreUnavailable("lost")
RESTARTED, PROMOTED = ("00000001", "later"), ("00000002", "since")


class Server:
    """The server behind all connections of a test."""

    place = "here"
    server_life = LIFE
    xid = "77"
    known_ms = None
    has_written = True

    def __init__(self):
        self.failure, self.cause, self.answers = None, None, []
        self.asked, self.opened = [], 0
        idle = psycopg.pq.TransactionStatus.IDLE
        self.connection = SimpleNamespace(
            closed=False,
            broken=False,
            pgconn=SimpleNamespace(transaction_status=idle),
            close=self.lose,
        )

    def lose(self):
        self.connection.closed = True

    def connect(self, _address, _patience_s):
        self.opened += 1
        self.connection.closed = False
        return self, False

    def begin(self):
        self.asked.append("begin")

    def begin_step(self):
        self.asked.append("step")

    def end_step(self):
        self.asked.append("end step")

    def undo_step(self):
        self.asked.append("undo step")

    def forget(self):
        pass

    def end(self, name, *, wakes=False):
        self.asked.append(name)
        if name == "commit" and self.failure is not None:
            raise self.failure from self.cause

    def outcome_of(self, xid):
        assert xid == self.xid
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def there(monkeypatch):
    server = Server()
    monkeypatch.setattr(database, "connect", server.connect)
    monkeypatch.setattr(database, "_ASK_EVERY_S", 0.0)
    return server


@pytest.fixture
def ours(there):
    return Database(read_address("postgresql://h/d"), None, 1.0)


def write(ours):
    with ours.writing():
        pass


@pytest.mark.parametrize(
    "answers",
    [
        [("committed", LIFE)],
        [LOST, ("committed", LIFE)],
        [("in progress", LIFE), LOST, ("in progress", LIFE), ("committed", LIFE)],
    ],
)
def test_a_committed_transaction_counts_as_done(ours, there, answers):
    """However often it must be asked."""
    there.failure, there.answers = LOST, list(answers)
    write(ours)
    assert there.answers == []
    assert there.asked == ["begin", "commit"]


def test_without_a_write_the_outcome_is_not_looked_up(ours, there):
    """Committed or not, it makes no difference: the call may be made again."""
    there.failure, there.has_written = LOST, False
    with pytest.raises(StoreUnavailable, match="lost"):
        write(ours)
    assert there.opened == 1


@pytest.mark.parametrize("life", [LIFE, RESTARTED])
def test_a_rolled_back_transaction_counts_as_not_done(ours, there, life):
    """Nor can a restarted server have it: the call may be made again."""
    there.failure, there.answers = LOST, [("aborted", life)]
    with pytest.raises(StoreUnavailable, match="lost"):
        write(ours)


@pytest.mark.parametrize(
    "answer",
    [
        ("committed", RESTARTED),
        ("committed", PROMOTED),
        ("aborted", PROMOTED),
        ("in progress", PROMOTED),
        (None, LIFE),
        StoreRefused("no such number"),
    ],
    ids=str,
)
def test_an_answer_from_a_restarted_server_is_not_believed(ours, there, answer):
    """Its ids may belong to others.

    The answer will not change, so it is not awaited.
    """
    there.failure, there.answers = LOST, [answer, ("committed", LIFE)]
    with pytest.raises(OutcomeUnknown, match="cannot tell whether it happened"):
        write(ours)
    assert len(there.answers) == 1


def test_the_outcome_is_not_looked_up_forever(ours, there, monkeypatch):
    """A call does not hang forever."""
    monkeypatch.setattr(database, "DOUBT_S", 0.02)
    there.failure, there.answers = LOST, [("in progress", LIFE)] * 10**6
    with pytest.raises(OutcomeUnknown):
        write(ours)


def test_the_outcome_of_a_refused_call_is_not_looked_up(ours, there):
    """It has answered: nothing happened, and the connection stays."""
    there.failure, there.cause = LOST, psycopg.errors.DeadlockDetected("x")
    with pytest.raises(StoreUnavailable):
        write(ours)
    assert there.asked == ["begin", "commit", "rollback"]
    assert (there.opened, there.connection.closed) == (1, False)


def test_a_shutdown_message_is_not_an_outcome(ours, there):
    """A server that shuts down ends the connection: it may have committed before."""
    there.failure, there.cause = LOST, psycopg.errors.AdminShutdown("x")
    there.answers = [("committed", LIFE)]

    def end(name, *, wakes, end=there.end):
        there.lose()
        end(name, wakes=wakes)

    there.end = end
    write(ours)
    assert there.opened == 2


@pytest.mark.parametrize(
    ("cause", "is_kept"),
    [
        (psycopg.errors.UniqueViolation("x"), True),
        (psycopg.OperationalError("x"), False),
        (psycopg.errors.ReadOnlySqlTransaction("x"), False),
        (ValueError("x"), True),
    ],
    ids=lambda cause: type(cause).__name__,
)
def test_a_connection_that_may_be_broken_is_closed(ours, there, cause, is_kept):
    """And so is one to a server that has become a standby; others stay in use."""

    def fail():
        with ours.reading():
            raise StoreUnavailable("no") from cause

    with pytest.raises(StoreUnavailable):
        fail()
    assert there.connection.closed is not is_kept
    write(ours)
    assert there.opened == (1 if is_kept else 2)


def test_an_interrupt_closes_the_connection(ours, there):
    """It is unknown which statement it interrupted."""

    def interrupted():
        with ours.reading():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert there.connection.closed


def test_a_failed_step_in_a_transaction_is_undone_alone(ours, there):
    """Earlier steps stay, unless the whole transaction fails."""
    with ours.writing():
        assert ours.is_writing
        with pytest.raises(ZeroDivisionError), ours.writing():
            raise ZeroDivisionError
        with ours.writing():
            pass
    assert not ours.is_writing
    assert there.asked == [
        *("begin", "step", "undo step", "step", "end step", "commit"),
    ]


def test_a_connection_lost_in_a_transaction_ends_it(ours, there):
    """Its second half must not be written alone, on a new connection."""
    with pytest.raises(StoreUnavailable, match="lost within a transaction"):  # noqa: PT012, SIM117 - the first one goes on to its commit
        with ours.writing():
            there.lose()
            with ours.writing():
                pass
    assert there.asked == ["begin"]
    write(ours)
    assert there.opened == 2


def test_using_a_closed_store_is_an_error(ours):
    """It does not open again by itself."""
    write(ours)
    ours.close()
    with pytest.raises(UsageError, match=r"the store postgresql://h/d is closed"):
        write(ours)


def test_a_transaction_does_not_cross_a_fork(ours):
    """The child's part of it can never commit."""
    with pytest.raises(StoreUnavailable, match="left behind by a fork"), ours.writing():
        ours.start_anew_after_fork()
