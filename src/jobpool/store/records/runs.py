"""Records of supervisors: their runs, what they publish, the store they find."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import IntEnum

import msgspec

from jobpool.core.application.redaction import without_redaction
from jobpool.core.formats import FORMAT
from jobpool.core.rules.quotas.definition import Limits, Need

IN_ONE_PROCESS = " (dev)"
"""The end of the version of a run that isolates nothing."""


class Renewal(IntEnum):
    """What became of a run's leases when it asked to extend them."""

    ENDED = 0
    """The run has ended: nothing was extended, and it holds no lease any more."""
    HELD = 1
    """They had not run out, and were extended."""
    LAPSED = 2
    """They had run out, and others may have taken some; they were extended only if
    that was asked for."""
    OUTDATED = 3
    """They were extended, but the run's format is below the store's least: it gets no
    more leases, and should end what it has."""


class CapacityFact(msgspec.Struct, frozen=True, kw_only=True):
    """What a store was seen to have room for."""

    name: str
    seen: str
    concern: str | None = None
    """What was expected instead, and what to do; None: it is fine."""
    figures: dict[str, float] = {}
    """What was measured, by name with its unit."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One life of one supervisor, from its start to its end."""

    id: str
    """A fresh UUID for every start."""
    host: str
    boot_id: str
    pid: int
    pid_namespace: int
    version: str
    pools: Mapping[str, str] = {}
    """Pool names and sizes as written: ``{"cpu": "2..8"}``."""
    started_at_ms: int = 0
    heartbeat_at_ms: int = 0
    lease_until_ms: int = 0
    ended_at_ms: int | None = None
    format: int = FORMAT
    """The highest format that its code can honour (`core.formats`)."""
    application: str | None = None
    """What it runs, as ``--app`` names it."""
    app_version: str | None = None
    """The version of that: as configured, else a hash of what was imported."""
    limits: Limits = Limits()
    """The quotas that its application and its configuration define."""
    is_leaving: bool = False
    """It drains or stops, and leases nothing more."""

    @property
    def is_isolated(self) -> bool:
        """Whether its jobs have processes of their own: not those of `jobpool dev`."""
        return not self.version.endswith(IN_ONE_PROCESS)

    @property
    def label(self) -> str:
        """What it is and where, for messages: ``jobpool 0.3.0 on host a, pid 17``."""
        return label_of(self.version, self.host, self.pid)


def label_of(version: str, host: str, pid: int) -> str:
    """Return what a run is and where, for messages."""
    return f"jobpool {version} on host {host}, pid {pid}"


class Formats(msgspec.Struct, frozen=True, kw_only=True):
    """Which features of newer releases a store may hold (`core.formats`)."""

    least: int
    """Runs of an older format get no leases."""
    wanted: int
    """The highest that has been asked for: above `least` while older runs are open."""
    held_back_by: tuple[Run, ...] = ()
    """Those runs."""


class KindRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A kind as a supervisor has published it."""

    kind: str
    pool: str
    schema: bytes
    """JSON Schema of its arguments object."""
    timeout_s: float
    memory_bytes: int
    max_attempts: int
    max_crashes: int
    updated_at_ms: int = 0
    at_most_once: tuple[str, ...] = ()
    """Its names (its own, its aliases) if its jobs run at most once."""
    needs: tuple[Need, ...] = ()
    """The quotas of which each of its jobs takes a permit when it starts."""

    @property
    def schema_digest(self) -> str:
        """Equal if two supervisors know the kind with the same arguments."""
        arguments = without_redaction(self.schema)
        return hashlib.blake2b(arguments, digest_size=16).hexdigest()


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """How far a store has come."""

    now_ms: int
    """Its clock."""
    newest_ms: int | None
    """The newest time of the past that it holds; None: there is none."""
    tokens: int
    """Where its source of tokens stands: a count, without a token's random bits."""
    last_id: int
    """Where its source of job ids stands; a sequence may be ahead of what was given."""
    newest_id: int
    """The id of its newest job, as far as it knows."""
    restores: int
    """How often it was restored from a backup."""
