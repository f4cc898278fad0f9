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
    BUG = 70
    INTERRUPTED = 130
    PIPE = 141


MEANING = {
    Exit.OK: "done",
    Exit.FAILED: "it could not be done, or the job was not found",
    Exit.USAGE: "the command, its arguments or the configuration are wrong",
    Exit.APP: "the application does not load",
    Exit.STORE: "the store cannot be used",
    Exit.BUG: "a bug in jobpool; please report it",
    Exit.INTERRUPTED: "interrupted by Ctrl-C",
    Exit.PIPE: "the reader of the output went away",
}
TABLE = "\b\nExit codes:\n" + "\n".join(
    f"  {code:<4} {meaning}" for code, meaning in MEANING.items()
)
"""The table as the help shows it."""


def exit_of(error: errors.JobpoolError) -> Exit:
    """Return the exit code that an error ends the command with."""
    match error:
        case errors.AppError():
            return Exit.APP
        case errors.StoreError():
            return Exit.STORE
        case errors.KeyConflict() | errors.UnknownKind():
            return Exit.FAILED
        case errors.ConfigError() | errors.UsageError():
            return Exit.USAGE
        case errors.JobpoolBug():
            return Exit.BUG
        case _:
            return Exit.FAILED
