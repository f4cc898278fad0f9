"""Records of what operators mean, do and have done."""

from __future__ import annotations

import msgspec

from jobpool.core.jobs.job import JobState, NewJob
from jobpool.core.jobs.outcome import Outcome


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """A finished job, and the one that is to replace it."""

    job_id: int
    new: NewJob
    """With the old one's key, tenant and limits."""


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs an operator means; every condition that is given must hold."""

    ids: tuple[int, ...] | None = None
    states: tuple[JobState, ...] | None = None
    kind: str | None = None
    pool: str | None = None
    tenant: str | None = None
    key: str | None = None
    """One job of each kind can have it."""
    flow: int | None = None
    """Whose members are meant, replaced ones as well."""
    since_ms: int | None = None
    """Finished (or created, if unfinished) at this moment or later."""
    text: str | None = None
    """Contained in its key, tenant or reason, as it is written."""
    outcome: Outcome | None = None
    """How its last attempt that has ended did so."""
    error_class: str | None = None
    """What that has raised: with its module, or by the last part of its name."""


class PauseRow(msgspec.Struct, frozen=True, kw_only=True):
    """What is not leased, since when, and why."""

    what: str
    """``pool``, ``kind``, ``tenant``, ``quota``, or ``store``, without a name."""
    name: str
    since_ms: int | None = None
    """None: as long as an older jobpool has paused it, which kept no more."""
    until_ms: int | None = None
    """None: until it is resumed."""
    who: str | None = None
    note: str | None = None


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator does to a store; see `Store.audit`."""

    who: str
    role: str
    origin: str
    """From where: a program on a host, or a request."""
    action: str
    target: str
    """JSON object: names, filters, ids; never a payload."""
    jobs: int = 0
    """How many were changed."""
    changed: str | None = None
    """Paths of the arguments that were changed; never their values."""
    note: str | None = None
    """Why, in the operator's words."""


class AuditRow(AuditEntry, frozen=True, kw_only=True):
    """An entry as stored."""

    id: int
    at_ms: int
    """The store's clock when it began."""


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries are meant; every condition that is given must hold."""

    since_ms: int | None = None
    who: str | None = None
    """Contained in the name."""
    action: str | None = None


class Belongings(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of what some jobs have beside their rows."""

    attempts: int
    """Rows of attempts that did not succeed."""
    outputs: int
    """Kept tails of what an attempt has written."""
