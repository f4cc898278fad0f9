"""A command as the function of a handler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jobpool.client.declare.commands.exit_codes import ExitCodes
from jobpool.client.declare.commands.template import Template
from jobpool.core.units import SizeLike, size_bytes
from jobpool.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import PurePath

RESULT = "64KiB"


def command_function(
    kind: str,
    argv: Sequence[str],
    *,
    stdin: str | None = None,
    exit_codes: Mapping[Any, str] | None = None,
    defaults: Mapping[str, str | float] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | PurePath | None = None,
    result: SizeLike = RESULT,
) -> Callable[..., str]:
    """Return a function that runs a program, with its arguments as parameters.

    Args:
        kind: its name.
        argv: see `Template`, as for stdin and defaults.
        stdin: see `argv`.
        exit_codes: see `ExitCodes`.
        defaults: see `argv`.
        env: variables beside the child's own.
        cwd: the directory that the program runs in; None: the child's.
        result: how much of the end of its standard output is the result.

    Raises:
        ConfigError: a value is wrong.
    """
    template = Template(argv, stdin, defaults or {})
    codes = ExitCodes(exit_codes or {})
    own_env = _env(env or {})
    directory = None if cwd is None else str(cwd)
    kept_bytes = size_bytes(result, "result")

    def command(*args: Any, **kwargs: Any) -> str:
        # Late: subprocess is not for those who only enqueue.
        from jobpool.client.declare.commands.run import run  # noqa: PLC0415 - see above

        bound = template.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return run(
            template.filled(bound.arguments),
            stdin=template.stdin_of(bound.arguments),
            env=own_env,
            cwd=directory,
            exit_codes=codes,
            result_bytes=kept_bytes,
        )

    command.__name__ = command.__qualname__ = kind
    command.__doc__ = f"Run {template.program}."
    command.__signature__ = template.signature  # type: ignore[attr-defined]
    command.__annotations__ = {**template.types, "return": str}
    return command


def _env(given: Mapping[str, str]) -> dict[str, str]:
    for name, value in given.items():
        if not all(isinstance(text, str) for text in (name, value)):
            raise ConfigError(
                f"env: {name!r:.40} is {type(value).__name__}; expected text for each "
                "variable"
            )
        if not name or "=" in name or "\0" in name + value:
            raise ConfigError(f"env: {name!r:.40} cannot be the name of a variable")
    return dict(given)
