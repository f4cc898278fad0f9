"""Does what somebody asks for, if they may, and writes it down in the same commit.

Theory of operation. An action yields steps. Each runs in a transaction that also adds
the action's row to the audit trail, or extends it: a change and its row are committed
together or not at all, and an action that is interrupted has a row that says how far
it came. An action that changes nothing has no row. One that is refused has: somebody
may be trying what they must not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from jobpool.core.clock import SystemClock
from jobpool.errors import Forbidden, StoreRefused, UsageError
from jobpool.operations.action import Action, Change, Done, Step
from jobpool.operations.arguments.replay import Replay
from jobpool.operations.erasure import Erase
from jobpool.operations.flows import (
    Approve,
    CancelFlow,
    PauseFlow,
    ResumeFlow,
    RetryFlow,
)
from jobpool.operations.jobs import Cancel, Release, Retry, Reveal, StopBulk
from jobpool.operations.principal import NAME_MAX, Principal, Role
from jobpool.operations.queue import (
    Enqueue,
    Pause,
    Prune,
    Reclaim,
    Restored,
    Resume,
)
from jobpool.operations.quotas import (
    RemoveTenant,
    ResetQuota,
    SetQuota,
    SetTenant,
)
from jobpool.operations.schedules import (
    Backfill,
    PauseSchedule,
    PutSchedule,
    RemoveSchedule,
    ResumeSchedule,
    RunSchedule,
)
from jobpool.operations.trail.id_ranges import IdRanges
from jobpool.store.protocol import Store
from jobpool.store.records.operating import AuditEntry, AuditFilter
from jobpool.store.statements.validation import clean_text

LEAST_ROLE: Mapping[type[Action], Role] = {
    Cancel: Role.OPERATOR,
    Retry: Role.OPERATOR,
    Release: Role.OPERATOR,
    Replay: Role.OPERATOR,
    Reveal: Role.OPERATOR,
    StopBulk: Role.OPERATOR,
    Enqueue: Role.OPERATOR,
    Pause: Role.OPERATOR,
    Resume: Role.OPERATOR,
    PutSchedule: Role.OPERATOR,
    PauseSchedule: Role.OPERATOR,
    ResumeSchedule: Role.OPERATOR,
    RunSchedule: Role.OPERATOR,
    Backfill: Role.OPERATOR,
    CancelFlow: Role.OPERATOR,
    PauseFlow: Role.OPERATOR,
    ResumeFlow: Role.OPERATOR,
    RetryFlow: Role.OPERATOR,
    Approve: Role.OPERATOR,
    SetQuota: Role.OPERATOR,
    ResetQuota: Role.OPERATOR,
    SetTenant: Role.OPERATOR,
    RemoveTenant: Role.OPERATOR,
    RemoveSchedule: Role.ADMIN,
    Prune: Role.ADMIN,
    Erase: Role.ADMIN,
    Reclaim: Role.ADMIN,
    Restored: Role.ADMIN,
}
"""Who may do it: every action has a line."""
NOTE_MAX = 1000
"""Most characters of a note."""
REFUSED = "refused"
"""The action of the row of an action that was refused."""
REFUSALS_MAX = 100
"""Rows for refusals of one name within an hour: nobody fills a disk by asking."""
_IDS = "ids"
"""The part of a target that says which jobs: bounded by itself, and extended."""
_NEW_IDS = "new_ids"
"""Likewise, of jobs that have replaced those."""
_PATHS_MAX = 50
"""Most paths of changed arguments that one row has."""
_LIST_MAX = 20
"""Most values of a list in a target, such as states."""
_HOUR_MS = 3_600_000


def operate(
    store: Store, principal: Principal, action: Action, done: Done | None = None
) -> Done:
    """Carry out an action, and keep a record of it.

    Args:
        store: where the jobs are.
        principal: who asks.
        action: what for.
        done: filled in as it goes, for a caller who may be interrupted.

    Returns:
        What was done.

    Raises:
        Forbidden: the principal's role may not; nothing was changed.
        UsageError: the action makes no sense, or its note is too long; nothing was
            changed.
        StoreError: *done* says what had been done before.
    """
    note = _note(action)
    action = msgspec.structs.replace(action, note=note)
    least = LEAST_ROLE[type(action)]
    if principal.role < least:
        _write_refusal(store, principal, action, note)
        raise Forbidden(
            f"{principal.who} ({principal.role.text}) may not {action.name}: that "
            f"takes the role {least.text}; nothing was changed"
        )
    done = Done() if done is None else done
    row = _Row(store, _entry(principal, action.name, note), action)
    for step in action.steps(store, principal, done):
        if done.is_unwanted:
            break
        row.take(step, done)
    return done


class _Row:
    """The audit row of one action: it grows with each step."""

    def __init__(self, store: Store, entry: AuditEntry, action: Action) -> None:
        self._store = store
        self._entry = entry
        self._target = _clean(action.target())
        self._begin()

    def _begin(self) -> None:
        self._id: int | None = None
        self._ids = {_IDS: IdRanges(), _NEW_IDS: IdRanges()}
        self._changed: dict[str, None] = {}
        self._jobs = 0

    def take(self, step: Step, done: Done) -> None:
        """Make one step and write it down, together or not at all."""
        with self._store.transaction():
            change = step()
            audit_id = self._write(change) if change.is_made else None
        if change.is_made:
            self._id = audit_id
            done.jobs += change.jobs
            done.is_made = True
            self._store.wake()

    def _write(self, change: Change) -> int:
        """Extend the row; a role that may only add rows gets one for each step.

        Such as the producers' of a PostgreSQL store: it must not rewrite others' rows.
        """
        try:
            return self._extend(change)
        except StoreRefused:
            if self._id is None:
                raise
            self._begin()
            return self._extend(change)

    def _extend(self, change: Change) -> int:
        self._ids[_IDS].add(change.ids)
        self._ids[_NEW_IDS].add(change.new_ids)
        self._changed.update(dict.fromkeys(change.changed))
        self._jobs += change.jobs
        ids = {name: text for name, one in self._ids.items() if (text := str(one))}
        entry = msgspec.structs.replace(
            self._entry,
            target=_as_text({**self._target, **ids}),
            jobs=self._jobs,
            changed=self._paths(),
        )
        return self._store.audit(entry, self._id)

    def _paths(self) -> str | None:
        """Return which arguments were changed; None: that is not what was done."""
        paths = list(self._changed)
        cut = ["…"] if len(paths) > _PATHS_MAX else []
        return ", ".join(paths[:_PATHS_MAX] + cut) or None


def _note(action: Action) -> str | None:
    """Return an action's note, checked.

    Raises:
        UsageError: it is no text, or too long; nothing was changed.
    """
    if not isinstance(action.note, str | None):
        raise UsageError(
            f"note: expected text, got {type(action.note).__name__}; nothing was "
            "changed"
        )
    note = (action.note or "").strip()
    if len(note) > NOTE_MAX:
        raise UsageError(
            f"note: expected at most {NOTE_MAX:,} characters, got {len(note):,}; "
            "nothing was changed"
        )
    return note or None


def _entry(principal: Principal, action: str, note: str | None) -> AuditEntry:
    return AuditEntry(
        who=_short(principal.who),
        role=principal.role.text,
        origin=_short(principal.origin),
        action=action,
        target="{}",
        note=note,
    )


def _write_refusal(
    store: Store, principal: Principal, action: Action, note: str | None
) -> None:
    entry = _entry(principal, REFUSED, note)
    now_ms = SystemClock().utc_ms()  # near enough to the store's
    recent = store.audits(
        AuditFilter(action=REFUSED, who=entry.who, since_ms=now_ms - _HOUR_MS),
        REFUSALS_MAX,
    )
    if sum(row.who == entry.who for row in recent) < REFUSALS_MAX:
        target = _as_text({"action": action.name, **_clean(action.target())})
        store.audit(msgspec.structs.replace(entry, target=target))


def _clean(target: Mapping[str, Any]) -> dict[str, Any]:
    """Return a target whose texts every database can hold, and not too long."""
    return {
        name: value if name == _IDS else _short(value) for name, value in target.items()
    }


def _short(value: Any) -> Any:
    if isinstance(value, str):
        return (clean_text(value) or "")[:NAME_MAX]
    if isinstance(value, (list, tuple)):
        return [_short(one) for one in value[:_LIST_MAX]]
    return value


def _as_text(target: Mapping[str, Any]) -> str:
    return msgspec.json.encode(target).decode()
