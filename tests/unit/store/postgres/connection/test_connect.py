"""What is requested of PostgreSQL when a connection opens, and how failures read.

No server is needed: the driver is replaced by a fake.
"""

import psycopg
import pytest

from jobpool.errors import ConfigError, StoreRefused, StoreUnavailable
from jobpool.store.postgres import health
from jobpool.store.postgres.connection import connect as connect_module
from jobpool.store.postgres.connection.url import read_address

URL = "postgresql://u:secret@h/d"


class Opened:
    patience_s = None


@pytest.fixture
def asked(monkeypatch):
    """The arguments passed to the driver; an exception put there is raised."""
    asked = {}

    def connect(conninfo, **options):
        asked.update(options, conninfo=conninfo)
        if "error" in asked:
            raise asked["error"]
        return Opened()

    monkeypatch.setattr(connect_module.BoundedConnection, "connect", connect)
    return asked


def test_a_peer_that_vanished_is_noticed_within_ten_seconds(asked):
    """By keepalives and unacknowledged data, unless the URL says otherwise."""
    opened = connect_module._open(read_address(URL), 30.0)
    assert opened.patience_s == 30.0
    del asked["conninfo"]
    assert asked == {
        "autocommit": True,
        "application_name": "jobpool",
        "client_encoding": "UTF8",
        "connect_timeout": 5,
        "keepalives_idle": 5,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": 10_000,
    }
    assert asked["keepalives_idle"] + 2 * 3 <= 11


@pytest.mark.parametrize(("patience_s", "timeout_s"), [(0.2, 1), (3.9, 3), (9, 5)])
def test_a_connection_is_not_waited_for_longer_than_an_answer(
    asked, patience_s, timeout_s
):
    """At least a second: libpq knows no less."""
    connect_module._open(read_address(URL), patience_s)
    assert asked["connect_timeout"] == timeout_s


def test_settings_in_the_url_are_kept(asked):
    """An operator knows the network better."""
    url = f"{URL}?keepalives_idle=60&application_name=shop&connect_timeout=40"
    connect_module._open(read_address(url), 30.0)
    assert "application_name" not in asked
    assert "keepalives_idle" not in asked
    assert asked["connect_timeout"] == "40"
    assert asked["keepalives_count"] == 3


REFUSED = [
    "FATAL:  password authentication failed for user",
    "fe_sendauth: no password supplied",
    "FATAL:  no pg_hba.conf entry for host",
    'FATAL:  role "u" does not exist',
    'FATAL:  database "d" does not exist',
]


@pytest.mark.parametrize("text", REFUSED)
def test_a_refused_login_is_no_outage(asked, text):
    """Waiting would not help; the password is not shown."""
    asked["error"] = psycopg.OperationalError(f"connection failed: {text}")
    with pytest.raises(StoreRefused) as refused:
        connect_module._open(read_address(URL), 30.0)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "connection refused",
        "FATAL:  the database system is starting up",
        'FATAL:  role "u" is locked out',
        'FATAL:  database "d" is being moved',
        "password authentication failed",
        'role "u" does not exist',
    ],
)
def test_a_failure_that_may_pass_is_an_outage(asked, text):
    """The server did not refuse this login for good, or it was not the server."""
    asked["error"] = psycopg.OperationalError(f"connection failed: {text}")
    with pytest.raises(StoreUnavailable):
        connect_module._open(read_address(URL), 30.0)


def test_a_lack_of_descriptors_is_named(asked):
    """The server is not at fault."""
    asked["error"] = OSError(24, "Too many open files")
    with pytest.raises(StoreUnavailable, match=r"Too many open files.*this host"):
        connect_module._open(read_address(URL), 30.0)


def test_supported_servers_are_accepted():
    """PostgreSQL 14 or newer, UTF8, a schema that needs no quotes."""
    address = read_address(URL)
    connect_module._check(address, 140_000, "UTF8", is_plain=True)
    for version, encoding, is_plain, said in (
        (139_999, "UTF8", True, "is PostgreSQL 13; jobpool needs 14"),
        (180_000, "LATIN1", True, "encoding LATIN1; jobpool needs UTF8"),
        (180_000, "UTF8", False, "a reserved word of SQL"),
    ):
        with pytest.raises(StoreRefused, match=said):
            connect_module._check(address, version, encoding, is_plain=is_plain)


# -- addresses -------------------------------------------------------------------------


def test_a_url_is_parsed():
    """The schema is ours, everything else is libpq's; the last value counts."""
    address = read_address(f"{URL}?schema=a&application_name=x%20y&schema=b")
    assert address.schema == "b"
    assert address.conninfo == f"{URL}?application_name=x%20y"
    assert address.shown.startswith("postgresql://u:***@h/d?schema=a")
    assert read_address(URL).schema == "jobpool"
    assert read_address("postgres://h1:1,h2:2/d").conninfo.startswith("postgresql://h1")


@pytest.mark.parametrize("name", ["a", "_a1", "a" * 63])
def test_valid_schema_names_are_accepted(name):
    """Those that need no quotes."""
    assert read_address(f"{URL}?schema={name}").schema == name


@pytest.mark.parametrize("name", ["", "a" * 64, "A", "1a", "a-b", "pg_a", "a%00b", "ä"])
def test_invalid_schema_names_are_refused(name):
    """Before anything is opened."""
    with pytest.raises(ConfigError, match="cannot be used"):
        read_address(f"{URL}?schema={name}")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (f"{URL}\0", "holds a NUL"),
        ("postgresql://u:secret@h:port/d", "is the port a number"),
        ("postgresql://u:secret@[::1/d", "is not a URL"),
        (f"{URL}?nonsense=1", "it knows no option nonsense"),
        (f"{URL}%zz", r"is a % written as %25\?"),
    ],
)
def test_wrong_urls_are_reported_without_their_password(url, said):
    """Each says what to check."""
    with pytest.raises(ConfigError, match=said) as refused:
        read_address(url)
    assert "secret" not in str(refused.value)


# -- health ----------------------------------------------------------------------------


class Known:
    """A session whose server is in a given state."""

    def __init__(self, live=0, dead=0, open_for=()):
        self.table, self.open_for, self.patience_s = [(live, dead, "9 MB")], open_for, 0

    def rows(self, name, **parameters):
        if name == "table_health":
            return self.table
        self.patience_s = parameters["patience_s"]
        return self.open_for


@pytest.mark.parametrize(
    ("live", "dead", "is_reported"),
    [
        (0, 100_000, False),
        (0, 100_001, True),
        (200_000, 200_000, False),
        (200_000, 200_001, True),
        (200_001, 200_000, False),
    ],
)
def test_more_dead_rows_than_live_ones_are_a_concern(live, dead, is_reported):
    """If there are many at all."""
    found = health.concerns(Known(live, dead))
    concern = f"the table jobs has {dead:,} dead rows to {live:,} live ones; check "
    assert [one.startswith(concern) for one in found] == [True] * is_reported


def test_a_transaction_that_is_open_for_minutes_is_a_concern():
    """It is named with its age, before the table; a minute is not long."""
    session = Known(1, 10**6, [("session", "pid 7", 90.0), ("slot", "b", 61)])
    first, second, third = health.concerns(session)
    assert session.patience_s == 60
    assert first.startswith("session pid 7 has been open for 1m30s: until it ends")
    assert second.startswith("slot b has been open for 1m01s")
    assert third.startswith("the table jobs has 1,000,000 dead rows to 1 live")
