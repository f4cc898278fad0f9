"""What a program's exit status means for its job."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from jobpool.errors import ConfigError

STATUS_MAX = 255
OTHER = "other"
_RANGE = re.compile(r"(\d{1,3})(?:-(\d{1,3}))?", re.ASCII)


class Verdict(StrEnum):
    """What becomes of the attempt."""

    OK = "ok"
    """It succeeded."""
    RETRY = "retry"
    """It failed, and runs again as the kind's rules for retries say."""
    DEAD = "dead"
    """No other attempt can succeed: the job is dead."""


class ExitCodes:
    """The meaning of each exit status. 0 is ``"ok"``, any other ``"retry"``.

    Args:
        given: what differs from that: by status, by range (``"64-78"``), or under
            ``"other"`` for all that are not named, 0 apart.

    Raises:
        ConfigError: a status or a meaning is unknown, or a status is given twice.
    """

    def __init__(self, given: Mapping[Any, str]) -> None:
        if not isinstance(given, Mapping):
            raise ConfigError(
                f"exit_codes: expected {{status: meaning}}, got {type(given).__name__}"
            )
        self._named: dict[int, Verdict] = {}
        self._other = Verdict.RETRY
        for key, meaning in given.items():
            verdict = _verdict(key, meaning)
            if key == OTHER:
                self._other = verdict
                continue
            for status in _statuses(key):
                if status in self._named:
                    raise ConfigError(f"exit_codes: {status} is given twice")
                self._named[status] = verdict

    def verdict(self, status: int) -> Verdict:
        """Return what an exit status means; a signal's (below 0) is a failure."""
        if status < 0:
            return Verdict.RETRY
        if status in self._named:
            return self._named[status]
        return Verdict.OK if status == 0 else self._other


def _verdict(key: object, meaning: object) -> Verdict:
    if not isinstance(meaning, str) or meaning not in list(Verdict):
        raise ConfigError(
            f"exit_codes: {key!r:.20} means {meaning!r:.40}; expected one of "
            f"{', '.join(Verdict)}"
        )
    return Verdict(meaning)


def _statuses(key: object) -> range:
    match = None
    if not isinstance(key, bool) and isinstance(key, (int, str)):
        match = _RANGE.fullmatch(str(key))
    if match is not None:
        first, last = int(match[1]), int(match[2] or match[1])
        if first <= last <= STATUS_MAX:
            return range(first, last + 1)
    raise ConfigError(
        f"exit_codes: {key!r:.20} is no exit status; expected 0 to {STATUS_MAX}, a "
        f'range such as "64-78", or "{OTHER}"'
    )
