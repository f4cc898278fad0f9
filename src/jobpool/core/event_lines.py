"""Log lines: an event as one line, for people or as a JSON object. Pure.

A line holds no raw control character and at most `LINE_MAX_BYTES`; cuts are marked.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Any

import msgspec

from jobpool.core.events.event import Event
from jobpool.core.events.sentences import parts
from jobpool.core.safe_text import capped, json_text, one_line, whole

LINE_MAX_BYTES = 8192
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TEXT_CAPS = (4000, 1000, 200, 40)
"""Caps on each text, tried in turn until the line is short enough."""
_ITEMS_MAX = 20
"""Entries of one list in one line."""
_CACHED = 128
"""Formatted times to cache: many lines of a busy supervisor share one."""


@lru_cache(_CACHED)
def iso_time(at_ms: int | None) -> str | None:
    """Format a time as ISO 8601, UTC, with milliseconds; None stays None.

    A time outside the years 1 to 9999 is written as a number.
    """
    if at_ms is None:
        return None
    try:
        moment = _EPOCH + timedelta(milliseconds=at_ms)
    except OverflowError:
        return f"{at_ms}ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def json_line(event: Event) -> str:
    """Format an event as one JSON object without a line break."""
    head = {
        "time": iso_time(event.at_ms),
        "level": event.level.name.lower(),
        "event": event.name,
    }
    if (body_text := _flat_body(event)) is not None:
        return json_text(f"{msgspec.json.encode(head).decode()[:-1]}{body_text}")
    body = msgspec.to_builtins(event)
    del body["at_ms"]
    for cap in _TEXT_CAPS:  # an event's own fields are few: none is left out
        short = {name: _shortened(value, cap) for name, value in body.items()}
        line = json_text(msgspec.json.encode(head | short).decode())
        if len(line.encode()) <= LINE_MAX_BYTES:
            break
    return line


def _flat_body(event: Event) -> str | None:
    """Return an event's JSON after its time; None if something may need shortening.

    The fast path: a busy supervisor writes thousands of such lines a second.
    """
    try:
        encoded = msgspec.json.encode(event)
    except UnicodeEncodeError:  # a lone surrogate
        return None
    if len(encoded) > _TEXT_CAPS[0] or encoded.count(b"{") + encoded.count(b"[") > 1:
        return None
    _at_ms, comma, rest = encoded.partition(b",")
    return (comma + rest).decode() or "}"


def human_line(event: Event, zone: tzinfo | None = UTC) -> str:
    """Format an event as one line for people.

    Args:
        event: what happened.
        zone: time zone of the time of day; None: the machine's.
    """
    clock = _clock(event.at_ms // 1000, zone)
    for cap in _TEXT_CAPS:
        columns = (one_line(part, cap) for part in parts(event))
        line = f"{clock} " + "  ".join(filter(None, columns))
        if len(line.encode()) <= LINE_MAX_BYTES:
            break
    return line


@lru_cache(_CACHED)
def _clock(at_s: int, zone: tzinfo | None) -> str:
    return f"{(_EPOCH + timedelta(seconds=at_s)).astimezone(zone):%H:%M:%S}"


def _shortened(value: Any, cap: int) -> Any:
    """Return built-in values with every text capped and every container shortened."""
    if isinstance(value, str):
        return whole(capped(value, cap))
    if isinstance(value, dict):
        items = list(value.items())[:_ITEMS_MAX]
        return {_shortened(key, cap): _shortened(item, cap) for key, item in items}
    if isinstance(value, (list, tuple)):
        return [_shortened(item, cap) for item in value[:_ITEMS_MAX]]
    return value
