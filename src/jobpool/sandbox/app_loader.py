"""Imports the user's application from a module or file, and finds its one object.

Runs in a zygote or a child, never in the supervisor: importing is running.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Protocol, cast, runtime_checkable

from jobpool.core.application.codec import Codec
from jobpool.core.application.command import Command
from jobpool.core.application.handler_spec import HandlerSpec
from jobpool.core.rules.quotas.definition import Quota
from jobpool.core.rules.schedules.schedule import Declared
from jobpool.errors import AppError, ConfigError


@runtime_checkable
class Application(Protocol):
    """The registered handlers of an application, as its own processes see them."""

    def handler_specs(self) -> tuple[HandlerSpec, ...]:
        """Return every handler's declaration, hooks as internal kinds included."""
        ...

    def declared_schedules(self) -> tuple[Declared, ...]:
        """Return the schedules that the application declares."""
        ...

    def declared_quotas(self) -> tuple[Quota, ...]:
        """Return the quotas that the application declares."""
        ...

    def named_codec(self) -> Codec | None:
        """Return the codec that the application's data passes through, if any."""
        ...

    def named_store(self) -> str | None:
        """Return the store URL that the application itself names, if any."""
        ...

    def add_command(self, command: Command) -> None:
        """Make a program a handler, as the configuration declares it."""
        ...

    def start_child(self) -> None:
        """Run the application's ``on_child_start`` hooks in a new child."""
        ...

    def redacted_texts(self, kind: str, payload: bytes) -> Sequence[str]:
        """Return values of a job's arguments that nobody is shown, longest first."""
        ...

    def invoke(self, kind: str, payload: bytes, result_max_bytes: int) -> bytes:
        """Decode the arguments, run the handler, encode its result.

        Args:
            kind: a registered kind or one of its aliases.
            payload: JSON object of arguments by name.
            result_max_bytes: a longer result is refused.

        Returns:
            The result as JSON; ``b"null"`` for None.

        Raises:
            GiveUp: the arguments no longer fit the handler, or the handler raised it.
            TypeError: the result cannot be encoded as JSON.
            ValueError: the result is too large.
            BaseException: whatever the handler raised.
        """
        ...


def load_application(
    app: str, directory: str, commands: Sequence[Command] = ()
) -> Application:
    """Import the application and return its one object with handlers.

    Args:
        app: ``module.path`` or ``path/to/file.py``, followed by ``:attribute`` if the
            module holds several applications.
        directory: absolute; becomes the first entry of ``sys.path``; relative paths
            start there.
        commands: handlers that it gets beside its own.

    Raises:
        AppError: it cannot be imported, or does not hold exactly one application; the
            application's own traceback is attached. Or a command cannot be added.
    """
    application = _imported(app, directory)
    for command in commands:
        try:
            application.add_command(command)
        except ConfigError as exc:
            raise AppError(f"[commands.{command.kind}]: {exc}") from exc
    return application


def _imported(app: str, directory: str) -> Application:
    target, _, attribute = app.partition(":")
    if directory in sys.path:
        sys.path.remove(directory)
    sys.path.insert(0, directory)
    if target.endswith(".py") or "/" in target:
        module = _import_file(Path(directory, target), Path(directory))
    else:
        module = _import(target, f"application {app!r}")
    return _named(module, attribute) if attribute else _only(module, app)


def _import_file(file: Path, directory: Path) -> ModuleType:
    """Import a file under the name that its own modules would use."""
    if not file.is_file():
        raise AppError(
            f"no application: there is no file {file}; name it with --app, as "
            "'module', 'path/to/file.py' or 'module:attribute'"
        )
    root = directory if file.is_relative_to(directory) else file.parent
    parts = file.relative_to(root).with_suffix("").parts
    if not all(part.isidentifier() for part in parts):
        root, parts = file.parent, (file.stem,)
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    module = _import(".".join(parts), f"application {str(file)!r}")
    found = getattr(module, "__file__", None)
    if found is None or not os.path.samefile(found, file):  # noqa: PTH121 - str, not Path
        raise AppError(
            f"application {str(file)!r}: another module is already named "
            f"{module.__name__!r} ({found}); rename the file"
        )
    return module


def _import(name: str, what: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as exc:
        if exc.name is not None and f"{name}.".startswith(f"{exc.name}."):
            raise AppError(
                f"{what}: there is no module {exc.name!r} in {sys.path[0]} or the "
                "installed packages; name the application with --app, and start "
                "jobpool in its directory",
                _traceback(exc),
            ) from exc
        raise AppError(f"{what} does not import: {exc}", _traceback(exc)) from exc
    except SystemExit as exc:
        raise AppError(
            f"{what} calls sys.exit({exc.code!r}) when it is imported; move what is "
            "meant for the command line under if __name__ == '__main__'",
            _traceback(exc),
        ) from exc
    except BaseException as exc:
        raise AppError(
            f"{what} does not import: {type(exc).__name__}: {_text_of(exc)}",
            _traceback(exc),
        ) from exc


def _named(module: ModuleType, attribute: str) -> Application:
    found = getattr(module, attribute, None)
    if found is None:
        raise AppError(
            f"module {module.__name__!r} has no attribute {attribute!r}; it has "
            f"{_names(module) or 'no JobPool at all'}"
        )
    if not _is_application(found):
        raise AppError(
            f"{module.__name__}:{attribute} is of type {type(found).__name__}; a "
            "JobPool is expected"
        )
    return cast("Application", found)


def _only(module: ModuleType, app: str) -> Application:
    found = {
        id(value): value for value in vars(module).values() if _is_application(value)
    }
    if not found:
        raise AppError(
            f"module {module.__name__!r} holds no JobPool; write jobs = JobPool() in "
            "it and declare handlers with @jobs.job(...)"
        )
    if len(found) > 1:
        raise AppError(
            f"module {module.__name__!r} holds {len(found)} JobPools ("
            f"{_names(module)}); name the one to run, such as --app "
            f"{app}:{_names(module).partition(',')[0]}"
        )
    return cast("Application", next(iter(found.values())))


def _is_application(value: object) -> bool:
    """Check the type only: an attribute of a lazy object may run or raise anything."""
    kind = type(value)
    return not issubclass(kind, type) and issubclass(kind, Application)


def _names(module: ModuleType) -> str:
    return ", ".join(
        name for name, value in vars(module).items() if _is_application(value)
    )


def _text_of(exc: BaseException) -> str:
    try:
        return str(exc)
    except Exception as failure:  # noqa: BLE001 - anything can happen in a __str__
        return f"<its __str__ raised {type(failure).__name__}>"


def _traceback(exc: BaseException) -> str:
    """Format a traceback, starting at the application's own first line."""
    tb = exc.__traceback__
    while tb is not None and (
        tb.tb_frame.f_code.co_filename in (__file__, importlib.__file__)
        or tb.tb_frame.f_code.co_filename.startswith("<frozen importlib")
    ):
        tb = tb.tb_next
    return "".join(traceback.format_exception(type(exc), exc, tb))
