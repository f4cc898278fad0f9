"""Refs: job ids that cannot be guessed, for URLs and other systems.

A ref is a job's id with a keyed digest of it (`BLAKE2b`, 128 bits). The key is random,
one for each store, and stays with it when it is moved or restored. So a ref needs no
column and no index, and is checked without a query. It does not hide the id.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b32encode

_DIGEST_BYTES = 16


def ref_of(job_id: int, key: bytes) -> str:
    """Return a job's ref, such as ``142-mfrggzdfmztwq2lknnwg23tpoa``.

    Args:
        job_id: the job.
        key: the store's, of 1 to 64 bytes.
    """
    digest = hashlib.blake2b(str(job_id).encode(), digest_size=_DIGEST_BYTES, key=key)
    text = b32encode(digest.digest()).decode().rstrip("=").lower()
    return f"{job_id}-{text}"


def id_of(ref: str, key: bytes) -> int | None:
    """Return the job of a ref; None: it is not a ref of this store."""
    head, _, _ = ref.partition("-")
    if not (head.isascii() and head.isdigit() and len(head) < _ID_DIGITS_MAX):
        return None
    job_id = int(head)
    expected = ref_of(job_id, key).encode()
    is_ours = hmac.compare_digest(expected, ref.encode("utf-8", "replace"))
    return job_id if is_ours else None


_ID_DIGITS_MAX = 20
