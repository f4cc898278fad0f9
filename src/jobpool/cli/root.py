"""The command group: launch flags, lazily loaded commands, errors as one line each.

Commands are imported only when they run, so that `jobpool enqueue` does not pay for
the supervisor.
"""

from __future__ import annotations

import difflib
import errno
import gc
import importlib
import io
import sys
import traceback
from typing import Any, Literal, NamedTuple, NoReturn

import click

from jobpool import __version__
from jobpool.cli.exits import TABLE, Exit, exit_of
from jobpool.cli.flags import LaunchFlags, What, launch_flags
from jobpool.cli.terminal.gone import forget_stdout
from jobpool.core.safe_text import lines, one_line
from jobpool.errors import AppError, JobpoolError

_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM}
"""Error numbers of a machine without descriptors, processes or memory left."""


class _Command(NamedTuple):
    """Where a command lives, and its line in the help."""

    where: str
    summary: str
    on_linux: Literal["ISOLATES", "ASKS_WHO"] | None = None
    """Which words of `sandbox.system.platform` say what it does on Linux only, and why;
    None: it works everywhere."""


_SECTIONS = {
    "Start and check": {
        "init": _Command("launch.init:init", "Write jobs.py and jobpool.toml."),
        "run": _Command(
            "launch.launch:run", "Start with the configured pools.", on_linux="ISOLATES"
        ),
        "dev": _Command(
            "launch.dev:dev", "Run jobs in this process, for development: unisolated."
        ),
        "check": _Command(
            "diagnose.check:check",
            "Check the setup; start nothing.",
            on_linux="ISOLATES",
        ),
        "doctor": _Command(
            "diagnose.doctor:doctor",
            "Check platform, limits and store.",
            on_linux="ISOLATES",
        ),
        "exec": _Command(
            "launch.exec:exec_",
            "Run one program now, under limits, without a queue.",
            on_linux="ISOLATES",
        ),
        "alive": _Command(
            "launch.alive:alive",
            "Report whether a supervisor runs here, for probes.",
            on_linux="ISOLATES",
        ),
    },
    "Watch": {
        "status": _Command(
            "diagnose.status:status", "Show supervisors, pools and waiting jobs."
        ),
        "top": _Command(
            "watch.top.command:top", "Watch what runs, waits and died, live."
        ),
        "dashboard": _Command(
            "watch.dashboard:dashboard",
            "Look on in a browser, and act there.",
            on_linux="ASKS_WHO",
        ),
        "metrics": _Command(
            "watch.metrics:metrics",
            "Serve the gauges of the whole fleet to Prometheus.",
        ),
        "alerts": _Command(
            "watch.alerts:alerts", "Show what is wrong, and who is told."
        ),
        "tune": _Command(
            "diagnose.tune.command:tune",
            "Propose limits that fit what jobs have used.",
        ),
    },
    "Jobs": {
        "enqueue": _Command("jobs.enqueue:enqueue", "Enqueue jobs of one kind."),
        "list": _Command("jobs.list_jobs:list_jobs", "List jobs, newest first."),
        "show": _Command(
            "jobs.show.command:show", "Show one job: reason, figures, stack, output."
        ),
        "logs": _Command(
            "watch.logs:logs", "Print what jobs have written, or are writing."
        ),
        "cancel": _Command("jobs.operate:cancel", "Cancel jobs."),
        "retry": _Command("jobs.operate:retry", "Run dead or waiting jobs now."),
        "release": _Command(
            "jobs.operate:release", "Put quarantined jobs back in line."
        ),
        "replay": _Command(
            "jobs.arguments.replay:replay", "Run jobs again with other arguments."
        ),
        "reclaim": _Command(
            "admin.reclaim:reclaim", "Take back a dead supervisor's jobs."
        ),
        "audit": _Command("jobs.audit:audit", "Show who did what to jobs, and why."),
    },
    "Flows, schedules and limits": {
        "flows": _Command(
            "admin.flows.command:flows",
            "List flows; show, pause, cancel, retry or approve one.",
        ),
        "schedules": _Command(
            "admin.schedules.command:schedules",
            "List schedules; run, pause or change one.",
        ),
        "pause": _Command(
            "admin.pause:pause", "Begin no more jobs of a pool, of a kind, or at all."
        ),
        "resume": _Command("admin.pause:resume", "Undo a pause."),
        "quotas": _Command(
            "admin.quotas.command:quotas",
            "List quotas and what waits for them; change one.",
        ),
        "tenants": _Command(
            "admin.quotas.tenants:tenants", "List what tenants may use; change it."
        ),
    },
    "The store": {
        "migrate": _Command(
            "admin.migrate:migrate", "Create the store, or upgrade its schema."
        ),
        "move": _Command("admin.move:move", "Move a SQLite queue to PostgreSQL."),
        "restored": _Command(
            "admin.restored:restored", "Make a store usable after a restore."
        ),
        "prune": _Command("admin.prune:prune", "Delete old finished jobs."),
        "erase": _Command("admin.erase:erase", "Delete what jobs hold about a person."),
    },
    "Learn": {
        "completion": _Command(
            "launch.completion:completion",
            "Complete commands, kinds and ids in a shell.",
        ),
        "manual": _Command("diagnose.manual:manual", "Read or search the manual."),
        "demo": _Command(
            "demo.command:demo",
            "Watch hostile jobs being contained.",
            on_linux="ISOLATES",
        ),
    },
}
"""By the headings of the help, in its order."""
_COMMANDS = {name: command for of in _SECTIONS.values() for name, command in of.items()}
_EVERYWHERE = ("store", "config")
"""Launch flags that are also accepted before another command's name."""


class Root(click.Group):
    """The command group; imports a command only when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's
        """Return the names in the order of the help."""
        return list(_COMMANDS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's
        cmd_name: str,
    ) -> click.Command | None:
        """Import a command; None if there is none of this name."""
        if cmd_name not in _COMMANDS:
            return None
        if does := _COMMANDS[cmd_name].on_linux:
            # Only here: what enqueues in a loop imports nothing of the sandbox.
            from jobpool.sandbox.system import platform  # noqa: PLC0415

            platform.require_linux(getattr(platform, does))
        where = f"jobpool.cli.{_COMMANDS[cmd_name].where}"
        module, _, attribute = where.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        if not gc.isenabled():  # `main` has done that, for the imports
            gc.freeze()
            gc.enable()
        if not isinstance(command, click.Command):
            raise TypeError(f"{where} is not a command")
        return command

    def names(self, ctx: click.Context, what: What) -> list[tuple[str, str]]:
        """Return what a shell may complete to, with words about each.

        Nothing if the store cannot be read: a shell that completes has no room for an
        error, and the command itself will say it.
        """
        from jobpool.cli.jobs import known_names  # noqa: PLC0415 - as all commands

        store, config = (ctx.params.get(name) for name in ("store", "config"))
        try:
            with ctx.scope(cleanup=False):
                return known_names.completions(what, store, config)
        except JobpoolError:
            return []

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; the error for an unknown one suggests the nearest name."""
        if args[0] not in _COMMANDS:
            close = difflib.get_close_matches(args[0], _COMMANDS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else "see jobpool --help"
            ctx.fail(f"No such command {one_line(args[0], 60)!r}; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the commands by section, in one column, without importing any."""
        width = max(map(len, _COMMANDS))
        for heading, commands in _SECTIONS.items():
            with formatter.section(heading):
                formatter.write_dl(
                    [(n.ljust(width), c.summary) for n, c in commands.items()]
                )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the group's own flags."""
        try:
            return super().parse_args(ctx, args)
        except click.ClickException as exc:
            raise _harmless(exc, ctx) from exc

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; an expected error becomes one line and an exit code."""
        if isinstance(sys.stdout, io.TextIOWrapper):
            # What jobs and people wrote may hold what the terminal cannot show.
            sys.stdout.reconfigure(errors="backslashreplace")
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except JobpoolError as exc:
            _fail(exc)
        except KeyboardInterrupt:
            raise click.exceptions.Exit(Exit.INTERRUPTED) from None
        except BrokenPipeError:
            forget_stdout()
            raise click.exceptions.Exit(Exit.PIPE) from None
        except click.ClickException as exc:
            raise _harmless(exc, ctx) from exc
        except (click.exceptions.Exit, click.Abort):
            raise
        except Exception as exc:  # noqa: BLE001 - each is reported, and ends the command
            _fail_unexpected(exc)
        return result


def _harmless(error: click.ClickException, ctx: click.Context) -> click.ClickException:
    """Return click's error with control characters in its words made harmless."""
    said = lines(error.format_message())
    if isinstance(error, click.UsageError):
        return click.UsageError(said, error.ctx or ctx)
    return click.ClickException(said)


def _fail_unexpected(error: Exception) -> NoReturn:
    """Print an unexpected error, and end; an exhausted machine is not a bug."""
    if refusal := _refusal(error):
        click.echo(
            f"Error: the machine refused what jobpool needs ({refusal}); raise its "
            "limits of open files, processes and memory, or end something else",
            err=True,
        )
        raise click.exceptions.Exit(Exit.FAILED) from error
    traceback.print_exc()
    click.echo(
        f"Error: {type(error).__name__} should not have happened; please report "
        "it with the lines above",
        err=True,
    )
    raise click.exceptions.Exit(Exit.BUG) from error


def _fail(error: JobpoolError) -> NoReturn:
    """Print an error with its remedy, and end."""
    if isinstance(error, AppError) and error.traceback:
        click.echo(lines(error.traceback.rstrip()), err=True)
    click.echo(f"Error: {one_line(str(error))}", err=True)
    raise click.exceptions.Exit(exit_of(error)) from error


def _refusal(error: Exception) -> str | None:
    """Return what the machine has run out of, if that caused the error."""
    if isinstance(error, OSError) and error.errno in _EXHAUSTED:
        return error.strerror
    # Python raises nothing more specific when a thread is refused.
    return str(error) if str(error) == "can't start new thread" else None


@click.group(
    cls=Root,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=TABLE,
)
@launch_flags
@click.version_option(__version__, message="jobpool %(version)s")
@click.pass_context
def cli(ctx: click.Context, /, **flags: Any) -> None:
    """Run background jobs that may hang, leak, crash or lie, and never lose one.

    \b
    jobpool --pools cpu=4,io=16     start with pools of these sizes
    jobpool run                     start with the configured pools
    """  # noqa: D301 - click wants the character itself
    given = LaunchFlags(**flags)
    ctx.obj = given
    if ctx.invoked_subcommand == "run":
        return
    if ctx.invoked_subcommand is not None:
        if extra := [name for name in given.names() if name not in _EVERYWHERE]:
            raise click.UsageError(
                f"--{extra[0]} is for starting jobpool, not for "
                f"{ctx.invoked_subcommand!r}; put the command's own options after it"
            )
        return
    if not given.names():
        click.echo(ctx.get_help())
        return
    if given.pools is None:
        raise click.UsageError(
            "what to run? say --pools cpu=4,io=16, or `jobpool run` for the pools of "
            "the configuration"
        )
    # Both only when it starts.
    from jobpool.cli.launch.launch import launch  # noqa: PLC0415
    from jobpool.sandbox.system.platform import require_linux  # noqa: PLC0415

    require_linux()

    launch(given)
