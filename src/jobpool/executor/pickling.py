"""Calls and results as bytes: the C pickler where it will do, dill for the rest.

Theory of operation. What another process can import goes by name, through the C
pickler: ten times faster. What it cannot (lambdas, closures, all of ``__main__``) goes
by value, through dill. A class of the caller's ``__main__`` that comes back in a result
goes by name again, so that the caller gets an instance of its own class. A module that
is loaded in the caller, but that nobody else would find on the path (pytest loads tests
so), travels as the path of its file.
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

from jobpool.executor.byvalue import PROTOCOL, ByValuePickler, Parcel
from jobpool.executor.lending import Loan
from jobpool.executor.sharing import CONNECTIONS
from jobpool.executor.strays import import_file, stray_file

_QUICK, _SLOW, _STRAYS = b"q", b"s", b"m"
_PLAIN = frozenset((bool, bytes, float, int, str, type(None)))
"""Most results: nothing in them is to be looked for."""
_PICKLERS = ("jobpool", "pickle", "dill", "dis")


class _ByValue(Exception):
    """Raised while pickling: the other side cannot import this."""


class RemoteTraceback(Exception):
    """The cause of an exception that a job raised: its traceback, as text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


class _Quick(pickle.Pickler):
    """The C pickler; refuses ``__main__``, notes modules that are not on the path.

    Attributes:
        strays: the files of these modules; to be set. Every call of the caller's makes
            a pickler, and would pay for a constructor.
    """

    strays: dict[str, str]

    def reducer_override(self, obj: Any) -> Any:
        """Look at functions and classes; they are pickled as always."""
        if type(obj) is FunctionType or issubclass(type(obj), type):
            module = obj.__module__
            if module == "__main__":
                raise _ByValue
            if file := stray_file(module):
                self.strays[module] = file
        elif type(obj).__module__ in CONNECTIONS:
            raise _ByValue  # as a plain object it would be a bare number
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    """Reads dill's pickles, where the ``__main__`` is whose classes are named.

    Dill's own is slow, and finds nothing more in what a `ByValuePickler` writes.
    """

    def persistent_load(self, pid: str) -> Any:
        """Find a class of ``__main__`` by its qualified name."""
        try:
            return reduce(getattr, pid.split("."), sys.modules["__main__"])
        except AttributeError as exc:
            raise pickle.UnpicklingError(
                f"the result holds an instance of __main__.{pid}, which is not there"
            ) from exc


def dumps(obj: Any, *, main_by_name: bool = False, loan: Loan | None = None) -> bytes:
    """Pickle an object for another process.

    Args:
        obj: anything that pickle or dill can take apart.
        main_by_name: the reader is the one from whose ``__main__`` classes came.
        loan: for a child, takes what belongs to this process.

    Raises:
        pickle.PicklingError: neither can.
    """
    if type(obj) in _PLAIN:
        return _QUICK + pickle.dumps(obj, PROTOCOL)
    file = io.BytesIO()
    file.write(_QUICK)
    pickler = _Quick(file, PROTOCOL)
    strays: dict[str, str] = {}
    pickler.strays = strays
    try:
        try:
            pickler.dump(obj)
        except Exception:  # noqa: BLE001 - dill may do better, and says why if not
            file, strays = io.BytesIO(), {}
            file.write(_SLOW)
            with loan.pickling() if loan else nullcontext():
                ByValuePickler(file, strays, main_by_name=main_by_name, loan=loan).dump(
                    obj
                )
    except BaseException as exc:
        if _is_ours_to_pass_on(exc):
            raise
        raise pickle.PicklingError(
            f"cannot pickle it: {type(exc).__name__}: {exc}"
        ) from exc
    if strays:
        return _STRAYS + pickle.dumps((strays, file.getvalue()), PROTOCOL)
    return file.getvalue()


def loads(data: bytes) -> Any:
    """Undo `dumps`.

    Raises:
        Exception: whatever the objects raise when they are put together.
    """
    tag = data[:1]
    if tag == _QUICK:
        return pickle.loads(memoryview(data)[1:])  # noqa: S301 - from our own user's code
    if tag == _SLOW:
        return _Unpickler(io.BytesIO(memoryview(data)[1:])).load()
    if tag == _STRAYS:
        strays, inner = pickle.loads(memoryview(data)[1:])  # noqa: S301 - the same
        for module, path in strays.items():
            import_file(module, path)
        return loads(inner)
    raise pickle.UnpicklingError(f"not one of our pickles: {data[:20]!r}")


def _is_ours_to_pass_on(exc: BaseException) -> bool:
    """Say whether somebody pressed Ctrl-C while our own code ran, or the pickler's.

    Whatever the objects raise themselves is only a reason why they cannot be sent.
    """
    if not isinstance(exc, KeyboardInterrupt) or exc.__traceback__ is None:
        return False
    *_, (frame, _line) = traceback.walk_tb(exc.__traceback__)
    package = str(frame.f_globals.get("__name__")).partition(".")[0]
    return package in _PICKLERS


def packed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a stand-in for a function that many calls will bring along.

    One that cannot be pickled comes back as it is: each call says so itself.
    """
    try:
        return Parcel(function, (loads, (dumps(function),)))
    except pickle.PicklingError:
        return function


# -- exceptions --------------------------------------------------------------------


def dump_error(exc: BaseException, own_files: tuple[str, ...]) -> bytes:
    """Pickle an exception with its traceback as text. Never raises.

    Args:
        exc: what left a job's function.
        own_files: beginnings of paths whose frames are none of the user's business.
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


def load_error(data: bytes) -> BaseException:
    """Undo `dump_error`; the traceback's text becomes the exception's cause.

    What could not be pickled, or cannot be put together again, is replaced by a
    `pickle.PicklingError` that names it.
    """
    inner, name, text, why = pickle.loads(data)  # noqa: S301 - written by `dump_error`
    try:
        exc = loads(inner) if inner else None
    except BaseException as failure:  # noqa: BLE001 - its class is the user's code
        exc, why = None, f"{type(failure).__name__}: {failure}"
    if not isinstance(exc, BaseException):
        exc = pickle.PicklingError(
            f"the job raised {name}, which cannot come back: {why}"
        )
    # Its class may forbid setting attributes.
    object.__setattr__(exc, "__cause__", RemoteTraceback(text))
    return exc


def _sendable(exc: BaseException) -> Any:
    is_usual = type(exc).__setattr__ is BaseException.__setattr__
    return exc if is_usual else _Unsettable(exc)


class _Unsettable:
    """Stands for an exception that forbids setting attributes; unpickled, it is it.

    A frozen dataclass does so, and pickle sets attributes.
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
