"""The time around the commit on PostgreSQL, for each method that writes.

A commit's answer can be lost, or come after the patience has ended. A call that returns
has taken effect, and one that raises has not: never the other way round.
"""

import itertools
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import pytest
from psycopg import sql

from jobpool.core.rules.admission import Admission
from jobpool.errors import OutcomeUnknown, StoreUnavailable
from jobpool.store.opening import open_store
from jobpool.store.postgres.store import PostgresStore
from jobpool.store.records.operating import Filter
from support.postgres.cutting_proxy import CuttingProxy
from support.postgres.server import query_of, server
from support.store.calls import CALLS
from support.store.storing import (
    KINDS,
    begin_run,
    lease,
    new_job,
)
from support.waiting import in_thread, side_by_side, wait_until

PATIENCE_S = 1.0
"""For the answer to a commit, where none comes in time."""
BUSY_S = 20.0
"""For all others: a machine may be busy for seconds."""
WAIT_S = 60
GATES = itertools.count(815)
"""Advisory locks that slow commits wait for, each another one."""
AT_ONCE = 8
"""Stories that wait for a server, and for nothing else."""

MAKE_FUNCTION = """CREATE FUNCTION {schema}.at_commit() RETURNS trigger
    LANGUAGE plpgsql AS $$ BEGIN {body}; RETURN NULL; END $$"""
MAKE_TRIGGER = """CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT OR UPDATE
    ON {schema}.jobs DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION {schema}.at_commit()"""


HEAVY = ("enqueue with a key", "enqueue and wake", "lease", "settle")
"""The calls that change jobs in each of the ways there are: in, out, and done."""


@pytest.fixture
def own_server():
    """The session's server, if it is ours to stop."""
    if not server().is_ours:
        pytest.skip("JOBPOOL_TEST_POSTGRES is somebody's: not ours to stop")
    yield server()
    server().start()


class Ways(NamedTuple):
    """Two ways to one database.

    Attributes:
        url: of the database.
        proxy: what stands before it for *far*.
        near: a store that bypasses the proxy, with one supervisor's run: it sees the
            truth.
        far: the store under test; its connection goes through the proxy.
    """

    url: str
    proxy: CuttingProxy
    near: PostgresStore
    far: PostgresStore


@contextmanager
def ways_to(port):
    """Yield two ways to a database of its own on the server at a port."""
    url = server().store_url(server().tcp_url)
    with CuttingProxy(port) as proxy:
        near = open_store(url)
        begin_run(near)
        far = PostgresStore(
            proxy.url(url),
            clock=None,
            create=False,
            admission=Admission(depth_max=1000),
            patience_s=BUSY_S,
        )
        try:
            yield Ways(url, proxy, near, far)
        finally:
            proxy.heal()
            far.close()
            near.close()
    server().drop(url)


@pytest.fixture
def ways(own_server):
    with ways_to(own_server.port) as ways:
        yield ways


@pytest.fixture
def proxy(ways):
    return ways.proxy


@pytest.fixture
def near(ways):
    return ways.near


@pytest.fixture
def far(ways):
    return ways.far


NO_ANSWER = "no answer comes"
FAULTS = {
    "the answer is lost": lambda proxy: proxy.cut_at(b"COMMIT", delivered=True),
    NO_ANSWER: lambda proxy: proxy.swallow_answer_to(b"COMMIT"),
    "the commit is lost": lambda proxy: proxy.cut_at(b"COMMIT", delivered=False),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_returns_has_taken_effect_and_one_that_raises_has_not(
    request, name, fault
):
    """The outcome is looked up at once; the value is what the lost answer stood for."""
    if fault == NO_ANSWER:
        request.getfixturevalue("waited_for")[NO_ANSWER, name].result()
    else:
        takes_effect_or_raises(fault, name, request.getfixturevalue("ways"))


def takes_effect_or_raises(fault, name, ways):
    call, (_, proxy, near, far) = CALLS[name], ways
    given = call.prepare(near)
    assert not call.has_happened(near, given)
    if fault == NO_ANSWER:
        hurry_commits(far)
    FAULTS[fault](proxy)
    if fault == "the commit is lost":
        with pytest.raises(StoreUnavailable):
            call.act(far, given)
        assert not call.has_happened(near, given)
        returned = call.act(far, given)  # a caller with this error may do it again
    else:
        returned = call.act(far, given)
    assert not proxy.is_armed
    assert call.is_right(returned)
    assert call.has_happened(near, given)


def hurry_commits(far):
    """Let it wait for a commit no longer than `PATIENCE_S`."""
    commit = far._server._commit

    def hurried(session, **given):
        session.connection.patience_s = PATIENCE_S
        commit(session, **given)

    far._server._commit = hurried


class Gate(NamedTuple):
    """A lock that every commit of a changed job waits for."""

    connection: Any
    number: int

    def open(self):
        self.connection.execute("SELECT pg_advisory_unlock(%s)", [self.number])

    def waiters(self):
        """Count the commits that wait."""
        found = self.connection.execute(
            "SELECT count(*) FROM pg_locks "
            "WHERE locktype = 'advisory' AND objid = %s AND NOT granted",
            [self.number],
        )
        return found.fetchone()[0]


@contextmanager
def at_commit(url, body):
    """Make the server do something at each commit that has changed a job."""
    schema = sql.Identifier(query_of(url)["schema"])
    with server().connect() as connection:
        for text in (MAKE_FUNCTION, MAKE_TRIGGER):
            statement = sql.SQL(text).format(schema=schema, body=sql.SQL(body))
            connection.execute(statement)
        yield connection


@contextmanager
def gate(url, *, lock_timeout):
    """Close one. What is relied on must have been committed before.

    Args:
        url: of the database.
        lock_timeout: how long a commit waits for it, in PostgreSQL's words.
    """
    number = next(GATES)
    body = (
        f"PERFORM set_config('lock_timeout', '{lock_timeout}', true); "
        f"PERFORM pg_advisory_xact_lock_shared({number})"
    )
    with at_commit(url, body) as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", [number])
        yield Gate(connection, number)


def has_given_up(far):
    """Say whether a store has left the connection on which it sent the commit."""
    return far._server._owner is None


@pytest.mark.parametrize("name", HEAVY)
def test_a_commit_that_outlasts_the_patience_is_waited_for(waited_for, name):
    """The server is still busy when first asked: the call returns when it is done."""
    waited_for[outlasts_the_patience, name].result()


def outlasts_the_patience(name, ways):
    call, (url, _, near, far) = CALLS[name], ways
    given = call.prepare(near)
    hurry_commits(far)
    # Long: the test has to see that the store gives up before the server does.
    with gate(url, lock_timeout="0") as held:
        end = in_thread(lambda: call.act(far, given))
        wait_until(lambda: held.waiters() == 1, WAIT_S, "the commit waits")
        wait_until(lambda: has_given_up(far), WAIT_S, "the store gives up")
        assert end == []
        assert not call.has_happened(near, given)
        held.open()
        wait_until(lambda: end, WAIT_S, "the call's end")
    assert call.is_right(end[0])
    assert call.has_happened(near, given)


@pytest.mark.parametrize("name", HEAVY)
def test_a_commit_that_fails_after_the_patience_is_a_failure(waited_for, name):
    """Its lock was not available in the end.

    Nothing happened, and the error says so.
    """
    waited_for[fails_after_the_patience, name].result()


def fails_after_the_patience(name, ways):
    call, (url, _, near, far) = CALLS[name], ways
    given = call.prepare(near)
    hurry_commits(far)
    with gate(url, lock_timeout="3s") as held:
        end = in_thread(lambda: call.act(far, given))
        wait_until(lambda: end or held.waiters(), WAIT_S, "the commit waits")
        wait_until(lambda: not held.waiters(), WAIT_S, "the server has given it up")
        wait_until(lambda: end, WAIT_S, "the call's end")
        assert type(end[0]) is StoreUnavailable
        assert not call.has_happened(near, given)
        held.open()
        assert call.is_right(call.act(far, given))
    assert call.has_happened(near, given)


STORIES = {
    **{(NO_ANSWER, name): partial(takes_effect_or_raises, NO_ANSWER, name)
       for name in CALLS},
    **{(story, name): partial(story, name)
       for story in (fails_after_the_patience, outlasts_the_patience)
       for name in HEAVY},
}  # fmt: skip
"""What waits for a server that says nothing, by what is told and of which call."""


@pytest.fixture(scope="module")
def waited_for():
    """Let all that waits for a server wait side by side; return what came of each.

    All have ended: other tests of this file kill the server.
    """
    if not server().is_ours:
        pytest.skip("JOBPOOL_TEST_POSTGRES is somebody's: no proxy knows its port")

    def told(story):
        with ways_to(server().port) as ways:
            story(ways)

    stories = {key: partial(told, story) for key, story in STORIES.items()}
    with side_by_side(stories, AT_ONCE) as found:
        pass
    return found


@pytest.mark.parametrize("name", HEAVY)
def test_a_commit_that_the_server_refuses_has_no_effect(ways, name):
    """Such as a serialization failure.

    The answer is there, and nothing is looked up.
    """
    call, (url, _, near, far) = CALLS[name], ways
    given = call.prepare(near)
    with at_commit(url, "RAISE SQLSTATE '40001'"):
        with pytest.raises(StoreUnavailable, match="40001"):
            call.act(far, given)
        assert not call.has_happened(near, given)
        assert far.count(Filter()) == near.count(Filter())


@pytest.mark.parametrize("name", HEAVY)
def test_a_commit_before_a_crash_is_found_after_it(own_server, proxy, near, far, name):
    """It returns, or raises OutcomeUnknown; it never counts as a failure."""
    call = CALLS[name]
    given = call.prepare(near)
    proxy.cut_at(b"COMMIT", delivered=True)
    end = in_thread(lambda: call.act(far, given))
    wait_until(lambda: proxy.cuts, WAIT_S, "the answer is lost")
    own_server.kill()
    own_server.start()
    wait_until(lambda: end, WAIT_S, "the call's end")
    assert isinstance(end[0], OutcomeUnknown) or call.is_right(end[0])
    wait_until(lambda: is_back(near), WAIT_S, "the other store works again")
    assert call.has_happened(near, given)


def test_a_commit_lost_in_a_crash_is_not_mistaken_for_anothers(
    own_server, proxy, near, far
):
    """The server reuses lost transaction ids.

    Another owner of ours says nothing about us.
    """

    def lose():
        with far.transaction():
            (made,) = far.enqueue([new_job(key="lost")])
            proxy.accept_no_more()
            proxy.cut_at(b"COMMIT", delivered=False)
        return made

    end = in_thread(lose)
    wait_until(lambda: proxy.cuts, WAIT_S, "the commit is lost")
    own_server.kill()
    own_server.start()
    wait_until(lambda: is_back(near), WAIT_S, "the other store works again")
    for _ in range(10):
        near.enqueue([new_job()])
    proxy.heal()
    wait_until(lambda: end, WAIT_S, "the call's end")
    assert near.count(Filter()) == 10
    assert type(end[0]) in {StoreUnavailable, OutcomeUnknown}


def is_back(store):
    try:
        return store.count(Filter()) >= 0
    except StoreUnavailable:
        return False


def test_the_outcome_of_a_read_only_transaction_is_never_unknown(proxy, near, far):
    """A lease that found nothing is cut off at its end.

    Raised at once, not looked up.
    """
    lease(far)
    proxy.accept_no_more()  # a look-up of the outcome would not be answered
    proxy.cut_at(b"ROLLBACK", delivered=False)
    with pytest.raises(StoreUnavailable):
        far.lease("run-1", {"cpu": 4}, KINDS)
    assert proxy.cuts == 1
    proxy.heal()
    assert lease(far) == ()
