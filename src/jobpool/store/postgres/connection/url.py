"""Parses a PostgreSQL URL: libpq's part, jobpool's part, and what may be shown."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

from jobpool.core.config.store_url import refuse_other_bytes, without_password
from jobpool.errors import ConfigError

DEFAULT_SCHEMA = "jobpool"
_SCHEMA = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,62}")
_EXAMPLE = "such as postgresql://user@db.example.com/shop?schema=jobpool"


_UNKNOWN_OPTION = re.compile(r'query parameter: "(\w+)"')


class Address(NamedTuple):
    """Where a queue is."""

    conninfo: str
    """For libpq, with the password if the URL has one."""
    schema: str
    shown: str
    """The URL without a password."""


def read_address(url: str) -> Address:
    """Parse a URL.

    Args:
        url: ``postgresql://user:password@host:port/database?schema=name&option=value``;
            every option but ``schema`` is libpq's.

    Raises:
        ConfigError: it is not such a URL; nothing was opened.
    """
    refuse_other_bytes("store", url)
    shown = without_password(url)
    if "\0" in url:
        raise ConfigError(f"store: {shown!r} holds a NUL; write the URL without it")
    try:
        parts = urlsplit(url)
        if "," not in parts.netloc:
            parts.port  # noqa: B018 - raises ValueError if it is not a number
        options = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=False)
    except ValueError as error:
        # The parser's message may quote the password.
        raise ConfigError(
            f"store: {shown!r} is not a URL (is the port a number, and is an IPv6 "
            f"address in brackets?); expected one {_EXAMPLE}"
        ) from error
    schemas = [value for name, value in options if name == "schema"]
    schema = schemas[-1] if schemas else DEFAULT_SCHEMA
    if not _SCHEMA.fullmatch(schema):
        raise ConfigError(
            f"store: schema={schema[:80]!r} cannot be used; expected a lower-case name "
            "of letters, digits and _, at most 63, that does not begin with pg_"
        )
    kept = [item for item in options if item[0] != "schema"]
    rest = urlencode(kept, quote_via=quote)  # libpq does not take a + for a blank
    conninfo = urlunsplit(("postgresql", parts.netloc, parts.path, rest, ""))
    try:
        conninfo_to_dict(conninfo)
    except psycopg.Error as error:
        known = _UNKNOWN_OPTION.search(str(error))
        why = f"it knows no option {known[1]}" if known else "is a % written as %25?"
        raise ConfigError(
            f"store: {shown!r} is not understood by libpq ({why}); expected a URL "
            f"{_EXAMPLE}"
        ) from error
    return Address(conninfo, schema, shown)
