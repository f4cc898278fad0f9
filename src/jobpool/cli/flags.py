"""Options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import click
import msgspec
from click.shell_completion import CompletionItem

from jobpool.core.jobs.outcome import Outcome

C = TypeVar("C", bound=Callable[..., Any])

COMPLETION = "_JOBPOOL_COMPLETE"
"""Variable by which a shell asks click what a word may be completed to."""
What = Literal["job", "kind", "pool", "tenant", "quota"]
"""What a shell completes."""
LOG_FORMATS = ("human", "json")
_REF = re.compile(r"\d+-\w+", re.ASCII)
_FLOW_REF = re.compile(r"flow-\d+-\w+", re.ASCII)
LOG_LEVELS = ("debug", "info", "warning", "error")


def completed(ctx: click.Context, what: What, begun: str) -> list[CompletionItem]:
    """Return what a shell may complete a word to; the command group knows it."""
    group: Any = ctx.find_root().command
    return [
        CompletionItem(name, help=words)
        for name, words in group.names(ctx, what)
        if name.startswith(begun)
    ]


class Name(click.ParamType[str]):
    """A text that a shell completes to a name that the store knows."""

    name = "text"

    def __init__(self, what: What) -> None:
        self._what = what

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG002 - click's
        incomplete: str,
    ) -> list[CompletionItem]:
        """Return the names that begin so."""
        return completed(ctx, self._what, incomplete)


class JobNumber(click.IntRange):
    """A job's id on the command line."""

    name = "job's number; to find a job by its key: jobpool show --key KEY"

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG002 - click's
        incomplete: str,
    ) -> list[CompletionItem]:
        """Return the newest jobs whose ids begin so."""
        return completed(ctx, "job", incomplete)


class JobName(click.ParamType[int | str]):
    """A job's id on the command line, or its ref: that stays a text."""

    name = JobNumber.name
    shell_complete = JobNumber.shell_complete

    def convert(self, value: Any, param: Any, ctx: Any) -> int | str:
        """Return an id as a number."""
        if isinstance(value, str) and _REF.fullmatch(value):
            return value
        if isinstance(value, str) and _FLOW_REF.fullmatch(value):
            self.fail(
                f"{value} is a flow's ref; its jobs: jobpool flows show {value}",
                param,
                ctx,
            )
        number: int = _NUMBER.convert(value, param, ctx)
        return number


class FlowName(click.ParamType[int | str]):
    """A flow's id on the command line, or its ref: that stays a text."""

    name = "flow's number or ref, as `jobpool flows` shows them"

    def convert(self, value: Any, param: Any, ctx: Any) -> int | str:
        """Return an id as a number."""
        if isinstance(value, str) and _FLOW_REF.fullmatch(value):
            return value
        try:
            return int(_NUMBER.convert(value, param, ctx))
        except click.BadParameter:
            self.fail(f"{value!r} is not a {self.name}", param, ctx)


_NUMBER = JobNumber(min=1)


class LaunchFlags(msgspec.Struct, frozen=True, kw_only=True):
    """The launch flags on the command line; None: not given."""

    pools: str | None = None
    app: str | None = None
    app_version: str | None = None
    store: str | None = None
    memory: str | None = None
    timeout: str | None = None
    drain: str | None = None
    lease_ttl: str | None = None
    config: str | None = None
    burst: bool = False
    log_format: str | None = None
    log_level: str | None = None
    as_json: bool = False

    def names(self) -> list[str]:
        """Return the flags that were given."""
        return [
            name.removeprefix("as_").replace("_", "-")
            for name in self.__struct_fields__
            if getattr(self, name) not in (None, False)
        ]

    def options(self) -> dict[str, str | None]:
        """Return the flags by option name, as the configuration's strongest layer."""
        return {
            "size": self.pools,
            "app": self.app,
            "app_version": self.app_version,
            "store": self.store,
            "memory": self.memory,
            "timeout": self.timeout,
            "drain": self.drain,
            "lease_ttl": self.lease_ttl,
        }

    def over(self, weaker: LaunchFlags) -> LaunchFlags:
        """Return these flags; those not given are taken from *weaker*."""
        return LaunchFlags(
            **{
                name: _first(getattr(self, name), getattr(weaker, name))
                for name in self.__struct_fields__
            }
        )


def _first(value: Any, weaker: Any) -> Any:
    return weaker if value in (None, False) else value


_STORE = click.option(
    "--store", metavar="URL", help="Store URL; default sqlite:///jobpool.db."
)
_CONFIG = click.option(
    "--config",
    metavar="FILE",
    help="Configuration; default conf/jobpool.toml, jobpool.toml or pyproject.toml.",
)
_APP = click.option(
    "--app", metavar="APP", help="Application module or file; default ./jobs.py."
)
_LOG = (
    click.option(
        "--log-format",
        type=click.Choice(LOG_FORMATS),
        help="Format of the log on stderr; default human on a terminal, else json.",
    ),
    click.option(
        "--log-level",
        type=click.Choice(LOG_LEVELS),
        help="Lowest level to log; default info.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Same as --log-format json."),
)
_BURST = click.option("--burst", is_flag=True, help="Run what is due, then exit.")
_LAUNCH = (
    click.option(
        "--pools", metavar="SIZES", help="Pool sizes, such as cpu=4,io=16 or cpu=2..8."
    ),
    _APP,
    click.option(
        "--app-version",
        metavar="TEXT",
        help="The application's version; default a hash of what it imports.",
    ),
    _STORE,
    click.option(
        "--memory",
        metavar="LIMITS",
        help="Memory limits, such as cpu=1GiB,io=512MiB, or one for all pools.",
    ),
    click.option(
        "--timeout",
        metavar="LIMITS",
        help="Time limits, such as cpu=10m,io=2m, or one for all pools.",
    ),
    click.option(
        "--drain",
        metavar="TIME",
        help="How long running jobs may go on at shutdown; default 25s.",
    ),
    click.option(
        "--lease-ttl",
        metavar="TIME",
        help="Shared stores: a host silent for this long is dead; default 1m.",
    ),
    _CONFIG,
    _BURST,
    *_LOG,
)


def launch_flags(command: C) -> C:
    """Give a command the launch flags."""
    for option in reversed(_LAUNCH):
        command = option(command)
    return command


def dev_flags(command: C) -> C:
    """Give a command those launch flags that need no children."""
    for option in reversed((_APP, _STORE, _CONFIG, _BURST, *_LOG)):
        command = option(command)
    return command


def store_flags(command: C) -> C:
    """Give a command ``--store`` and ``--config``."""
    return _STORE(_CONFIG(command))


def json_flag(command: C) -> C:
    """Give a command ``--json``."""
    return click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON object per line."
    )(command)


def unredacted_flag(command: C) -> C:
    """Give a command ``--unredacted``."""
    return click.option(
        "--unredacted", is_flag=True, help="Show what handlers redact as well."
    )(command)


def note_flag(command: C) -> C:
    """Give a command ``--note``."""
    return click.option(
        "--note", metavar="TEXT", help="Why; kept in the audit trail: jobpool audit."
    )(command)


def force_flag(command: C) -> C:
    """Give a command ``--force``."""
    return click.option(
        "--force", is_flag=True, help="Accept a name that is not in use yet."
    )(command)


def numbers_flags(command: C) -> C:
    """Give a command ``--concurrency``, ``--rate`` and ``--burst``."""
    for option in (
        click.option(
            "--burst",
            type=click.IntRange(min=1),
            metavar="N",
            help="So many may begin at once after a pause. Default: a second's worth.",
        ),
        click.option(
            "--rate", metavar="RATE", help="So many may begin: 10/s, 100/m, 3/10s."
        ),
        click.option(
            "--concurrency",
            type=click.IntRange(min=1),
            metavar="N",
            help="So many may run at once.",
        ),
    ):
        command = option(command)
    return command


def group_flags(
    ctx: click.Context, *, store: str | None, config: str | None, as_json: bool
) -> None:
    """Pass on what was said before the name of a group's command.

    Raises:
        UsageError: it is an option of the command itself.
    """
    if as_json:
        raise click.UsageError(
            f"--json belongs behind {ctx.invoked_subcommand!r}: it is an option of "
            "that command"
        )
    group = ctx.find_object(LaunchFlags) or LaunchFlags()
    ctx.obj = LaunchFlags(store=store, config=config).over(group)


def selection_flags(command: C) -> C:
    """Give a command its filters: see the options."""
    for option in (
        click.option(
            "--error-class",
            metavar="NAME",
            help="Only jobs whose last attempt has raised this: ConnectionError, or "
            "with its module.",
        ),
        click.option(
            "--outcome",
            type=click.Choice([one.value for one in Outcome]),
            help="Only jobs whose last attempt has ended so.",
        ),
        click.option(
            "--since",
            metavar="TIME",
            help="Only jobs that ended (unfinished: were created) since then: "
            "2h, or an ISO 8601 time.",
        ),
        click.option(
            "--tenant",
            type=Name("tenant"),
            metavar="NAME",
            help="Only this tenant's jobs.",
        ),
        click.option(
            "--pool",
            type=Name("pool"),
            metavar="NAME",
            help="Only jobs of this pool.",
        ),
        click.option(
            "--kind",
            type=Name("kind"),
            metavar="KIND",
            help="Only jobs of this kind.",
        ),
    ):
        command = option(command)
    return command
