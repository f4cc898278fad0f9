"""A hash of the source files of an application: its version, unless it names one.

Theory of operation. Two hosts of one deployment must get the same hash, and their files
have other times and perhaps other directories. So it is made of modules' names and
their files' contents. It covers what was imported from the launch directory, and the
application's own package wherever that is installed; not the standard library and other
packages, which have versions of their own.
"""

from __future__ import annotations

import hashlib
import os
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

import msgspec

from jobpool.core.application.command import Command

_INSTALLED = tuple(
    f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages")
)
_OURS = "jobpool"
_SOURCE = ".py"
_DIGEST_BYTES = 6
"""As short as a commit's: 12 digits. Few versions are ever compared."""


def source_hash(app: str, directory: str, commands: Sequence[Command] = ()) -> str:
    """Return the hash of what has been imported by now, and of declared commands.

    Args:
        app: the application, as for `load_application`.
        directory: the launch directory.
        commands: what the configuration declares.
    """
    whole = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    if commands:
        whole.update(msgspec.json.encode(commands, order="sorted"))
    for name, path in sorted(own_files(app, directory)):
        try:
            with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - many, fast
                content = file.read()
        except OSError:
            # It was imported from an archive, or is gone since: its name must do.
            content = b""
        whole.update(f"{name}\0{len(content)}\0".encode("utf-8", "surrogatepass"))
        whole.update(content)
    return whole.hexdigest()


def own_files(app: str, directory: str) -> Iterator[tuple[str, str]]:
    """Yield names and source files of the application's modules."""
    target = app.partition(":")[0]
    roots, package = [os.path.realpath(directory)], target.partition(".")[0]
    if target.endswith(_SOURCE) or "/" in target:
        package = ""
        roots.append(os.path.realpath(Path(directory, target).parent))
    inside = tuple(os.path.join(root, "") for root in roots)  # noqa: PTH118 - a text
    library = os.path.join(os.path.realpath(sysconfig.get_path("stdlib")), "")  # noqa: PTH118
    is_own: dict[str, bool] = {}
    """By folder: to resolve the links of every single file would take longest."""
    for name, module in list(sys.modules.items()):
        file = _file_of(module)
        if file is None or not file.endswith(_SOURCE):
            continue
        top = name.partition(".")[0]
        folder = os.path.dirname(file)  # noqa: PTH120 - many, fast
        if folder not in is_own:
            path = os.path.join(os.path.realpath(folder), "")  # noqa: PTH118
            is_own[folder] = path.startswith(inside) and not (
                path.startswith(library) or any(one in path for one in _INSTALLED)
            )
        if top != _OURS and (top == package or is_own[folder]):
            yield name, file


def _file_of(module: object) -> str | None:
    """Return where a module comes from, without running any code of a lazy one."""
    if not issubclass(type(module), ModuleType):
        return None
    attributes = ModuleType.__getattribute__(module, "__dict__")
    file = attributes.get("__file__")
    return file if isinstance(file, str) else None
