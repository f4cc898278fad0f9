"""The cache of functions that are pickled once for many calls.

Theory of operation. A function pickled by value takes along its code, defaults and
attributes, the contents of its closure, and the globals that it names; so do the
functions among these. All of that is recorded when it is pickled, and compared before
its pickle is used again: each must still be the same object. Identity is enough only
for immutable objects: numbers and strings, modules, and whatever is pickled by name. A
function that refers to anything else, such as a list, is pickled for each call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter, is_
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from jobpool.executor.pickling.by_value import Parcel, global_names, has_name, is_found

FUNCTIONS_MAX = 256
"""When there are more, the cache is cleared."""
BYTES_MAX = 2**16
"""Longer pickles are not cached."""
_FIXED = frozenset(
    (bool, bytes, complex, float, int, range, str, type(None), type(...), CodeType)
)
_FIXED_NAMES = frozenset(
    (
        "datetime.date",
        "datetime.datetime",
        "datetime.time",
        "datetime.timedelta",
        "datetime.timezone",
        "decimal.Decimal",
        "fractions.Fraction",
        "logging.Logger",  # its pickle is its name
        "pathlib.PosixPath",
        "pathlib._local.PosixPath",  # as Python 3.13 calls it
        "re.Pattern",
        "uuid.UUID",
    )
)
"""The same for types that need not be imported here."""
_facts = attrgetter("__code__", "__doc__", "__name__", "__qualname__", "__module__")
_MISSING = object()


class _Names(NamedTuple):
    """The values of the globals that a function uses."""

    known: Mapping[str, Any]
    names: tuple[str, ...]
    values: tuple[Any, ...]

    def are_same(self) -> bool:
        known = self.known
        for name, value in zip(self.names, self.values, strict=True):
            if known.get(name, _MISSING) is not value:
                return False
        return True


class _FunctionState(NamedTuple):
    """The parts of a function besides its globals."""

    function: Any  # mypy takes a function for a method
    facts: tuple[Any, ...]
    parts: tuple[Any, ...]

    def is_same(self, function: FunctionType) -> bool:
        parts = _parts(function)
        return (
            len(parts) == len(self.parts)
            and all(map(is_, self.parts, parts))
            and all(map(is_, self.facts, _facts(function)))
            and not function.__dict__
        )


class _Changeable(Exception):
    """The function refers to something mutable."""


class Snapshot:
    """What a function's pickle depends on.

    Args:
        function: the function.

    Raises:
        Exception: a change could not be detected.
    """

    def __init__(self, function: FunctionType) -> None:
        self._functions: list[_FunctionState] = []
        self._names: list[_Names] = []
        self._ids: set[int] = set()
        self._add_function(function)

    def holds(self, function: FunctionType) -> bool:
        """Say whether this function, with the same code, would give the same pickle."""
        first, *others = self._functions
        return (
            first.is_same(function)
            and function.__globals__ is first.function.__globals__
            and all(seen.is_same(seen.function) for seen in others)
            and all(names.are_same() for names in self._names)
        )

    def _add_function(self, function: FunctionType) -> None:
        self._ids.add(id(function))
        if function.__dict__:
            raise _Changeable
        seen = _FunctionState(function, _facts(function), _parts(function))
        self._functions.append(seen)
        for value in seen.parts:
            self._add(value)
        names, known = global_names(function.__code__), function.__globals__
        values = tuple(known.get(name, _MISSING) for name in names)
        self._names.append(_Names(known, names, values))
        for value in values:
            self._add(value)

    def _add(self, value: Any) -> None:
        kind = type(value)
        if kind in _FIXED or value is _MISSING or id(value) in self._ids:
            return
        if kind is tuple or kind is frozenset:
            for item in value:
                self._add(item)
        elif kind is FunctionType and not _goes_by_name(value):
            self._add_function(value)
        elif not _goes_by_name(value) and _type_name(kind) not in _FIXED_NAMES:
            raise _Changeable


def _goes_by_name(value: Any) -> bool:
    """Say whether a pickle only names it."""
    if type(value) is ModuleType:
        return has_name(value)
    if isinstance(value, (type, FunctionType, BuiltinFunctionType)):
        module = value.__module__
        return module != "__main__" and is_found(module, value)
    return False


def _type_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _parts(function: FunctionType) -> tuple[Any, ...]:
    """Return the current parts of a function, in a fixed order.

    Raises:
        ValueError: a cell of its closure is still empty.
    """
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    defaults = function.__defaults__ or ()
    named: dict[str, Any] = function.__kwdefaults__ or {}
    notes = function.__annotations__
    return (
        *(len(defaults), len(named), len(notes)),
        *cells,
        *defaults,
        *(*named, *named.values()),
        *(*notes, *notes.values()),
    )


class Parcels:
    """The cached pickles of functions, each with its `Snapshot`.

    Args:
        pickle: pickles a function; its exceptions are raised.
        load: undoes that, where the calls are made.
    """

    def __init__(
        self,
        pickle: Callable[[Callable[..., Any]], bytes],
        load: Callable[[bytes], Any],
    ) -> None:
        self._pickle = pickle
        self._load = load
        self._known: dict[int, tuple[CodeType, tuple[Snapshot, Parcel] | None]] = {}
        """By the number of its code, which is held here: the number is its own.

        None: it is pickled for each call."""

    def of(self, function: Any) -> Any:
        """Return what to pickle in a function's place; often the function itself."""
        if type(function) is not FunctionType or _goes_by_name(function):
            return function
        code = function.__code__
        known = self._known.get(id(code))
        if known is None:
            return self._pack(function, code)
        _code, kept = known
        if kept is None:
            return function
        snapshot, parcel = kept
        try:
            is_same = snapshot.holds(function)
        except Exception:  # noqa: BLE001 - it has changed
            is_same = False
        return parcel if is_same else self._pack(function, code)

    def _pack(self, function: FunctionType, code: CodeType) -> Any:
        if len(self._known) >= FUNCTIONS_MAX:
            self._known.clear()
        self._known[id(code)] = code, None
        try:
            snapshot = Snapshot(function)
        except Exception:  # noqa: BLE001 - what it is made of is the user's
            return function
        try:
            pickled = self._pickle(function)
        except Exception:  # noqa: BLE001 - each call says so itself
            return function
        if len(pickled) > BYTES_MAX or not snapshot.holds(function):
            return function
        parcel = Parcel(function, (self._load, (pickled,)))
        self._known[id(code)] = code, (snapshot, parcel)
        return parcel
