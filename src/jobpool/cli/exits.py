"""Exit codes, and the code that each error ends a command with."""

from __future__ import annotations

from enum import IntEnum

from jobpool import errors


class Exit(IntEnum):
    """How a command ended."""

    OK = 0
    FAILED = 1
    USAGE = 2
    APP = 3
    STORE = 4
    WENT_BACK = 5
    BUG = 70
    INTERRUPTED = 130
    PIPE = 141


MEANING = {
    Exit.OK: "done",
    Exit.FAILED: "it could not be done, or the job was not found",
    Exit.USAGE: "the command, its arguments or the configuration are wrong",
    Exit.APP: "the application does not load",
    Exit.STORE: "the store cannot be used",
    Exit.WENT_BACK: "the store went back in time; use `jobpool restored`",
    Exit.BUG: "a bug in jobpool; please report it",
    Exit.INTERRUPTED: "interrupted by Ctrl-C",
    Exit.PIPE: "the output's reader went away",
}
TABLE = "\b\nExit codes:\n" + "\n".join(
    f"  {code:<4} {meaning}" for code, meaning in MEANING.items()
)
"""The table as the help shows it."""
_OF_ERRORS = (
    (errors.AppError, Exit.APP),
    (errors.StoreWentBack, Exit.WENT_BACK),
    (errors.StoreError, Exit.STORE),
    (errors.KeyConflict, Exit.FAILED),
    (errors.UnknownKind, Exit.FAILED),
    (errors.ConfigError, Exit.USAGE),
    (errors.UsageError, Exit.USAGE),
    (errors.JobpoolBug, Exit.BUG),
)
"""The first that fits counts: some are special cases of later ones."""


def exit_of(error: errors.JobpoolError) -> Exit:
    """Return the exit code that an error ends the command with."""
    fitting = (code for kind, code in _OF_ERRORS if isinstance(error, kind))
    return next(fitting, Exit.FAILED)
