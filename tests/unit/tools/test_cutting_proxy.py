"""The proxy of the fault tests: it must lose what it says, and nothing else."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from support.postgres.cutting_proxy import DOWN, UP, CuttingProxy
from support.postgres.server import server
from support.waiting import wait_until


@pytest.fixture
def proxy():
    url = server().tcp_url
    with CuttingProxy(psycopg.conninfo.conninfo_to_dict(url)["port"]) as proxy:
        yield proxy


@pytest.fixture
def table():
    with server().connect(server().url) as connection:
        connection.execute("CREATE TABLE proxied (n int)")
        yield lambda: connection.execute("SELECT count(*) FROM proxied").fetchone()[0]
        connection.execute("DROP TABLE proxied")


def connect(proxy, **options):
    return psycopg.connect(proxy.url(server().tcp_url), **options)


def test_it_carries_what_it_is_given(proxy):
    """A megabyte there and back is the same megabyte."""
    text = "x" * 2**20
    with connect(proxy) as connection:
        assert connection.execute("SELECT %s", [text]).fetchone() == (text,)
        assert proxy.open_connections == 1
    wait_until(lambda: proxy.open_connections == 0, 30, "the link ended")


def test_a_cut_ends_all_open_connections_and_no_later_one(proxy):
    """Later connections are carried."""
    connection = connect(proxy)
    assert proxy.cut() == 1
    with connection, pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")
    with connect(proxy) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize("delivered", [False, True])
def test_a_cut_commit_has_happened_or_not_as_ordered(proxy, table, delivered):
    """The client sees the same in both cases: nothing."""
    with contextlib.closing(connect(proxy)) as connection:
        connection.execute("INSERT INTO proxied VALUES (1)")
        proxy.cut_at(b"COMMIT", delivered=delivered)
        with pytest.raises(psycopg.OperationalError):
            connection.commit()
    assert table() == int(delivered)
    assert (proxy.cuts, proxy.is_armed) == (1, False)


@pytest.mark.parametrize("direction", [UP, DOWN])
@pytest.mark.parametrize("count", [1, 7, 30])
def test_a_cut_at_a_byte_hits_one_connection(proxy, direction, count):
    """Even before the client has identified itself."""
    proxy.cut_after(count, direction)
    with pytest.raises(psycopg.OperationalError), connect(proxy) as connection:
        connection.execute("SELECT 'a longer answer than so many bytes'")
    assert (proxy.cuts, proxy.is_armed) == (1, False)


def test_a_black_hole_answers_nothing_until_it_heals(proxy):
    """New connections time out; an old one goes on as if nothing had happened."""
    with connect(proxy) as connection:
        proxy.black_hole()
        with pytest.raises(psycopg.errors.ConnectionTimeout):
            connect(proxy, connect_timeout=2)
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(connection.execute, "SELECT 5")
            with pytest.raises(TimeoutError):
                answer.result(0.2)
            proxy.heal()
            assert answer.result(30).fetchone() == (5,)


def test_refused_connections_fail_at_once(proxy):
    """As on a host without a server; the port stays the same afterwards."""
    port = proxy.port
    proxy.refuse()
    with pytest.raises(psycopg.OperationalError, match="refused"):
        connect(proxy)
    proxy.heal()
    assert proxy.port == port
    with connect(proxy) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
