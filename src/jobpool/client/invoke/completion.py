"""`jobpool.current().complete`: set by the client in `core.application.current`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from jobpool.client.payload.results import encode_result
from jobpool.core.application.codec import encode_json, too_large
from jobpool.core.application.current import Claim
from jobpool.errors import ResultTooLarge
from jobpool.store import handler_transactions

T = TypeVar("T")


class ConnectionCompleter:
    """Completes attempts on their handlers' connections."""

    def complete(self, connection: Any, claim: Claim, result: Any) -> None:
        """Settle a claimed attempt in the connection's transaction.

        Raises:
            Superseded: its token is no longer valid.
            UsageError: the connection cannot be used for this; nothing was written.
            TypeError: the result cannot be encoded as JSON; nothing was written.
            ResultTooLarge: the result, encoded if there is a codec, is over
                ``result_max``; nothing was written.
            StoreError: the statement failed; nothing was written.
        """
        encoded = encode_result(result, claim.kind, claim.result_max_bytes)
        if claim.codec is not None:
            encoded = encode_json(claim.codec, encoded)
            if len(encoded) > claim.result_max_bytes:
                raise ResultTooLarge(too_large(len(encoded), claim.result_max_bytes))
        handler_transactions.complete(connection, claim, encoded)

    async def call_async(self, connection: Any, function: Callable[[Any], T]) -> T:
        """Call a function in a thread, with a stand-in for an async connection."""
        from jobpool.store.callers import async_bridge  # noqa: PLC0415 - see there

        return await async_bridge.call_async(connection, function)
