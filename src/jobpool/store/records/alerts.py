"""Records of incidents, and of what is told about them.

An alert is one message to one receiver. `MOVES` is its state machine; the tables repeat
it as constraints.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

import msgspec


class AlertState(StrEnum):
    """How far an alert has come."""

    WAITING = "waiting"
    """To be sent, at once or after a while."""
    SENDING = "sending"
    """Somebody sends it, and is taken to be gone after a while."""
    SENT = "sent"
    """Its receiver has said that it has it."""
    FAILED = "failed"
    """It was tried for too long, or is too old."""


class AlertEvent(StrEnum):
    """What happens to an alert."""

    CLAIM = "claim"
    """Somebody takes it, to send it."""
    TAKEN = "taken"
    """Its receiver has it."""
    REFUSED = "refused"
    """Its receiver does not have it, as far as is known."""
    GIVE_UP = "give up"
    """It is not tried any more."""


_S, _E = AlertState, AlertEvent
MOVES: Mapping[AlertState, Mapping[AlertEvent, AlertState | None]] = {
    _S.WAITING: {
        _E.CLAIM: _S.SENDING,
        _E.TAKEN: None,
        _E.REFUSED: None,
        _E.GIVE_UP: _S.FAILED,
    },
    _S.SENDING: {
        _E.CLAIM: _S.SENDING,  # whoever had it is gone
        _E.TAKEN: _S.SENT,
        _E.REFUSED: _S.WAITING,
        _E.GIVE_UP: _S.FAILED,
    },
    _S.SENT: dict.fromkeys(AlertEvent),
    _S.FAILED: dict.fromkeys(AlertEvent),
}
"""What follows; None: it cannot happen."""


class Ending(StrEnum):
    """What `Endings` counts."""

    SUCCEEDED = "succeeded"
    """Jobs."""
    DEAD = "dead"
    QUARANTINED = "quarantined"
    FAILED = "failed"
    """Attempts, whatever became of their jobs: failed, killed or crashed."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong now, and was not before."""

    rule: str
    subject: str
    """What it is about: the name of a pool, a kind, a schedule; "": the whole queue."""
    summary: str
    """A sentence."""


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with the queue, or was."""

    id: int
    rule: str
    subject: str
    summary: str
    opened_at_ms: int
    ended_at_ms: int | None = None


class NewAlert(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be told to everybody."""

    name: str
    """Says what: nobody is told two of the same name."""
    body: str
    """JSON object."""


class AlertRow(msgspec.Struct, frozen=True, kw_only=True):
    """An alert as stored."""

    id: int
    name: str
    receiver: str
    """``webhook``, ``command``."""
    incident: int | None
    """None: it is about none, such as a digest."""
    body: str
    state: AlertState
    tries: int
    """So often somebody has begun to send it."""
    made_at_ms: int
    next_at_ms: int | None
    """When it is tried; of one that is being sent: when others may take it over."""
    done_at_ms: int | None
    error: str | None
    """Why it is not sent yet."""


class Endings(NamedTuple):
    """How jobs have ended lately."""

    counts: Mapping[tuple[str, Ending], int]
    """By kind."""
    lost: Mapping[str, int]
    """Jobs of a kind that became dead or quarantined since the moment from which on
    successes count."""
    last_attempt: int
    """Marks the newest attempt that did not succeed."""


class Watch(NamedTuple):
    """Where those stand who watch the queue in turn."""

    turn: int
    """How many have looked so far."""
    at_ms: int
    """When the last one did; 0: nobody ever has."""
    notes: str
    """What it noted for the next."""
    now_ms: int
    """The store's clock."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """What one look at the queue has come to."""

    number: int
    """`Watch.turn` of before."""
    notes: str
    opened: tuple[Found, ...] = ()
    ended: tuple[int, ...] = ()
    """Ids of incidents."""
    receivers: tuple[str, ...] = ()
    """Who is told."""
    digest: NewAlert | None = None
    """What is told besides."""
