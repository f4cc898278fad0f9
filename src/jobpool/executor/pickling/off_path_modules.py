"""Modules that are loaded here but that another process could not import.

They are sent as the paths of their files.
"""

from __future__ import annotations

import importlib.util
import sys
from functools import lru_cache
from types import ModuleType


@lru_cache(maxsize=4096)
def stray_file(module: str | None) -> str:
    """Return a loaded module's file if another process could not import it; else ""."""
    loaded = sys.modules.get(module or "")
    file = getattr(loaded, "__file__", None)
    if module is None or file is None or _is_importable(module, file):
        return ""
    return str(file)


@lru_cache(maxsize=4096)
def _is_importable(module: str, file: str | None) -> bool:
    """Say whether another process with our path would import this file."""
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


def import_file(module: str, path: str) -> None:
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
    """Create the packages above such a module: pickle imports them."""
    parent, _, _leaf = module.rpartition(".")
    if not parent or parent in sys.modules:
        return
    _stand_in_for_parents(parent)
    package = ModuleType(parent)
    package.__path__ = []
    sys.modules[parent] = package
