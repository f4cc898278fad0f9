"""What `check` and `status` say of schedules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jobpool.cli.output import heading, print_line, print_table
from jobpool.core.event_lines import iso_time
from jobpool.core.rules.schedules.schedule import Declared
from jobpool.operations.schedules import Outlook, outlook, state_of
from jobpool.store.records.schedules import ScheduleRow
from jobpool.words.figures import clock_time, counted
from jobpool.words.pauses import schedule_pause_words

_SHOWN = 3
_PAUSES_MAX = 10


def outlooks(
    declared: Sequence[Declared], stored: Sequence[ScheduleRow], now_ms: int
) -> Iterator[tuple[Declared, Outlook]]:
    """Yield what is declared with its next times.

    Args:
        declared: by the code.
        stored: what the store has; a period counts from when it was stored first.
        now_ms: from when it counts otherwise.
    """
    since = {row.declared.name: row for row in stored}
    for one in declared:
        row = since.get(one.name)
        is_same = row is not None and row.declared.rule == one.rule
        since_ms = row.since_ms if row is not None and is_same else now_ms
        new = ScheduleRow(
            declared=one,
            application=None,
            app_version=None,
            since_ms=since_ms,
            updated_ms=now_ms,
            last_ms=None,
            next_ms=None,
            missed=0,
        )
        yield one, outlook(new, now_ms, _SHOWN)


def print_outlooks(seen: Sequence[tuple[Declared, Outlook]]) -> None:
    """Print the next times of what is declared."""
    if not seen:
        return
    heading("SCHEDULES")
    print_table(
        ("NAME", "KIND", "WHEN", "NEXT"),
        (
            (
                one.name,
                one.kind,
                found.when,
                ", ".join(clock_time(at_ms) or "" for at_ms in found.upcoming_ms),
            )
            for one, found in seen
        ),
    )


def outlook_objects(
    seen: Sequence[tuple[Declared, Outlook]],
) -> Iterator[Mapping[str, Any]]:
    """Yield the same for ``--json``."""
    for one, found in seen:
        yield {
            "schedule": one.name,
            "kind": one.kind,
            "when": found.when,
            "tz": one.rule.tz,
            "next": [iso_time(at_ms) for at_ms in found.upcoming_ms],
        }


def taken_names(
    declared: Sequence[Declared], stored: Sequence[ScheduleRow], application: str
) -> Iterator[str]:
    """Yield remarks on schedules whose names others have in the store."""
    active = [row for row in stored if row.retired_ms is None]
    owners = {row.declared.name: row.application for row in active}
    for one in declared:
        if one.name in owners and (owner := owners[one.name]) != application:
            whose = "was put at run time" if owner is None else f"{owner} declares"
            yield (
                f"schedule {one.name!r} will not run: the store has another of this "
                f"name, which {whose}; give one of them another name"
            )


def summary(rows: Sequence[ScheduleRow], now_ms: int) -> Mapping[str, int]:
    """Count schedules by what somebody should know of them."""
    active = [row for row in rows if row.retired_ms is None]
    states = Counter(state_of(row, now_ms) for row in active)
    return {
        "schedules": len(active),
        "paused": states["paused"],
        "overdue": states["overdue"],
        "missed_ticks": sum(row.missed for row in active),
    }


def _if_any(count: int, words: str) -> str:
    return f"{count:,} {words}" if count else ""


def print_summary(rows: Sequence[ScheduleRow], now_ms: int) -> None:
    """Print how many schedules there are, and which are paused."""
    counts = summary(rows, now_ms)
    if not counts["schedules"]:
        return
    heading("SCHEDULES")
    print_line(
        counted(counts["schedules"], "schedule"),
        _if_any(counts["paused"], "paused"),
        _if_any(counts["overdue"], "OVERDUE: no supervisor enqueues their ticks"),
        _if_any(counts["missed_ticks"], "ticks missed so far"),
        "jobpool schedules",
    )
    paused = [row for row in rows if row.paused_ms and row.retired_ms is None]
    for row in paused[:_PAUSES_MAX]:
        name = row.declared.name
        print_line(
            name,
            f"paused {schedule_pause_words(row, now_ms)}",
            f"jobpool schedules resume {name}",
        )
    if len(paused) > _PAUSES_MAX:
        print_line(f"and {len(paused) - _PAUSES_MAX:,} more: jobpool schedules")
