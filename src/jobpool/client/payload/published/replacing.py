"""What a replay gives to each new job: its arguments, checked, its kind and its pool.

Error messages name arguments and what is expected; they never show values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from jobpool.client.payload.published.checker import Checker, encoded
from jobpool.client.payload.strict_json import encode
from jobpool.core.config.layers import nearest
from jobpool.core.jobs.job import Job
from jobpool.errors import ArgumentsRejected, UnknownKind, UsageError
from jobpool.operations.arguments.changes import changed_paths
from jobpool.operations.arguments.replay import Replacement, successor
from jobpool.store.records.runs import KindRecord

Change = Callable[[int, Mapping[str, Any]], str]
"""Returns a job's new arguments as JSON, by its id and the old ones."""


class Unchanged(UsageError):
    """The new job would be the same as the old one."""


class Replacing:
    """Makes the new job of an old one, for `Replay.replace`.

    Args:
        kinds: what supervisors have published.
        change: what becomes of the arguments.
        what: where they come from, for error messages.
        kind_to: the kind of the new jobs; None: as it was.
        payload_max_bytes: most bytes of arguments.

    Raises:
        UnknownKind: no supervisor knows *kind_to*.
    """

    def __init__(
        self,
        kinds: Mapping[str, KindRecord],
        change: Change,
        what: str,
        *,
        kind_to: str | None,
        payload_max_bytes: int,
    ) -> None:
        self._kinds = kinds
        self._change = change
        self._what = what
        self._kind_to = kind_to
        self._payload_max_bytes = payload_max_bytes
        self._checkers: dict[str, Checker] = {}
        if kind_to is not None:
            self._known(kind_to)

    def __call__(self, job: Job, payload: bytes) -> Replacement:
        """Return what is to replace a job.

        Raises:
            UnknownKind: no supervisor knows its kind.
            ArgumentsRejected: the arguments do not fit, old or new.
            Unchanged: nothing would be different.
        """
        kind = self._kind_to or job.kind
        known = self._known(kind)
        if kind not in self._checkers:
            self._checkers[kind] = Checker(known.schema)
        before = arguments_of(job, payload)
        given = self._change(job.id, before)
        after = self._checkers[kind].by_name(given, self._what)
        new = encoded(after, self._payload_max_bytes, self._what)
        changed = changed_paths(payload, new, known.schema)
        if not changed and kind == job.kind:
            raise Unchanged(
                "its arguments would be the same; to run it again as it is, use "
                "jobpool retry or release"
            )
        made = successor(job, kind=kind, pool=known.pool, payload=new)
        return Replacement(made, changed)

    def _known(self, kind: str) -> KindRecord:
        if kind in self._kinds:
            return self._kinds[kind]
        raise UnknownKind(
            f"no supervisor of this store knows the kind {kind[:60]!r} "
            f"({nearest(kind, self._kinds)}); start one that has it, or name the kind "
            "that the new job is to have with --kind-to"
        )


def arguments_of(job: Job, payload: bytes) -> dict[str, Any]:
    """Return a job's arguments by name.

    Raises:
        ArgumentsRejected: they are encoded, or something else is stored.
    """
    if job.codec is not None:
        raise ArgumentsRejected(
            f"its arguments are encoded by the codec {job.codec!r}, which only its "
            "application has. Replay it from there, in Python: "
            f"jobs.replay({job.id}, handler.call(...))"
        )
    try:
        found = msgspec.json.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        found = None
    if isinstance(found, dict):
        return found
    raise ArgumentsRejected(
        "its stored arguments are no JSON object: another program has written them. "
        f"Replay it in Python: jobs.replay({job.id}, handler.call(...))"
    )


def replaced_by(text: str) -> Change:
    """Return a change that gives each job the same arguments."""
    return lambda _job_id, _before: text


def updated_with(text: str, what: str) -> Change:
    """Return a change that replaces some arguments and keeps the others.

    Raises:
        ArgumentsRejected: it is no JSON object.
    """
    try:
        some = msgspec.json.decode(text.encode(), type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as exc:
        raise ArgumentsRejected(
            f"{what}: expected a JSON object with the arguments to change, such as "
            f'\'{{"path": "cat.jpg"}}\': {exc}'
        ) from exc
    return lambda _job_id, before: encode({**before, **some}).decode()


def each_its_own(texts: Mapping[int, str]) -> Change:
    """Return a change that gives each job the arguments that it has there."""
    return lambda job_id, _before: texts[job_id]


def kept(_job_id: int, before: Mapping[str, Any]) -> str:
    """Keep the arguments as they are, for jobs of another kind."""
    return encode(dict(before)).decode()
