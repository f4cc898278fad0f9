"""Handler declarations as data.

The supervisor knows handlers only through these records, which the zygote reports. It
never imports or runs any code of the application.
"""

from __future__ import annotations

import re

import msgspec

from jobpool.core.application.codec import Codec
from jobpool.core.rules.limits import Limits
from jobpool.core.rules.policy import Policy
from jobpool.core.rules.quotas.budget import RetryBudget
from jobpool.core.rules.quotas.definition import Need
from jobpool.errors import ConfigError

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:<>-]{0,199}")
"""Valid kinds: letters, digits and ``_ . : < > -``."""
POOL_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
INTERNAL_PREFIX = "jobpool:"
"""Kinds that jobpool itself enqueues, such as ``jobpool:on_dead``."""
_CODEC = "x-jobpool-codec"
"""The keyword of a schema that names the codec; validators ignore it."""
HOOK_QUARANTINED = "jobpool:on_quarantine"
HOOK_DEAD = "jobpool:on_dead"


class HandlerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One handler as its decorator declares it; None means the pool's default."""

    kind: str
    pool: str
    aliases: tuple[str, ...] = ()
    """Former kinds: jobs stored with them run this handler too."""
    limits: Limits = Limits()
    policy: Policy = Policy()
    schema: bytes = b"{}"
    """JSON Schema of the arguments object, encoded as JSON; names the codec."""
    needs: tuple[Need, ...] = ()
    """What each of its jobs takes of quotas: ``quotas=``."""
    concurrency: int | None = None
    """Its own cap, over all hosts; None: without."""
    retry_budget: RetryBudget | None = None


def with_codec(schema: bytes, codec: Codec | None) -> bytes:
    """Return a kind's schema with the codec that the application has, if any.

    It is published there, so that two supervisors with different codecs, or with other
    keys if the codec tells (`FernetCodec.version`), have different versions of a kind:
    what one cannot decode is left to the other, as other arguments are.
    """
    if codec is None:
        return schema
    version = getattr(codec, "version", None)
    mark = {"name": codec.name} | ({"version": str(version)} if version else {})
    return msgspec.json.encode({**msgspec.json.decode(schema), _CODEC: mark})


def codec_in(schema: bytes) -> str | None:
    """Return the name of the codec in a kind's schema, if it has one.

    Raises:
        msgspec.DecodeError: it is not JSON; somebody else has written it.
    """
    found = msgspec.json.decode(schema)
    mark = found.get(_CODEC) if isinstance(found, dict) else None
    return str(mark.get("name")) if isinstance(mark, dict) else None


def check_kind(kind: str) -> str:
    """Return *kind* if it is a valid name of a handler.

    Raises:
        ConfigError: it is not; the message says what a kind looks like.
    """
    if not NAME.fullmatch(kind):
        raise ConfigError(
            f"kind {kind[:60]!r} is not a valid name; expected a letter, then up to "
            "199 letters, digits or any of _ . : < > -, such as 'shop.thumbnail'"
        )
    return kind


def check_pool(pool: str) -> str:
    """Return *pool* if it is a valid name of a pool.

    Raises:
        ConfigError: it is not; the message says what a pool's name looks like.
    """
    if not POOL_NAME.fullmatch(pool):
        raise ConfigError(
            f"pool {pool[:60]!r} is not a valid name; expected a lowercase letter, "
            "then up to 31 lowercase letters, digits, '_' or '-', such as 'cpu' or 'io'"
        )
    return pool
