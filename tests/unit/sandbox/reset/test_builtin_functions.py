"""Python's own functions that a handler replaced are put back, and named."""

from __future__ import annotations

import builtins
import json
import os
import sys
import time
from collections.abc import Callable

import pytest

from jobpool.sandbox.reset import builtin_functions
from jobpool.sandbox.reset.builtin_functions import BuiltinFunctions

SLEEP, LOADS, LISTDIR, OPEN = time.sleep, json.loads, os.listdir, open


@pytest.fixture(params=[True, False], ids=["versions", "no versions"])
def ours(request, monkeypatch):
    """The functions as on a Python whose dictionaries have versions, or have none."""
    if request.param and not builtin_functions._have_versions():
        pytest.skip("this Python's dictionaries have no versions")
    monkeypatch.setattr(builtin_functions, "_have_versions", lambda: request.param)
    found = BuiltinFunctions()
    assert found.restore() == ""
    yield found
    found.restore()


def _bind_globally() -> None:
    """Do what a module's own `global` statement does."""
    exec("listdir = len", vars(os))  # noqa: S102


@pytest.mark.parametrize(
    ("replace", "named"),
    [
        (lambda: setattr(time, "sleep", len), "it replaced time.sleep"),
        (lambda: vars(json).update(loads=len), "it replaced json.loads"),
        (_bind_globally, "it replaced os.listdir"),
        (lambda: delattr(builtins, "open"), "it replaced builtins.open"),
        (lambda: setattr(builtins, "added", len), ""),
    ],
    ids=["set", "updated", "global", "removed", "added"],
)
def test_a_replaced_builtin_function_is_put_back_and_named(
    ours: BuiltinFunctions, replace: Callable[[], object], named: str
) -> None:
    """In whatever way, each time, and exactly once; additions do not matter."""
    for _ in range(2):
        replace()
        assert ours.restore() == named
        assert (time.sleep, json.loads, os.listdir) == (SLEEP, LOADS, LISTDIR)
        assert builtins.open is OPEN
        assert ours.restore() == ""
    vars(builtins).pop("added", None)


def test_a_child_takes_anew_only_what_has_changed_since_the_fork(
    ours: BuiltinFunctions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a hook of the application has replaced is what is put back later."""
    monkeypatch.setattr(builtin_functions._Last, "taken", ours)
    monkeypatch.setattr(time, "sleep", abs)
    child = builtin_functions.taken()
    assert child.restore() == ""
    kept = [
        one is other for one, other in zip(child._modules, ours._modules, strict=True)
    ]
    assert kept.count(False) == (1 if ours._versions else len(kept))
    monkeypatch.setattr(time, "sleep", len)
    monkeypatch.setattr(json, "loads", len)
    assert child.restore() == "it replaced json.loads, time.sleep"
    assert (time.sleep, json.loads) == (abs, LOADS)
    assert child.restore() == ""


def test_dictionary_versions_are_used_only_on_tested_pythons() -> None:
    """Python 3.11 and 3.12 have them; from 3.13 on nothing relies on them."""
    assert builtin_functions._have_versions() == (
        sys.version_info < (3, 13) and sys.implementation.name == "cpython"
    )
