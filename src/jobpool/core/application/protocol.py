"""Application: the interface through which a child uses the user's `JobPool`."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from jobpool.core.application.handler_spec import HandlerSpec


@runtime_checkable
class Application(Protocol):
    """The registered handlers of an application, as its own processes see them."""

    def handler_specs(self) -> tuple[HandlerSpec, ...]:
        """Return every handler's declaration, hooks as internal kinds included."""
        ...

    def named_store(self) -> str | None:
        """Return the store URL that the application itself names, if any."""
        ...

    def start_child(self) -> None:
        """Run the application's ``on_child_start`` hooks in a new child."""
        ...

    def invoke(self, kind: str, payload: bytes, result_max_bytes: int) -> bytes:
        """Decode the arguments, run the handler, encode its result.

        Args:
            kind: a registered kind or one of its aliases.
            payload: JSON object of arguments by name.
            result_max_bytes: a longer result is refused.

        Returns:
            The result as JSON; ``b"null"`` for None.

        Raises:
            GiveUp: the arguments no longer fit the handler, or the handler raised it.
            TypeError: the result cannot be encoded as JSON.
            ValueError: the result is too large.
            BaseException: whatever the handler raised.
        """
        ...
