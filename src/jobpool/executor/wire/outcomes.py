"""A call's value or exception as bytes: written by a child, read into a future."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Future
from typing import Any

from jobpool.executor.pickling.pickling import dump_error, dump_parts, load_error, loads
from jobpool.executor.wire import spill_files

VALUE, RAISED, UNUSABLE = b"v", b"r", b"u"


class ExecutorBroken(BrokenExecutor):
    """The executor cannot go on: its host is gone, or its initializer failed."""


def value_bytes(value: Any, directories: Sequence[str]) -> bytes:
    """Return the bytes of a value.

    Raises:
        pickle.PicklingError: it cannot be pickled.
        OSError: there is no room for it.
    """
    try:
        parts = dump_parts(value, main_by_name=True)
    except pickle.PicklingError as exc:
        if isinstance(exc.__cause__, SystemExit | KeyboardInterrupt):
            raise exc.__cause__ from None  # as if the call itself had raised it
        raise pickle.PicklingError(
            f"the result, of type {type(value).__name__}, cannot be sent: {exc}"
        ) from exc
    return spill_files.wrap((VALUE, *parts), directories)


def error_bytes(
    exc: BaseException, directories: Sequence[str], own_files: tuple[str, ...]
) -> bytes:
    """Return the bytes of an exception that a call raised."""
    return spill_files.wrap((RAISED, dump_error(exc, own_files)), directories)


def unusable_bytes(exc: BaseException) -> bytes:
    """Return the bytes that end every call in a child whose initializer raised."""
    text = "".join(traceback.format_exception(exc))[
        -spill_files.INLINE_MAX_BYTES // 4 :
    ]
    return spill_files.wrap((UNUSABLE, text.encode("utf-8", "replace")), ())


def settle(
    future: Future[Any], wrapped: bytes, broken: Callable[[str], object]
) -> None:
    """Put a call's value or exception into its future.

    Args:
        future: of the call.
        wrapped: the bytes of either.
        broken: told why the executor cannot go on, if it cannot, before the future is.
    """
    try:
        data = spill_files.unwrap(wrapped)
        tag, rest = bytes(data[:1]), data[1:]
        if tag == UNUSABLE:
            why = f"its initializer failed:\n{str(rest, 'utf-8', 'replace')}"
            broken(why)
            future.set_exception(ExecutorBroken(why))
            return
        found = load_error(rest) if tag == RAISED else loads(rest)
    except BaseException as exc:  # noqa: BLE001 - rebuilding it runs the user's code
        error = pickle.UnpicklingError(
            f"the result of the call cannot be read: {type(exc).__name__}: {exc}"
        )
        error.__cause__ = exc
        future.set_exception(error)
    else:
        if tag == RAISED:
            future.set_exception(found)
        else:
            future.set_result(found)
    finally:
        spill_files.discard(wrapped)
