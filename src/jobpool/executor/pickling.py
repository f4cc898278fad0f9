"""Calls and results as bytes: the C pickler where it will do, dill for the rest.

Theory of operation. What another process can import goes by name, through the C
pickler: ten times faster. What it cannot (lambdas, closures, all of ``__main__``) goes
by value, through dill. A class of the caller's ``__main__`` that comes back in a result
goes by name again, so that the caller gets an instance of its own class. A module that
is loaded in the caller, but that nobody else would find on the path (pytest loads tests
so), travels as the path of its file.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import pickle
import sys
import traceback
from collections.abc import Callable
from enum import EnumMeta
from functools import lru_cache, reduce
from types import FunctionType, ModuleType, TracebackType
from typing import Any, NoReturn

import dill

from jobpool.executor.enums import add_methods, make_enum, members_of, methods_of

PROTOCOL = 5
_QUICK, _SLOW, _STRAYS = b"q", b"s", b"m"
_LOCAL = "<locals>"
_PLAIN = frozenset((bool, bytes, float, int, str, type(None)))
"""Most results: nothing in them is to be looked for."""


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
            if file := _stray_file(module):
                self.strays[module] = file
        return NotImplemented


class _Slow(dill.Pickler):  # type: ignore[misc] # dill has no types
    """Dill's pickler.

    Args:
        file: where the bytes go.
        strays: takes the files of modules that are not on the path.
        main_by_name: classes of ``__main__`` are the reader's own.
    """

    def __init__(
        self, file: io.BytesIO, strays: dict[str, str], *, main_by_name: bool
    ) -> None:
        # recurse: of its globals, a function takes along what it uses.
        super().__init__(file, protocol=PROTOCOL, recurse=True)
        self._strays = strays
        self._main_by_name = main_by_name

    def save(self, obj: Any, save_persistent_id: Any = True) -> None:  # noqa: FBT002 - as in the base
        """Note where functions and classes that go by name come from."""
        if type(obj) is FunctionType or issubclass(type(obj), type):
            module = obj.__module__
            if module != "__main__" and _is_found(module, obj):
                file = _stray_file(module)
                if file:
                    self._strays[module] = file
            elif (
                issubclass(type(obj), EnumMeta)
                and id(obj) not in self.memo
                and not self._is_named(obj)
            ):
                self._save_enum(obj)
                return
        elif type(obj) is ModuleType and _has_name(obj):
            self._save_module(obj)
            return
        super().save(obj, save_persistent_id)

    def persistent_id(self, obj: Any) -> str | None:
        """Name a class of the caller's ``__main__``."""
        return str(obj.__qualname__) if self._is_named(obj) else None

    def _is_named(self, obj: Any) -> bool:
        return (
            self._main_by_name
            and issubclass(type(obj), type)
            and obj.__module__ == "__main__"
            and _LOCAL not in obj.__qualname__
        )

    def _save_module(self, module: ModuleType) -> None:
        """Save its name only: dill takes all that is in some modules along."""
        if id(module) in self.memo:
            self.write(self.get(self.memo[id(module)][0]))
            return
        if file := _stray_file(module.__name__):
            self._strays[module.__name__] = file
        self.save_reduce(importlib.import_module, (module.__name__,), obj=module)

    def _save_enum(self, cls: EnumMeta) -> None:
        self.save_reduce(
            make_enum,
            (
                cls.__bases__,
                cls.__name__,
                cls.__qualname__,
                cls.__module__,
                members_of(cls),
            ),
            methods_of(cls),
            state_setter=add_methods,
            obj=cls,
        )


class _Unpickler(dill.Unpickler):  # type: ignore[misc] # dill has no types
    """Dill's unpickler, in the process whose ``__main__`` classes are named."""

    def persistent_load(self, pid: str) -> Any:
        """Find a class of ``__main__`` by its qualified name."""
        try:
            return reduce(getattr, pid.split("."), sys.modules["__main__"])
        except AttributeError as exc:
            raise pickle.UnpicklingError(
                f"the result holds an instance of __main__.{pid}, which is not there"
            ) from exc


def dumps(obj: Any, *, main_by_name: bool = False) -> bytes:
    """Pickle an object for another process.

    Args:
        obj: anything that pickle or dill can take apart.
        main_by_name: the reader is the one from whose ``__main__`` classes came.

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
        pickler.dump(obj)
    except Exception:  # noqa: BLE001 - dill may do better, and says why if not
        file, strays = io.BytesIO(), {}
        file.write(_SLOW)
        try:
            _Slow(file, strays, main_by_name=main_by_name).dump(obj)
        except Exception as exc:
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
            _import_file(module, path)
        return loads(inner)
    raise pickle.UnpicklingError(f"not one of our pickles: {data[:20]!r}")


class Parcel:
    """A callable that is pickled once for many calls; unpickled, it is itself."""

    def __init__(self, pickled: bytes) -> None:
        self._pickled = pickled

    def __reduce__(self) -> tuple[Any, ...]:
        return loads, (self._pickled,)

    def __call__(self, *_args: Any) -> NoReturn:
        """Refuse: this is only the wrapping."""
        raise TypeError("a parcel is opened by unpickling it")


def packed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a stand-in for a function that many calls will bring along.

    One that cannot be pickled comes back as it is: each call says so itself.
    """
    try:
        return Parcel(dumps(function))
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
    except Exception as failure:  # noqa: BLE001 - its text is the user's code
        text = f"<{name}; it cannot be shown: {type(failure).__name__}>"
    try:
        inner, why = dumps(exc, main_by_name=True), ""
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
    except Exception as failure:  # noqa: BLE001 - its class is the user's code
        exc, why = None, f"{type(failure).__name__}: {failure}"
    if not isinstance(exc, BaseException):
        exc = pickle.PicklingError(
            f"the job raised {name}, which cannot come back: {why}"
        )
    exc.__cause__ = RemoteTraceback(text)
    return exc


def _without(
    tb: TracebackType | None, own_files: tuple[str, ...]
) -> TracebackType | None:
    while tb is not None and tb.tb_frame.f_code.co_filename.startswith(own_files):
        tb = tb.tb_next
    return tb


# -- modules that are not on the path ----------------------------------------------


def _has_name(module: ModuleType) -> bool:
    """Say whether another process can import a module; ``__main__`` is our own."""
    name = module.__name__
    return name != "__main__" and sys.modules.get(name) is module


def _is_found(module: str | None, obj: Any) -> bool:
    """Say whether an object is what its module has under its name."""
    found: Any = sys.modules.get(module or "")
    for part in obj.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is obj


@lru_cache(maxsize=4096)
def _stray_file(module: str | None) -> str:
    """Return the file of a loaded module that no other process would find; else ""."""
    loaded = sys.modules.get(module or "")
    file = getattr(loaded, "__file__", None)
    if module is None or file is None or _is_importable(module, file):
        return ""
    return str(file)


@lru_cache(maxsize=4096)
def _is_importable(module: str, file: str | None) -> bool:
    """Say whether another process with our path would find a module in this file."""
    parent, _, _leaf = module.rpartition(".")
    path = None
    if parent:
        package = sys.modules.get(parent)
        path = getattr(package, "__path__", None)
        own = getattr(package, "__file__", None)
        if path is None or not _is_importable(parent, own):
            return False
    for finder in sys.meta_path:
        spec = finder.find_spec(module, path)
        if spec is not None:
            return file is None or spec.origin == file
    return False


def _import_file(module: str, path: str) -> None:
    """Import a module from a file that is not on the path, under its own name."""
    if module in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(module, path)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"cannot import {module} from {path}", name=module)
    _stand_in_for_parents(module)
    made = importlib.util.module_from_spec(spec)
    sys.modules[module] = made
    try:
        spec.loader.exec_module(made)
    except BaseException:
        del sys.modules[module]
        raise


def _stand_in_for_parents(module: str) -> None:
    """Make the packages above such a module: pickle asks for them."""
    parent, _, _leaf = module.rpartition(".")
    if not parent or parent in sys.modules:
        return
    _stand_in_for_parents(parent)
    package = ModuleType(parent)
    package.__path__ = []
    sys.modules[parent] = package
