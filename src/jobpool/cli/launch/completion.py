"""`jobpool completion`: what a shell needs to complete commands, kinds and ids."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from jobpool.cli.flags import COMPLETION
from jobpool.errors import UsageError

_SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(ctx: click.Context, *, shell: str) -> None:
    r"""Print a script that has the shell complete jobpool's commands.

    Besides commands and options it completes kinds, pools, tenants and the ids of the
    newest jobs, which it reads from the store. For bash, in ~/.bashrc:

    \b
      eval "$(jobpool completion bash)"

    For zsh likewise in ~/.zshrc, and for fish: jobpool completion fish | source
    """
    found = get_completion_class(shell)
    if found is None:
        raise UsageError(f"click, which reads the command line, does not know {shell}")
    click.echo(found(ctx.find_root().command, {}, "jobpool", COMPLETION).source())
