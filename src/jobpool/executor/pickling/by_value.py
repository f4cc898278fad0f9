"""Pickles by value, through dill, what other processes cannot import.

Theory of operation. Dill does the work, except for functions: here a function takes
along only the globals that its code names. Dill can find these names too, but it
recurses without end if a closure refers to itself, and does it by capturing what is
printed. Nor can dill pickle enumerations that cannot be imported: they are rebuilt from
their members, and get their methods afterwards.
"""

from __future__ import annotations

import dis
import importlib
import pickle
import sys
from collections.abc import Callable, Mapping
from enum import EnumMeta
from functools import lru_cache
from types import CodeType, FunctionType, ModuleType
from typing import Any, NoReturn

import dill
from dill import _dill

from jobpool.executor.pickling.lending import Loan
from jobpool.executor.pickling.multiprocessing_objects import (
    dispatch_table,
    reduction_of,
)
from jobpool.executor.pickling.off_path_modules import stray_file

PROTOCOL = 5
_LOCAL = "<locals>"
_METHODS = (FunctionType, property, classmethod, staticmethod)
_NAMED_APART = ("__doc__", "__kwdefaults__", "__annotations__")


class Parcel:
    """A callable that is pickled once for many calls; unpickling yields the callable.

    Args:
        function: the callable.
        reduction: how it is unpickled.
    """

    def __init__(
        self, function: Callable[..., Any], reduction: tuple[Any, ...]
    ) -> None:
        self.function = function
        self._reduction = reduction

    def __reduce__(self) -> tuple[Any, ...]:
        return self._reduction

    def __call__(self, *_args: Any) -> NoReturn:
        """Refuse: a parcel must be unpickled first."""
        raise TypeError("a parcel is opened by unpickling it")


class ByValuePickler(dill.Pickler):  # type: ignore[misc] # dill has no types
    """Dill's pickler.

    Args:
        file: where the bytes go.
        strays: collects the files of modules that are not on the path.
        main_by_name: name classes of ``__main__``: the reader has them.
        loan: lends what belongs to this process; None: nothing is lent.
    """

    def __init__(
        self,
        file: Any,
        strays: dict[str, str],
        *,
        main_by_name: bool,
        loan: Loan | None,
    ) -> None:
        super().__init__(file, protocol=PROTOCOL, recurse=False)
        self._strays = strays
        self._main_by_name = main_by_name
        self._loan = loan
        if loan is not None:
            self.dispatch_table = dispatch_table()

    def save(self, obj: Any, save_persistent_id: Any = True) -> None:  # noqa: FBT002 - as in the base
        """Note the modules of functions and classes that are pickled by name."""
        if type(obj) is FunctionType or issubclass(type(obj), type):
            module = obj.__module__
            if module != "__main__" and is_found(module, obj):
                file = stray_file(module)
                if file:
                    self._strays[module] = file
            elif type(obj) is FunctionType:
                if id(obj) not in self.memo:
                    self._save_function(obj)
                    return
            elif (
                issubclass(type(obj), EnumMeta)
                and id(obj) not in self.memo
                and not self._is_named(obj)
            ):
                self._save_enum(obj)
                return
        elif type(obj) is Parcel:
            self.save(obj.function)  # what comes with it may be of its classes
            return
        elif type(obj) is ModuleType and has_name(obj):
            self._save_module(obj)
            return
        elif id(obj) not in self.memo and (reduced := reduction_of(obj, self._loan)):
            self.save_reduce(*reduced, obj=obj)
            return
        super().save(obj, save_persistent_id)

    def persistent_id(self, obj: Any) -> str | None:
        """Return the name of a class of the caller's ``__main__``."""
        return str(obj.__qualname__) if self._is_named(obj) else None

    def _is_named(self, obj: Any) -> bool:
        return (
            self._main_by_name
            and issubclass(type(obj), type)
            and obj.__module__ == "__main__"
            and _LOCAL not in obj.__qualname__
        )

    def _save_function(self, function: FunctionType) -> None:
        """Save a function as dill does, with only the globals that it uses."""
        names = {"__name__": function.__module__}
        used = globals_of(function)
        # What it refers to may refer to it: its globals come when all of that is there.
        later = (_dill._setitems, (names, used))  # noqa: SLF001 - no public way
        used_ids = {id(value) for value in used.values()}
        begun = next((key for key in self._postproc if key in used_ids), None)
        if begun is not None:
            self._postproc[begun].append(later)
        apart = {
            name: value
            for name in _NAMED_APART
            if (value := getattr(function, name)) is not None
        }
        apart["__qualname__"] = function.__qualname__
        apart["__module__"] = function.__module__
        closure = function.__closure__
        _dill._save_with_postproc(  # noqa: SLF001 - the same
            self,
            (
                _dill._create_function,  # noqa: SLF001 - the same
                (
                    function.__code__,
                    names,
                    function.__name__,
                    function.__defaults__,
                    closure,
                ),
                (function.__dict__, apart),
            ),
            obj=function,
            postproc_list=[later] if begun is None else [],
        )
        self._fill_cells(function)

    def _fill_cells(self, function: FunctionType) -> None:
        """Fill the cells that hold the function at once: what follows may call it."""
        first: list[Any] = next(iter(self._postproc.values()), [])
        for cell in function.__closure__ or ():
            for place, (call, arguments) in enumerate(first):
                # By identity: a user's objects may make anything of "equal".
                if call is setattr and arguments[0] is cell:
                    del first[place]
                    self.save_reduce(call, arguments)
                    self.write(pickle.POP)
                    break

    def _save_module(self, module: ModuleType) -> None:
        """Save only a module's name: dill would take the contents of some along."""
        if id(module) in self.memo:
            self.write(self.get(self.memo[id(module)][0]))
            return
        if file := stray_file(module.__name__):
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
                _members_of(cls),
            ),
            _methods_of(cls),
            state_setter=add_methods,
            obj=cls,
        )


def globals_of(function: FunctionType) -> dict[str, Any]:
    """Return the globals that a function's code refers to, by name."""
    known = function.__globals__
    return {
        name: known[name] for name in global_names(function.__code__) if name in known
    }


@lru_cache(maxsize=1024)
def global_names(code: CodeType) -> tuple[str, ...]:
    """Return the names that a code object, or one nested in it, may read as globals."""
    names = {
        str(line.argval)
        for line in dis.get_instructions(code)
        # In the body of a class, a plain name may be a global.
        if "GLOBAL" in line.opname or line.opname == "LOAD_NAME"
    }
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            names.update(global_names(inner))
    return tuple(sorted(names))


def has_name(module: ModuleType) -> bool:
    """Say whether another process can import a module; ``__main__`` is our own."""
    name = module.__name__
    return name != "__main__" and sys.modules.get(name) is module


def is_found(module: str | None, obj: Any) -> bool:
    """Say whether an object is the one that its module has under its name."""
    found: Any = sys.modules.get(module or "")
    for part in obj.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is obj


# -- enumerations ------------------------------------------------------------------


def _members_of(cls: EnumMeta) -> dict[str, Any]:
    """Return values by name, aliases included."""
    members: Mapping[str, Any] = cls.__members__
    return {name: member.value for name, member in members.items()}


def _methods_of(cls: EnumMeta) -> dict[str, Any]:
    """Return what the class defines besides its members."""
    return {
        name: value
        for name, value in vars(cls).items()
        if name not in cls.__members__
        and isinstance(value, _METHODS)
        and (not name.startswith("_") or _is_by(value, cls))
    }


def make_enum(
    bases: tuple[type, ...],
    name: str,
    qualname: str,
    module: str,
    members: Mapping[str, Any],
) -> EnumMeta:
    """Rebuild the class, without its methods."""
    meta = type(bases[-1])
    if not issubclass(meta, EnumMeta):
        raise TypeError(f"{name} is not an enumeration")
    namespace = meta.__prepare__(name, bases)
    for member, value in members.items():
        namespace[member] = value
    made = meta(name, bases, namespace)
    made.__module__, made.__qualname__ = module, qualname
    return made


def add_methods(cls: EnumMeta, methods: Mapping[str, Any]) -> None:
    """Add the methods to a rebuilt class."""
    for name, value in methods.items():
        setattr(cls, name, value)


def _is_by(value: Any, cls: EnumMeta) -> bool:
    """Say whether a method with an underscore was defined in the class's own body."""
    return (
        isinstance(value, FunctionType)
        and value.__qualname__ == f"{cls.__qualname__}.{value.__name__}"
    )
