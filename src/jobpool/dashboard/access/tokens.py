"""Access by tokens, which a file has: for people in browsers, and for programs."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from starlette.requests import HTTPConnection

from jobpool.core.clock import Clock
from jobpool.dashboard.access.access import Entrance
from jobpool.dashboard.access.sessions import Sessions
from jobpool.errors import ConfigError
from jobpool.operations.principal import NAME_MAX, Principal, Role

TOKEN_MIN = 32
"""Fewest characters of a token: it cannot be guessed, however often that is tried."""
_PARTS = 3
_BEARER = "bearer "
_EXAMPLE = "ada operator TOKEN"


def read_tokens(path: str) -> dict[bytes, tuple[str, Role]]:
    """Read a file with a line for each token: who, their role, the token.

    Args:
        path: of the file; empty lines and those that begin with # say nothing.

    Returns:
        Who has which role, by the token's digest.

    Raises:
        ConfigError: it cannot be read, others may read it, or a line is wrong.
    """
    try:
        with Path(path).open(encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(
            f"--token-file: {path} cannot be read: {exc}; expected lines such as "
            f"{_EXAMPLE!r}; nothing was started"
        ) from exc
    if stat.S_IMODE(mode) & 0o077:
        raise ConfigError(
            f"--token-file: others than its owner may read {path} (its mode is "
            f"{stat.S_IMODE(mode):o}); expected 600: chmod 600 {path}; nothing was "
            "started"
        )
    found: dict[bytes, tuple[str, Role]] = {}
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            digest, whose = _read(line.split(), f"--token-file: {path}, line {number}")
            if digest in found:
                raise ConfigError(
                    f"--token-file: {path}, line {number}: the token of "
                    f"{found[digest][0]} once more; each needs their own; nothing was "
                    "started"
                )
            found[digest] = whose
    if not found:
        raise ConfigError(
            f"--token-file: {path} has no token; expected lines such as {_EXAMPLE!r}; "
            "nothing was started"
        )
    return found


def _read(parts: list[str], where: str) -> tuple[bytes, tuple[str, Role]]:
    """Read one line; its token is in no message."""
    if len(parts) != _PARTS:
        raise ConfigError(
            f"{where}: {len(parts)} words; expected three: who, role, token, such as "
            f"{_EXAMPLE!r}; nothing was started"
        )
    who, role, token = parts
    if len(token) < TOKEN_MIN:
        raise ConfigError(
            f"{where}: the token has {len(token)} characters; expected at least "
            f"{TOKEN_MIN}, such as `openssl rand -base64 33` makes; nothing was started"
        )
    return _digest(token), (who[:NAME_MAX], role_of(role, where))


def role_of(text: str, where: str) -> Role:
    """Return the role of a name.

    Raises:
        ConfigError: it is none.
    """
    names = {role.text: role for role in Role}
    if text not in names:
        raise ConfigError(
            f"{where}: {text[:40]!r} is not a role; expected {', '.join(names)}; "
            "nothing was started"
        )
    return names[text]


class Tokens:
    """Knows who asks by their token: in a header, or exchanged for a cookie.

    Args:
        tokens: as `read_tokens` returns them.
        port: where the dashboard listens.
        clock: for the end of idle sessions.
    """

    entrance = Entrance.TOKEN

    def __init__(
        self,
        tokens: Mapping[bytes, tuple[str, Role]],
        *,
        port: int,
        clock: Clock | None = None,
    ) -> None:
        self._tokens = tokens
        self._sessions = Sessions(port, clock)
        self.cookie = self._sessions.cookie

    async def principal(self, request: HTTPConnection) -> Principal | None:
        """See `Access.principal`."""
        said = request.headers.get("authorization")
        if said is None:
            return self._sessions.principal(request)
        is_bearer = said[: len(_BEARER)].lower() == _BEARER
        return self._of(said[len(_BEARER) :].strip(), request) if is_bearer else None

    def enter(self, key: str, request: HTTPConnection) -> str | None:
        """See `Access.enter`."""
        principal = self._of(key.strip(), request)
        return None if principal is None else self._sessions.begin(principal, request)

    def leave(self, request: HTTPConnection) -> None:
        """See `Access.leave`."""
        self._sessions.end(request)

    def _of(self, token: str, request: HTTPConnection) -> Principal | None:
        found = self._tokens.get(_digest(token))
        if found is None:
            return None
        who, role = found
        return Principal(who=who, role=role, origin=origin_of(request))


def origin_of(request: HTTPConnection) -> str:
    """Return where a request comes from, for the audit trail."""
    host = "an unknown address" if request.client is None else request.client.host
    return f"the dashboard, from {host}"[:NAME_MAX]


def _digest(token: str) -> bytes:
    """Return what tokens are compared by: how long that takes says nothing of them."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
