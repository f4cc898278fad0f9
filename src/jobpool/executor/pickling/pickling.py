"""Calls and results as bytes: the C pickler where it suffices, dill for the rest.

Theory of operation. What another process can import is pickled by name, with the C
pickler, ten times faster. What it cannot import (lambdas, closures, all of
``__main__``) is pickled by value, with dill. A class of the caller's ``__main__`` that
comes back in a result is pickled by name again, so that the caller gets an instance of
its own class. A module that is loaded in the caller but that other processes would not
find on the path (pytest loads tests so) is sent as the path of its file.
"""

from __future__ import annotations

import io
import pickle
import sys
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from functools import reduce
from types import FunctionType, TracebackType
from typing import Any

from jobpool.executor.pickling.by_value import PROTOCOL, ByValuePickler, Parcel
from jobpool.executor.pickling.lending import Loan
from jobpool.executor.pickling.multiprocessing_objects import CONNECTIONS
from jobpool.executor.pickling.off_path_modules import import_file, stray_file

_QUICK, _SLOW, _STRAYS = b"q", b"s", b"m"
_PLAIN = frozenset((bool, bytes, float, int, str, type(None)))
"""The types of most results: nothing in them needs special treatment."""
_LARGE_BYTES = 2**16
"""Bytes at least this long are not copied."""
_LENGTH_BYTES = 4
_PICKLERS = ("jobpool", "pickle", "dill", "dis")


class _ByValue(Exception):
    """Raised while pickling: the reader cannot import this object."""


class RemoteTraceback(Exception):
    """The cause of an exception that a job raised: its traceback as text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


class _Parts(list[Any]):
    """A file for a pickler, which writes large bytes and arrays to it uncopied."""

    write = list.append


class _Quick(pickle.Pickler):
    """The C pickler; refuses ``__main__``, notes modules that are not on the path.

    Attributes:
        strays: the files of these modules; set after construction, because each call
            makes a pickler and would pay for a constructor.
    """

    strays: dict[str, str]

    def reducer_override(self, obj: Any) -> Any:
        """Check functions and classes; they are pickled as usual."""
        if type(obj) is FunctionType or issubclass(type(obj), type):
            module = obj.__module__
            if module == "__main__":
                raise _ByValue
            if file := stray_file(module):
                self.strays[module] = file
        elif type(obj).__module__ in CONNECTIONS:
            raise _ByValue  # otherwise it would be a bare number
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    """Reads dill's pickles in the process whose ``__main__`` classes they name.

    Dill's own is slower, and does nothing more for what a `ByValuePickler` writes.
    """

    def persistent_load(self, pid: str) -> Any:
        """Find a class of ``__main__`` by its qualified name."""
        try:
            return reduce(getattr, pid.split("."), sys.modules["__main__"])
        except AttributeError as exc:
            raise pickle.UnpicklingError(
                f"the result holds an instance of __main__.{pid}, which does not exist"
            ) from exc


def dumps(obj: Any, *, main_by_name: bool = False, loan: Loan | None = None) -> bytes:
    """Pickle an object for another process; see `dump_parts`."""
    return b"".join(dump_parts(obj, main_by_name=main_by_name, loan=loan))


def dump_parts(
    obj: Any, *, main_by_name: bool = False, loan: Loan | None = None
) -> list[bytes]:
    """Pickle an object for another process.

    Args:
        obj: anything that pickle or dill can pickle.
        main_by_name: name classes of ``__main__``: they came from the reader.
        loan: for a child: lends what belongs to this process.

    Returns:
        The pickle in pieces; large ones are the object's own bytes, not copied.

    Raises:
        pickle.PicklingError: neither can pickle it.
    """
    if type(obj) in _PLAIN and not (type(obj) is bytes and len(obj) > _LARGE_BYTES):
        return [_QUICK, pickle.dumps(obj, PROTOCOL)]
    parts = _Parts((_QUICK,))
    pickler = _Quick(parts, PROTOCOL)
    strays: dict[str, str] = {}
    pickler.strays = strays
    try:
        try:
            pickler.dump(obj)
        except Exception:  # noqa: BLE001 - dill may succeed, and reports why if not
            parts, strays = _Parts((_SLOW,)), {}
            with loan.pickling() if loan else nullcontext():
                ByValuePickler(
                    parts, strays, main_by_name=main_by_name, loan=loan
                ).dump(obj)
    except BaseException as exc:
        if _is_ours_to_pass_on(exc):
            raise
        raise pickle.PicklingError(
            f"cannot pickle it: {type(exc).__name__}: {exc}"
        ) from exc
    if strays:
        named = pickle.dumps(strays, PROTOCOL)
        parts[:0] = _STRAYS, len(named).to_bytes(_LENGTH_BYTES, "little"), named
    return [_raw(part) for part in parts]


def _raw(part: Any) -> Any:
    """Return the bytes of a piece: an array's memory comes as it is."""
    return part.raw() if type(part) is pickle.PickleBuffer else part


def loads(data: bytes | memoryview) -> Any:
    """Undo `dumps`.

    Raises:
        Exception: whatever the objects raise when they are rebuilt.
    """
    view = memoryview(data)
    tag, rest = bytes(view[:1]), view[1:]
    if tag == _QUICK:
        return pickle.loads(rest)  # noqa: S301 - from our own user's code
    if tag == _SLOW:
        return _Unpickler(io.BytesIO(rest)).load()
    if tag == _STRAYS:
        end = _LENGTH_BYTES + int.from_bytes(rest[:_LENGTH_BYTES], "little")
        strays = pickle.loads(rest[_LENGTH_BYTES:end])  # noqa: S301 - the same
        for module, path in strays.items():
            import_file(module, path)
        return loads(rest[end:])
    raise pickle.UnpicklingError(f"not one of our pickles: {bytes(view[:20])!r}")


def _is_ours_to_pass_on(exc: BaseException) -> bool:
    """Say whether Ctrl-C was pressed while our own code or the pickler's ran.

    What the objects raise themselves only means that they cannot be sent.
    """
    if not isinstance(exc, KeyboardInterrupt) or exc.__traceback__ is None:
        return False
    *_, (frame, _line) = traceback.walk_tb(exc.__traceback__)
    package = str(frame.f_globals.get("__name__")).partition(".")[0]
    return package in _PICKLERS


def packed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a stand-in for a function that many calls send.

    One that cannot be pickled is returned unchanged: each call fails by itself.
    """
    try:
        return Parcel(function, (loads, (dumps(function),)))
    except pickle.PicklingError:
        return function


# -- exceptions --------------------------------------------------------------------


def dump_error(exc: BaseException, own_files: tuple[str, ...]) -> bytes:
    """Pickle an exception with its traceback as text. Never raises.

    Args:
        exc: what the job's function raised.
        own_files: prefixes of paths whose frames are left out.
    """
    name = type(exc).__name__
    try:
        tb = _without(exc.__traceback__, own_files)
        text = "".join(traceback.format_exception(type(exc), exc, tb))
    except BaseException as failure:  # noqa: BLE001 - its text is the user's code
        text = f"<{name}; it cannot be shown: {type(failure).__name__}>"
    try:
        inner, why = dumps(_sendable(exc), main_by_name=True), ""
    except pickle.PicklingError as failure:
        inner, why = b"", str(failure)
    clean = (part.encode("utf-8", "replace").decode() for part in (name, text, why))
    return pickle.dumps((inner, *clean), PROTOCOL)


def load_error(data: bytes | memoryview) -> BaseException:
    """Undo `dump_error`; the traceback's text becomes the exception's cause.

    An exception that could not be pickled, or cannot be rebuilt, is replaced by a
    `pickle.PicklingError` that names it.
    """
    inner, name, text, why = pickle.loads(data)  # noqa: S301 - written by `dump_error`
    try:
        exc = loads(inner) if inner else None
    except BaseException as failure:  # noqa: BLE001 - its class is the user's code
        exc, why = None, f"{type(failure).__name__}: {failure}"
    if not isinstance(exc, BaseException):
        exc = pickle.PicklingError(
            f"the job raised {name}, which cannot be sent back: {why}"
        )
    # Its class may forbid setting attributes.
    object.__setattr__(exc, "__cause__", RemoteTraceback(text))
    return exc


def _sendable(exc: BaseException) -> Any:
    is_usual = type(exc).__setattr__ is BaseException.__setattr__
    return exc if is_usual else _Unsettable(exc)


class _Unsettable:
    """Stands for an exception that forbids setting attributes; unpickling yields it.

    A frozen dataclass forbids that, and pickle sets attributes.
    """

    def __init__(self, exc: BaseException) -> None:
        self._exc = exc

    def __reduce__(self) -> tuple[Any, ...]:
        make, arguments, state = (*self._exc.__reduce_ex__(PROTOCOL), None)[:3]
        return _put_together, (make, arguments, state)


def _put_together(
    make: Callable[..., BaseException], arguments: tuple[Any, ...], state: Any
) -> BaseException:
    exc = make(*arguments)
    if type(exc).__setstate__ is not BaseException.__setstate__:
        exc.__setstate__(state)
    else:
        for name, value in (state or {}).items():
            object.__setattr__(exc, name, value)
    return exc


def _without(
    tb: TracebackType | None, own_files: tuple[str, ...]
) -> TracebackType | None:
    while tb is not None and tb.tb_frame.f_code.co_filename.startswith(own_files):
        tb = tb.tb_next
    return tb
