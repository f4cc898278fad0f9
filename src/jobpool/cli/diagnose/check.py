"""`jobpool check`: load everything, start nothing, print what is in force and why."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from jobpool.cli.context import (
    configuration_of,
    now_ms,
    opened,
    published_kinds,
    sources_of,
)
from jobpool.cli.diagnose.quotas import (
    declared,
    declared_objects,
    print_declared,
)
from jobpool.cli.diagnose.schedules import (
    outlook_objects,
    outlooks,
    print_outlooks,
    taken_names,
)
from jobpool.cli.exits import Exit
from jobpool.cli.flags import LaunchFlags, launch_flags
from jobpool.cli.machine.resources import memory_bytes
from jobpool.cli.output import encodable, heading, print_json, print_line, print_table
from jobpool.core.application.app_report import AppReport
from jobpool.core.application.handler_spec import INTERNAL_PREFIX
from jobpool.core.config.effective_limits import KindLimit, kind_limits
from jobpool.core.config.kinds import unknown_kinds
from jobpool.core.config.layers import misspelled_variables
from jobpool.core.config.load import Configuration, refuse_other_store
from jobpool.core.config.settings import AlertSettings, Settings
from jobpool.core.config.sources import DEFAULT
from jobpool.core.events.sentences import parts
from jobpool.core.pool_coverage import pool_events
from jobpool.core.units import show_size
from jobpool.errors import ConfigError
from jobpool.store.records.schedules import ScheduleRow
from jobpool.words.figures import counted

_SQLITE = "sqlite:///"


@click.command()
@click.option(
    "--all",
    "is_all",
    is_flag=True,
    help="Print settings that have their plain default as well, as --json does.",
)
@launch_flags
@click.pass_obj
def check(group: LaunchFlags, /, *, is_all: bool, **flags: Any) -> None:
    """Check configuration, application and store; start nothing.

    Prints the settings that are set or follow from this machine, and where each comes
    from, the limits of each kind, the quotas and who needs them, and when the schedules
    that the application declares come next.
    """
    given = LaunchFlags(**flags).over(group)
    configuration = configuration_of(given)
    report = _inspect(configuration)
    limits = list(kind_limits(configuration, report))
    quotas = declared(configuration.settings, report)
    found = (*_problems(configuration.settings, report), *quotas.problems)
    problems = list(dict.fromkeys(found))  # what stops a start is seen twice
    published = published_kinds(sources_of(given))
    if published is not None:
        problems += unknown_kinds(configuration.settings, report, published)
    remarks = [*misspelled_variables(os.environ), *report.warnings]
    remarks += [*quotas.remarks, *_over_memory(configuration)]
    remarks += _untold(configuration.settings.alerts)
    remarks += _not_installed(configuration.settings)
    for event in pool_events(configuration.settings, report, at_ms=0):
        remarks.append("; ".join(parts(event)))
    stored = _stored_schedules(configuration, given)
    if stored is None:
        url = configuration.settings.store
        remarks.append(f"the store does not exist yet; the first start creates {url}")
    app = configuration.settings.app
    remarks += taken_names(report.schedules, stored or (), app)
    schedules = list(outlooks(report.schedules, stored or (), now_ms()))
    problems += [
        f"schedule {one.name!r}: {s.problem}" for one, s in schedules if s.problem
    ]
    if given.as_json:
        _print_objects(configuration, limits, problems, remarks)
        for said in (*declared_objects(quotas), *outlook_objects(schedules)):
            print_json(encodable(said))
    else:
        _print(configuration, limits, is_all=is_all)
        print_declared(quotas)
        print_outlooks(schedules)
        for remark in remarks:
            print_line(f"note: {remark}")
    for problem in problems:
        click.echo(f"Error: {problem}", err=True)
    if problems:
        raise click.exceptions.Exit(Exit.USAGE)
    if not given.as_json:
        print_line(_all_is_well(_kinds(report), len(limits)))


def _inspect(configuration: Configuration) -> AppReport:
    """Load the application in a separate process.

    Raises:
        AppError: it does not load.
    """
    from jobpool.supervisor.processes.inspect_app import inspect_app  # noqa: PLC0415 - starts processes

    return inspect_app(configuration.settings)


def _all_is_well(kinds: int, limits: int) -> str:
    if not kinds:
        return "nothing is wrong, but nothing can run: no kind is registered"
    return f"all is well: {limits} limits of {counted(kinds, 'kind')}"


def _kinds(report: AppReport) -> int:
    return sum(not spec.kind.startswith(INTERNAL_PREFIX) for spec in report.handlers)


def _problems(settings: Settings, report: AppReport) -> Iterator[str]:
    """Yield what would prevent a start, or is certainly a mistake."""
    from jobpool.supervisor.isolation import Isolation  # noqa: PLC0415 - as above
    from jobpool.supervisor.machine.registry import Registry  # noqa: PLC0415

    try:
        Isolation().check(settings)
    except ConfigError as exc:
        yield str(exc)
    try:
        refuse_other_store(settings, report.store)
        Registry(settings, report)
    except ConfigError as exc:
        yield str(exc)


def _over_memory(configuration: Configuration) -> Iterator[str]:
    """Yield a remark on pools that have no memory budget and exceed the machine."""
    pools = configuration.settings.pools
    wanted = sum(pool.size_max * pool.limits.memory_bytes for pool in pools)
    budget, here = configuration.settings.memory_budget_bytes, memory_bytes()
    if wanted > here and (budget is None or wanted <= budget):
        yield (
            f"all children at their limit would use {show_size(wanted)}, but this "
            f"machine has {show_size(here)}; lower sizes or memory"
        )


def _untold(alerts: AlertSettings | None) -> Iterator[str]:
    """Yield remarks on alerts that nobody would hear, or believe."""
    if alerts is None:
        return
    if alerts.webhook is None and alerts.command is None:
        yield (
            "[alerts]: the queue is watched, but nobody is told; set webhook or "
            "command, or look at `jobpool alerts`"
        )
    if alerts.secret_file is not None:
        try:
            Path(alerts.secret_file).read_bytes()
        except OSError as exc:
            yield (
                f"[alerts] secret_file {alerts.secret_file}: {exc.strerror}; here no "
                "webhook would be sent"
            )
    elif alerts.webhook is not None:
        yield "[alerts]: its webhooks are not signed; see: jobpool manual alerts"


_EXTRAS = {
    "metrics_listen": ("[metrics] listen", "prometheus_client", "metrics"),
    "traces_otlp": ("[traces] otlp", "opentelemetry", "otel"),
    "sentry": ("[sentry] dsn", "sentry_sdk", "sentry"),
}
"""Settings that take more packages, by field: their names, a module, the extra."""


def _not_installed(settings: Settings) -> Iterator[str]:
    """Yield remarks on packages without which a start is refused."""
    for field, (name, module, extra) in _EXTRAS.items():
        if getattr(settings, field) is not None and find_spec(module) is None:
            yield (
                f"{name}: here a start would be refused, since it needs what is not "
                f"installed: pip install 'jobpool[{extra}]'"
            )


def _stored_schedules(
    configuration: Configuration, flags: LaunchFlags
) -> Sequence[ScheduleRow] | None:
    """Open the store, and return its schedules; None: it does not exist yet.

    Raises:
        StoreError: it exists and cannot be used.
    """
    url = configuration.settings.store
    if url.startswith(_SQLITE) and not Path(url.removeprefix(_SQLITE)).exists():
        return None
    with opened(sources_of(flags)) as store:
        return store.schedules()


_ALWAYS = re.compile(r"store|app|pools\.[^.]+\.size|timeout|memory")
"""Settings and limits of kinds that are printed though they have their default."""


def _print(
    configuration: Configuration, limits: list[KindLimit], *, is_all: bool
) -> None:
    """Print what is in force; if not all, without what has its plain default."""
    file = configuration.file
    print_line(f"configuration  {file.path if file else 'no file, defaults only'}")
    settings = [
        (name, value.shown, value.origin)
        for name, value in configuration.values.items()
        if is_all or value.origin != DEFAULT or _ALWAYS.fullmatch(name)
    ]
    print_table(("SETTING", "VALUE", "FROM"), settings)
    if left := len(configuration.values) - len(settings):
        many = counted(left, "setting")
        print_line(f"not shown: {many} at their defaults; see jobpool check --all")
    if limits:
        heading("KINDS")
        print_table(
            ("KIND", "POOL", "LIMIT", "VALUE", "FROM"),
            (
                (li.kind, li.pool, li.name, li.shown, li.origin)
                for li in limits
                if is_all or li.origin != DEFAULT or _ALWAYS.fullmatch(li.name)
            ),
        )


def _print_objects(
    configuration: Configuration,
    limits: list[KindLimit],
    problems: list[str],
    remarks: list[str],
) -> None:
    for name, value in configuration.values.items():
        print_json(
            encodable(
                {
                    "setting": name,
                    "value": value.value,
                    "shown": value.shown,
                    "from": value.origin,
                }
            )
        )
    for limit in limits:
        print_json(
            encodable(
                {
                    "kind": limit.kind,
                    "pool": limit.pool,
                    "limit": limit.name,
                    "value": limit.value,
                    "shown": limit.shown,
                    "from": limit.origin,
                }
            )
        )
    for remark in remarks:
        print_json(encodable({"note": remark}))
    for problem in problems:
        print_json(encodable({"problem": problem}))
