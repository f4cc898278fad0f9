"""What of a store's URL is shown to people."""

import psycopg.pq
import pytest

from jobpool.core.config.store_url import absolute_store, files_of, without_password
from jobpool.errors import ConfigError

SECRET = {
    # Passwords, or where they may be read or sent.
    "password",
    "sslpassword",
    "scram_client_key",
    "scram_server_key",
    "oauth_client_secret",
}
HARMLESS = (
    "application_name",
    "channel_binding",
    "client_encoding",
    "connect_timeout",
    "dbname",
    "gssencmode",
    "host",
    "hostaddr",
    "keepalives",
    "keepalives_count",
    "keepalives_idle",
    "keepalives_interval",
    "load_balance_hosts",
    "options",
    "passfile",
    "port",
    "require_auth",
    "service",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslnegotiation",
    "sslrootcert",
    "target_session_attrs",
    "tcp_user_timeout",
    "user",
)


def libpq_options():
    return {
        one.keyword.decode()
        for one in psycopg.pq.Conninfo.get_defaults()
        if one.keyword
    }


@pytest.mark.parametrize("name", [*HARMLESS, "schema"])
def test_options_that_are_no_secret_are_shown(name):
    """An operator sees which server is meant, and how it is reached."""
    url = f"postgresql://u@h/d?{name}=x&password=y"
    assert without_password(url) == f"postgresql://u@h/d?{name}=x&password=***"


@pytest.mark.parametrize("name", sorted(SECRET | libpq_options() - {*HARMLESS}))
def test_every_other_option_is_a_secret(name):
    """Also unknown ones."""
    shown = without_password(f"postgresql://u@h/d?{name}=x&nobody=y&alone")
    assert shown == f"postgresql://u@h/d?{name}=***&nobody=***&alone"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:p@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u:p@q@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u:p?x@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u@h/d", "postgresql://u@h/d"),
        ("postgresql:///d?host=/a@b", "postgresql:///d?host=/a@b"),
        ("postgresql://h/d?p%61ssword=x", "postgresql://h/d?p%61ssword=***"),
        ("postgresql:u:p@h/d", "postgresql:u:***@h/d"),
        ("sqlite:////a@b?password=x", "sqlite:////a@b?password=x"),
        ("jobs.db", "jobs.db"),
    ],
)
def test_a_password_is_never_shown(url, shown):
    """Wherever it is, and whatever it contains; a file's name is whole."""
    assert without_password(url) == shown


@pytest.mark.parametrize(
    ("url", "absolute"),
    [
        ("a.db", "sqlite:////b/a.db"),
        ("sqlite:///a.db", "sqlite:////b/a.db"),
        ("sqlite:////c/./x/../a.db", "sqlite:////c/a.db"),
        ("postgresql://h/d", "postgresql://h/d"),
        ("sqlite:///C:/data/a.db", "sqlite:///C:/data/a.db"),
        (r"sqlite:///C:\data\a.db", r"sqlite:///C:\data\a.db"),
    ],
)
def test_a_relative_file_is_relative_to_a_directory(url, absolute):
    """A bare path means SQLite too."""
    assert absolute_store(url, "/b") == absolute


@pytest.mark.parametrize(
    "url", ["sqlite:", "sqlite:///", "sqlite:a.db", "sqlite:///a/"]
)
def test_a_url_without_a_file_is_refused(url):
    """The error says what was expected."""
    with pytest.raises(ConfigError, match=r"names no file; expected sqlite:///"):
        absolute_store(url, "/b")


def test_the_files_of_a_store_are_listed():
    """SQLite has further files beside the first; a server's are its own."""
    names = ("/b/a.db", "/b/a.db-wal", "/b/a.db-shm", "/b/a.db-journal")
    assert files_of("sqlite:////b/a.db") == names
    assert files_of("postgresql://h/d") == ()


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("sqlite:///x\udcff.db", "/srv"),
        ("x\udcff", "/srv"),
        ("sqlite:///jobpool.db", "/srv/\udce4"),
        ("postgresql://me:secret@h\udcff/db", "/srv"),
    ],
)
def test_a_url_that_is_not_utf8_is_refused(url: str, base: str) -> None:
    """A supervisor could not pass it to a child: every command refuses it at once."""
    with pytest.raises(ConfigError, match=r"\\udc.*not UTF-8.*rename") as refused:
        absolute_store(url, base)
    assert "secret" not in str(refused.value)
