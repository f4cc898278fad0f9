"""Which tasks there are: those of the ``tasks`` modules of apps, and of some others.

A supervisor has to know all tasks before it leases a job. So whatever enqueues must
know the same ones, and refuses others: their jobs would wait for ever.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.utils.module_loading import module_has_submodule

from jobpool.integrations.django.compat import Task


def declared_task(task: Any, modules: tuple[str, ...]) -> Any | None:
    """Return a task as its module declares it; None: no supervisor would know it.

    Args:
        task: perhaps with other values, by ``using(...)``.
        modules: those that ``OPTIONS`` name.
    """
    module = task.func.__module__
    if any(_is_in(module, name) for name in _names(modules)):
        found = getattr(sys.modules.get(module), task.func.__name__, None)
        if isinstance(found, Task) and found.func is task.func:
            return found
    return all_tasks(modules).get(task.module_path)


def all_tasks(modules: tuple[str, ...]) -> dict[str, Any]:
    """Import all modules that define tasks; return these by path.

    Raises:
        Exception: whatever a module raises.
    """
    found: dict[str, Any] = {}
    for name in _names(modules):
        for module in _imported(name):
            for attribute, value in list(vars(module).items()):
                if isinstance(value, Task):
                    # A task is its function's namesake; others are variants of it.
                    if attribute == value.func.__name__:
                        found[value.module_path] = value
                    else:
                        found.setdefault(value.module_path, value)
    return found


def _names(modules: tuple[str, ...]) -> Iterator[str]:
    yield from modules
    for app in apps.get_app_configs():
        if module_has_submodule(app.module, "tasks"):
            yield f"{app.name}.tasks"


def _imported(name: str) -> Iterator[Any]:
    """Import a module and all that is below it."""
    module = importlib.import_module(name)
    yield module
    path = getattr(module, "__path__", None)
    for below in pkgutil.iter_modules(path, f"{name}.") if path else ():
        yield from _imported(below.name)


def _is_in(module: str, name: str) -> bool:
    return module == name or module.startswith(f"{name}.")
