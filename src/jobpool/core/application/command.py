"""A program as a handler, as the configuration declares it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

RESULT_BYTES = 64 * 2**10


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A command: what is run, and how its end is read; see `JobPool.command`."""

    kind: str
    argv: tuple[str, ...]
    pool: str
    stdin: str | None = None
    exit_codes: Mapping[str, str] = {}
    defaults: Mapping[str, str | int | float] = {}
    env: Mapping[str, str] = {}
    cwd: str | None = None
    result_bytes: int = RESULT_BYTES
