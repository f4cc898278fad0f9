"""`jobpool alerts`: what is wrong, who is told; and whether they would hear it."""

from __future__ import annotations

import signal
import threading
from typing import Any

import click

from jobpool.cli.context import now_ms, opened, own_sources
from jobpool.cli.exits import Exit
from jobpool.cli.flags import group_flags, json_flag, store_flags
from jobpool.cli.launch.alerts import watched
from jobpool.cli.output import (
    encodable,
    heading,
    print_json,
    print_line,
    print_rows,
    print_table,
)
from jobpool.core.config.load import (
    alerts_of,
    client_settings,
    store_of,
    without_password,
)
from jobpool.core.config.options import ALERTS
from jobpool.core.config.settings import AlertSettings, ClientSettings
from jobpool.core.config.sources import field_of
from jobpool.core.event_lines import human_line, json_line
from jobpool.core.events.event import Event
from jobpool.errors import ConfigError
from jobpool.monitoring.alerts.catalogue import RULES
from jobpool.monitoring.alerts.messages import facts_of
from jobpool.store.records.alerts import AlertRow, Incident
from jobpool.words.figures import ago

_NOBODY = (
    "there is no [alerts] in the configuration: set webhook or command there, or "
    "watch = true; see: jobpool manual alerts"
)
_WATCHED_MS_MAX = 120_000
"""It is looked each 15 s, and more rarely only if a look takes long."""


@click.group(invoke_without_command=True)
@click.option("--watch", is_flag=True, help="Watch and alert until ended, anywhere.")
@click.option("--ended", is_flag=True, help="Show incidents that are over as well.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="Show at most so many incidents.",
)
@store_flags
@json_flag
@click.pass_context
def alerts(
    ctx: click.Context,
    /,
    *,
    watch: bool,
    ended: bool,
    limit: int,
    store: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    """Show what is wrong with the queue, the rules, and who is told.

    Supervisors watch by themselves, once [alerts] says whom to tell. With --watch this
    process does, too: run it where it lives if all of them die.
    """
    if ctx.invoked_subcommand is not None:
        group_flags(ctx, store=store, config=config, as_json=as_json)
        return
    sources = own_sources(store, config)
    settings = alerts_of(sources)
    if watch:
        _watch(client_settings(sources), settings, as_json=as_json)
        return
    with opened(sources) as found:
        incidents = found.incidents(ended=ended, limit=limit)
        told = found.alerts(limit)
        watched_ms = found.watch().at_ms
    unsent = [one for one in told if one.done_at_ms is None or one.error]
    if as_json:
        for incident in incidents:
            print_json(
                encodable(
                    {
                        "id": incident.id,
                        "summary": incident.summary,
                        **facts_of(incident),
                    }
                )
            )
        return
    if watched_ms and now_ms() - watched_ms > _WATCHED_MS_MAX:
        print_line(
            f"NOT WATCHED: the last look was {ago(watched_ms, now_ms())}. Who watches "
            "is dead, or cannot write to the store (jobpool status); what follows was "
            "found before"
        )
    _print_incidents(incidents)
    if unsent:
        heading("NOT SENT")
        cells = (_alert_cells(one, settings) for one in unsent)
        print_table(("ALERT", "TO", "STATE", "TRIES", "WHY"), cells)
    heading("RULES")
    if settings is None:
        print_line(_NOBODY)
    else:
        _print_rules(settings)
    seen = ago(watched_ms or None, now_ms())
    print_line(f"last watched: {seen or 'never'}")


@click.command("test")
@store_flags
@json_flag
def test_alerts(*, store: str | None, config: str | None, as_json: bool) -> None:
    """Send a test to each receiver, and say what came back."""
    from jobpool.monitoring.alerts.messages import trial  # noqa: PLC0415 - only here
    from jobpool.monitoring.alerts.receivers.configured import receivers_of  # noqa: PLC0415
    from jobpool.monitoring.alerts.receivers.receiver import NotTaken  # noqa: PLC0415

    sources = own_sources(store, config)
    settings = alerts_of(sources)
    receivers = {} if settings is None else receivers_of(settings)
    if not receivers:
        raise ConfigError(f"nobody is told anything: {_NOBODY}")
    queue = without_password(store_of(sources).value)
    name, body = trial(queue, now_ms())
    failed = False
    for who, receiver in receivers.items():
        try:
            said, is_taken = receiver.send(name, body), True
        except NotTaken as exc:
            said, is_taken, failed = str(exc), False, True
        if as_json:
            told = {"receiver": who, "place": receiver.place, "taken": is_taken}
            print_json(encodable({**told, "said": said}))
        else:
            print_line(f"{who:8}", "ok" if is_taken else "FAILED", receiver.place, said)
    if failed:
        raise click.exceptions.Exit(Exit.FAILED)


alerts.add_command(test_alerts)


def _watch(
    settings: ClientSettings, rules: AlertSettings | None, *, as_json: bool
) -> None:
    """Watch until a signal comes.

    Raises:
        ConfigError: the configuration has no `[alerts]`.
    """
    if rules is None:
        raise ConfigError(f"nothing to watch: {_NOBODY}")
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    line = json_line if as_json else human_line

    def found(event: Event) -> None:
        click.echo(line(event))

    with watched(settings, rules, found):
        click.echo(f"watching {without_password(settings.store)}", err=True)
        over.wait()


def _print_incidents(incidents: list[Incident]) -> None:
    if not incidents:
        print_line("nothing is wrong that a rule has found")
        return
    now = now_ms()
    print_rows(
        ("ID", "RULE", "SUBJECT", "SINCE", "ENDED", "SUMMARY"),
        [
            (
                one.id,
                one.rule,
                one.subject or None,
                ago(one.opened_at_ms, now),
                ago(one.ended_at_ms, now),
                one.summary,
            )
            for one in incidents
        ],
        right=("ID",),
        spare=("ID", "SUBJECT", "ENDED"),
    )


def _print_rules(settings: AlertSettings) -> None:
    rows = []
    for rule in RULES.values():
        value = getattr(settings, field_of(AlertSettings, rule.name))
        shown = ALERTS[rule.name].show(value)
        rows.append((rule.name, shown, rule.severity, rule.runbook))
    print_table(("RULE", "FROM", "SEVERITY", "READ"), rows)
    for who in ("webhook", "command", "heartbeat_url", "digest"):
        print_line(f"{who}: {ALERTS[who].show(getattr(settings, who))}")


def _alert_cells(alert: AlertRow, settings: AlertSettings | None) -> tuple[Any, ...]:
    why = alert.error
    if alert.done_at_ms is None and not getattr(settings, alert.receiver, None):
        why = f"no {alert.receiver} is configured here; given up after 2 days"
    return (alert.name, alert.receiver, alert.state, alert.tries, why)
