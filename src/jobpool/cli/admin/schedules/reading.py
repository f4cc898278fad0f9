"""`jobpool schedules show` and `next`: one schedule, and its times."""

from __future__ import annotations

from collections.abc import Iterator

import click
import msgspec

from jobpool.cli.admin.schedules.records import schedule_object, tick_object, times
from jobpool.cli.context import now_ms, opened, own_sources
from jobpool.cli.flags import json_flag, store_flags, unredacted_flag
from jobpool.cli.output import encodable, heading, print_json, print_line, print_table
from jobpool.core.application.codec import is_encoded_json
from jobpool.core.config.layers import nearest
from jobpool.core.rules.schedules.schedule import Declared
from jobpool.core.safe_text import one_line
from jobpool.errors import ConfigError, UsageError
from jobpool.operations.redaction import Redactor
from jobpool.operations.schedules import Outlook, outlook
from jobpool.store.protocol import Store
from jobpool.store.records.schedules import ScheduleRow, TickRow
from jobpool.words.figures import clock_time
from jobpool.words.jobs.values import decoded
from jobpool.words.schedules import facts, tick_end

_COUNT_MAX = 10_000
_SHOWN = 3


@click.command("show")
@click.argument("name")
@click.option(
    "--ticks",
    "count",
    type=click.IntRange(0, _COUNT_MAX),
    default=10,
    show_default=True,
    help="Show at most so many of its ticks.",
)
@click.option("--payload", "with_payload", is_flag=True, help="Show its arguments.")
@unredacted_flag
@store_flags
@json_flag
def show_schedule(
    *,
    name: str,
    count: int,
    with_payload: bool,
    unredacted: bool,
    store: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    """Show one schedule: its rule, its times and its last ticks."""
    with opened(own_sources(store, config)) as found:
        row = _existing(found, name)
        ticks = found.ticks(name, count) if count else []
        holds = list(_holds(found, row.declared))
        payload = (
            _arguments(found, row.declared, unredacted=unredacted)
            if with_payload
            else None
        )
    seen = outlook(row, now_ms(), _SHOWN)
    if as_json:
        whole = schedule_object(row, seen)
        if with_payload:
            whole["payload"] = decoded(payload)
        whole["ticks"] = [tick_object(tick) for tick in ticks]
        print_json(encodable(whole))
        return
    print_line(f"schedule {name}")
    for what, text in facts(row, seen, now_ms()):
        print_line(f"{what:8}", text)
    for hold in holds:
        print_line(f"{'waits':8}", f"its jobs do: {hold}")
    if payload is not None:
        print_line(f"{'payload':8}", payload.decode("utf-8", "replace"))
    if seen.upcoming_ms:
        heading("NEXT")
        _print_times(seen)
    if ticks:
        heading("TICKS")
        _print_ticks(ticks, seen)


@click.command("next")
@click.argument("name")
@click.option(
    "--count",
    type=click.IntRange(1, _COUNT_MAX),
    default=5,
    show_default=True,
    help="So many times.",
)
@store_flags
@json_flag
def next_times(
    *, name: str, count: int, store: str | None, config: str | None, as_json: bool
) -> None:
    """Show when a schedule comes next, in UTC and in its zone.

    None while it is paused without an end, and none of a schedule that is retired. One
    that counts from the end of its last job has one at most.
    """
    with opened(own_sources(store, config)) as found:
        row = _existing(found, name)
    seen = outlook(row, now_ms(), count)
    if seen.problem:
        raise ConfigError(f"schedule {name!r}: {seen.problem}")
    if as_json:
        for one in times(seen):
            print_json(one)
    elif seen.upcoming_ms:
        _print_times(seen)
    else:
        click.echo(
            "note: it has no next time; `jobpool schedules show` says why", err=True
        )


def _existing(store: Store, name: str) -> ScheduleRow:
    rows = store.schedules(name)
    if not rows:
        known = [row.declared.name for row in store.schedules()]
        raise UsageError(
            f"there is no schedule {name[:200]!r} in {store.url}; "
            f"{nearest(name, known)}"
        )
    return rows[0]


def _holds(store: Store, declared: Declared) -> Iterator[str]:
    """Yield what is paused so that the jobs of ticks wait, and how to resume it."""
    names = {"pool": declared.pool, "kind": declared.kind, "store": ""}
    for one in store.pauses():
        if one.name == names.get(one.what):
            what = f"{one.what} {one.name}" if one.name else "the whole store"
            flag = what if one.name else "all"
            yield f"{what} is paused, until: jobpool resume --{flag}"


def _arguments(store: Store, declared: Declared, *, unredacted: bool) -> bytes:
    """Return the arguments of a schedule's jobs as they may be shown."""
    redactor = Redactor(store, store.kinds(), is_off=unredacted)
    if not redactor.knows(declared.kind):
        note = f"no supervisor has published {declared.kind}: nothing of it is redacted"
        click.echo(f"note: {one_line(note)}", err=True)
    redaction = redactor.of_arguments(declared.kind, declared.payload)
    payload = redaction.payload(declared.payload) or b""
    if declared.codec and is_encoded_json(payload):
        return msgspec.json.encode(f"encoded by {declared.codec}")
    return payload


def _print_times(seen: Outlook) -> None:
    columns = ("UTC",) if seen.tz == "UTC" else ("UTC", seen.tz)
    print_table(
        columns,
        (
            (clock_time(at_ms), clock_time(at_ms, seen.tz))[: len(columns)]
            for at_ms in seen.upcoming_ms
        ),
    )


def _print_ticks(ticks: list[TickRow], seen: Outlook) -> None:
    has_zone = seen.tz != "UTC"
    print_table(
        ("UTC", *([seen.tz] if has_zone else []), "STATE", "END"),
        (
            (
                clock_time(tick.nominal_ms),
                *([clock_time(tick.nominal_ms, seen.tz)] if has_zone else []),
                tick.state,
                tick_end(tick),
            )
            for tick in ticks
        ),
    )
