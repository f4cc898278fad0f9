"""The store's URL: one rule for clients, supervisors and the command line."""

from __future__ import annotations

import posixpath
import re
from urllib.parse import unquote

from jobpool.core.config.settings import DEFAULT_STORE, Settings
from jobpool.core.config.sources import Sources, Value, top_value
from jobpool.errors import ConfigError

_SQLITE = "sqlite:///"
_DRIVE = re.compile(r"[A-Za-z]:[/\\]")
"""How an absolute path of Windows begins."""
_HARMLESS = frozenset(
    {
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
        "schema",
        "service",
        "sslcert",
        "sslkey",
        "sslmode",
        "sslnegotiation",
        "sslrootcert",
        "target_session_attrs",
        "tcp_user_timeout",
        "user",
    }
)
"""Options of a URL that are not secret."""


def store_of(sources: Sources) -> Value:
    """Return the store's URL with an absolute path, and its origin."""
    found = top_value(sources, "store", DEFAULT_STORE)
    url = absolute_store(found.value, base_directory(sources))
    return Value(url, without_password(url), found.origin)


def base_directory(sources: Sources) -> str:
    """Return the base of relative paths: the file's directory, else the launch one."""
    return sources.file.directory if sources.file else sources.directory


def refuse_other_store(settings: Settings, named: str | None) -> None:
    """Refuse an application that names another store than the supervisor's.

    Args:
        settings: the supervisor's.
        named: the URL as the application wrote it; None: it names none.

    Raises:
        ConfigError: its jobs would go to a store that this supervisor does not use.
    """
    if named is None or absolute_store(named, settings.store_base) == settings.store:
        return
    raise ConfigError(
        f"the application names the store {without_password(named)}, but this "
        f"supervisor uses {without_password(settings.store)}; name only one, best in "
        "the configuration: JobPool() without an argument uses it"
    )


def absolute_store(url: str, base: str) -> str:
    """Resolve a relative SQLite path against *base*; a bare path means SQLite too.

    Raises:
        ConfigError: the URL names no file, or is not UTF-8.
    """
    if ":" not in url:
        url = f"{_SQLITE}{url}"
    if not url.startswith("sqlite:"):
        refuse_other_bytes("store", url)
        return url
    path = url.removeprefix(_SQLITE)
    if not url.startswith(_SQLITE) or not path or path.endswith("/"):
        raise ConfigError(
            f"store {url[:80]!r} names no file; expected sqlite:///relative.db or "
            "sqlite:////absolute/path.db"
        )
    if not _DRIVE.match(path):
        path = posixpath.normpath(posixpath.join(base, path))
    refuse_other_bytes("store", path)
    return f"{_SQLITE}{path}"


def refuse_other_bytes(what: str, text: str) -> None:
    """Refuse a command-line argument or a path that is not UTF-8.

    Args:
        what: its name, for the message.
        text: the value; Python keeps bytes that it cannot decode as lone surrogates.

    Raises:
        ConfigError: it is not UTF-8, and could not be sent to a child.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(
            f"{what} {without_password(text)[:200]!r} has bytes that are not UTF-8; "
            "write it in UTF-8, or rename the file or directory (a symbolic link with "
            "such a name works too)"
        ) from None


def files_of(url: str) -> tuple[str, ...]:
    """Return the files of a SQLite store; none for a server."""
    if not url.startswith(_SQLITE):
        return ()
    path = url.removeprefix(_SQLITE)
    return tuple(f"{path}{ending}" for ending in ("", "-wal", "-shm", "-journal"))


def without_password(url: str) -> str:
    """Return a URL for logs: without its password and the values of secret options."""
    scheme, colon, rest = url.partition(":")
    if scheme == "sqlite" or not colon:
        return url
    slashes = "//" if rest.startswith("//") else ""
    rest = rest.removeprefix("//")
    # A password may hold any character, even unescaped: it ends at the last @.
    before, at, after = rest.rpartition("@")
    user, has_password, _ = before.partition(":")
    if at and "?" not in user:
        rest = f"{user}{has_password and ':***'}@{after}"
    place, question, options = rest.partition("?")
    shown = "&".join(map(_without_secret, options.split("&")))
    return f"{scheme}:{slashes}{place}{question}{shown}"


def _without_secret(option: str) -> str:
    name, equals, _ = option.partition("=")
    return option if unquote(name) in _HARMLESS else f"{name}{equals and '=***'}"
