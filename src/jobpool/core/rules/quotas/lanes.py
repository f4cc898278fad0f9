"""Which lane and which buckets a job belongs to: hashes of what it counts by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b

import msgspec

from jobpool.core.jobs.job import NewJob
from jobpool.core.rules.quotas.definition import Need, Quota
from jobpool.errors import UsageError

VALUE_MAX_CHARS = 200
"""Longer values are cut, with a hash that keeps them apart."""
_HASH_CHARS = 16
_ID_MAX = 2**63 - 1


def lane_id(
    pool: str, kind: str, priority: int, tenant: str | None, values: Mapping[str, str]
) -> int:
    """Return the lane of a job's first attempt, from 1 to 2**63 - 1; see `again`.

    It is the same in every release and on every host, since clients stamp it.

    Args:
        pool: the job's pool.
        kind: its kind.
        priority: its priority.
        tenant: its tenant.
        values: what it counts by (`values_of`), as stored in ``quota_values``.
    """
    return _id([pool, kind, priority, tenant, dict(sorted(values.items()))])


def placed(job: NewJob, tenant: str | None, priority: int) -> NewJob:
    """Return a job with this tenant and priority, and the lane that follows."""
    if (tenant, priority) == (job.tenant, job.priority):
        return job
    lane = job.lane
    if lane is not None:
        values = job.quota_values or {}
        lane = lane_id(job.pool, job.kind, priority, tenant, values)
    return msgspec.structs.replace(job, tenant=tenant, priority=priority, lane=lane)


def again(lane: int) -> int:
    """Return the lane of those of a lane's jobs that are retries, under a budget."""
    return -abs(lane)


def is_again(lane: int) -> bool:
    """Return whether a lane's jobs are retries; see `again`."""
    return lane < 0


@lru_cache(maxsize=4096)
def bucket_id(quota: str, value: str) -> int:
    """Return the bucket of one value of a quota, from 1 to 2**63 - 1."""
    return _id([quota, value])


def counted_value(value: object, what: str = "the value") -> str:
    """Return as text what a quota counts by.

    Args:
        value: of an argument; None is ``""``, as is an argument that is not there.
        what: which argument, for the error message.

    Raises:
        UsageError: it is no text, whole number or truth value.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, (str, int)):
        raise UsageError(
            f"{what} is of type {type(value).__name__}, by which no quota can count; "
            "expected text, a whole number, true, false or None. Nothing was enqueued"
        )
    # Neither surrogates nor NUL can be stored everywhere.
    text = str(value).encode("utf-8", "replace").decode().replace("\0", "\ufffd")
    if len(text) <= VALUE_MAX_CHARS:
        return text
    digest = blake2b(
        str(value).encode("utf-8", "surrogatepass"), digest_size=_HASH_CHARS // 2
    ).hexdigest()
    return f"{text[: VALUE_MAX_CHARS - _HASH_CHARS - 1]}~{digest}"


def values_of(
    needs: Iterable[Need], quotas: Mapping[str, Quota], arguments: Mapping[str, object]
) -> dict[str, str]:
    """Return what a job counts by, for ``quota_values``: argument path to text.

    Args:
        needs: those of its kind; quotas that are not known count by nothing.
        quotas: by name.
        arguments: as they are stored, defaults included: of JSON's types.

    Raises:
        UsageError: a value is of a type that cannot be counted by.
    """
    found: dict[str, str] = {}
    for need in needs:
        quota = quotas.get(need.quota)
        if quota is not None and (path := quota.path) is not None:
            found[path] = value_at(path, arguments)
    return found


def value_at(path: str, arguments: Mapping[str, object]) -> str:
    """Return the text of the argument at a path; ``""`` where there is none.

    Raises:
        UsageError: it is of a type that cannot be counted by.
    """
    at: object = arguments
    for name in path.split("."):
        at = at.get(name) if isinstance(at, Mapping) else None
    return counted_value(at, f"argument {path!r}")


def _id(parts: list[object]) -> int:
    digest = blake2b(msgspec.json.encode(parts), digest_size=8).digest()
    return (int.from_bytes(digest, "big") & _ID_MAX) or 1
