"""Refs: ids of jobs and flows that cannot be guessed, for URLs and other systems.

A ref is an id with a keyed digest of it (`BLAKE2b`, 128 bits). The key is random,
one for each store, and stays with it when it is moved or restored. So a ref needs no
column and no index, and is checked without a query. It does not hide the id. A flow's
begins with ``flow-``, and its digest is none that a job has.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b32encode

FLOW = "flow-"
"""The beginning of a flow's ref."""
_DIGEST_BYTES = 16


def ref_of(job_id: int, key: bytes) -> str:
    """Return a job's ref, such as ``142-mfrggzdfmztwq2lknnwg23tpoa``.

    Args:
        job_id: the job.
        key: the store's, of 1 to 64 bytes.
    """
    return f"{job_id}-{_digest(str(job_id), key)}"


def flow_ref_of(flow_id: int, key: bytes) -> str:
    """Return a flow's ref, such as ``flow-7-mfrggzdfmztwq2lknnwg23tpoa``."""
    head = f"{FLOW}{flow_id}"
    return f"{head}-{_digest(head, key)}"


def id_of(ref: str, key: bytes) -> int | None:
    """Return the job of a ref; None: it is not a ref of this store."""
    job_id = _claimed(ref)
    if job_id is None or not _is_same(ref, ref_of(job_id, key)):
        return None
    return job_id


def flow_id_of(ref: str, key: bytes) -> int | None:
    """Return the flow of a ref; None: it is not a ref of this store."""
    flow_id = _claimed(ref.removeprefix(FLOW))
    if flow_id is None or not _is_same(ref, flow_ref_of(flow_id, key)):
        return None
    return flow_id


def _digest(text: str, key: bytes) -> str:
    digest = hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES, key=key)
    return b32encode(digest.digest()).decode().rstrip("=").lower()


def _claimed(ref: str) -> int | None:
    """Return the id that a ref says it is of."""
    head, _, _ = ref.partition("-")
    if not (head.isascii() and head.isdigit() and len(head) < _ID_DIGITS_MAX):
        return None
    return int(head)


def _is_same(ref: str, expected: str) -> bool:
    return hmac.compare_digest(expected.encode(), ref.encode("utf-8", "replace"))


_ID_DIGITS_MAX = 20
