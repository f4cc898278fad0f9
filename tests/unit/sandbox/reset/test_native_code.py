"""Whether code is here that is not Python's own: found out once, by zygote or child."""

import ctypes
import sys
from types import ModuleType

import pytest

from jobpool.sandbox.reset import native_code
from jobpool.sandbox.reset.native_code import NativeCode


@pytest.fixture(autouse=True)
def nothing_opened(monkeypatch):
    """A zygote whose application is not loaded yet."""
    monkeypatch.setattr(native_code, "_opened", [])
    monkeypatch.setattr(ctypes, "_dlopen", ctypes._dlopen)
    monkeypatch.setattr(ctypes.CDLL, "__init__", ctypes.CDLL.__init__)
    kept = ctypes.pythonapi.__class__
    monkeypatch.setattr(native_code._Last, "seen", native_code._Last.seen)
    native_code.know()
    yield
    ctypes.pythonapi.__class__ = kept


def load(monkeypatch, file):
    """Load a module from this file."""
    module = ModuleType("loaded_by_a_test")
    module.__file__ = file
    monkeypatch.setitem(sys.modules, "loaded_by_a_test", module)


EXTENSION = "/somewhere/extension" + native_code._SUFFIXES[0]


@pytest.mark.parametrize("looks", [True, False])
@pytest.mark.parametrize(("file", "found"), [(EXTENSION, True), ("/x/y.py", False)])
def test_what_the_application_loads_is_seen(monkeypatch, looks, file, found):
    """By the zygote, if it looks after the import, else by the child."""
    load(monkeypatch, file)
    if looks:
        native_code.look()
    code = NativeCode()
    assert code.may_have_come() is (found or not looks)
    code.changes()
    assert code.is_here is found
    assert code.may_have_come() is found


def test_what_a_child_loads_later_is_seen(monkeypatch):
    """After the zygote has looked; the next child begins as the zygote was."""
    native_code.look()
    code = NativeCode()
    assert not code.may_have_come()
    load(monkeypatch, EXTENSION)
    assert code.may_have_come()
    code.changes()
    assert code.is_here
    assert not native_code._Last.seen.is_here
