"""Templates: everything is escaped, and what others wrote is made harmless first.

A value in a template is one line of text: characters that hide or reverse text become
visible, and it is cut where it is too long. What has lines goes through the filter
`lines`; numbers, sizes, durations and times through filters of their own.
"""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from jobpool.core import safe_text
from jobpool.core.units import show_duration
from jobpool.dashboard.reading import Unknown
from jobpool.words.jobs.states import MEANINGS

STATIC = Path(__file__).with_name("static")
NOTHING = "\N{EN DASH}"
"""Stands where there is no value."""
_TEXT_MAX = 2000
_FOR_TERMINALS = re.compile(r"\x1b\[[0-9;:]*[mK]")
"""Colours, and the rest of a line that is cleared. All else stays, made visible."""
_LINES_MAX = 100_000
_MS = 1000
_DAY, _SECONDS = len("2026-01-31"), len("2026-01-31 12:00:00")
_UNIT = 1024
_WHOLE = 100
"""Of a larger number nobody needs the part behind the point."""
_NO_REST = re.compile(r"(?<=[hm])00[ms]$")


class Lines(str):
    """Text that was made harmless, with its line breaks."""

    __slots__ = ()


def harmless(value: Any) -> Any:
    """Return what a template shows of a value."""
    if value is None:
        return ""
    if isinstance(value, Markup | Lines):
        return value
    return safe_text.one_line(str(value), _TEXT_MAX)


def lines(text: str) -> Lines:
    """Return text with its line breaks, and nothing else that could mislead."""
    return Lines(safe_text.lines(text, _LINES_MAX))


def output(text: str) -> Lines:
    """Return what a job wrote for a terminal: without what only a terminal shows."""
    return lines(_FOR_TERMINALS.sub("", text))


def pretty(text: str) -> Lines:
    """Return JSON with a line for each value; numbers stay as they are written."""
    try:
        return lines(msgspec.json.format(text))
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return lines(text)


def number(value: float | None) -> str:
    """Return a number with its thousands apart: all digits of a whole one."""
    if value is None:
        return NOTHING
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if abs(value) >= _WHOLE else f"{value:.3g}"


def size(count: float | None) -> str:
    """Return a number of bytes as people write it."""
    if count is None:
        return NOTHING
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < _UNIT:
            return _with_unit(count, unit)
        count /= _UNIT
    return _with_unit(count, "TiB")


def _with_unit(count: float, unit: str) -> str:
    """Return three digits and a unit; four, where those before the point are more."""
    digits = f"{count:.0f}" if abs(count) >= _WHOLE else f"{count:.3g}"
    return f"{digits}\N{NO-BREAK SPACE}{unit}"


def duration(seconds: float | None) -> str:
    """Return seconds as people write them: ``1 h 05 m``, and ``30 m`` for just that."""
    if seconds is None:
        return NOTHING
    return _apart(_NO_REST.sub("", show_duration(seconds)))


def rate(per_s: float | None) -> str:
    """Return how often something happens: a second, a minute or an hour, if rarely."""
    if not per_s:
        return NOTHING
    units = ((1, "s"), (60, "m"), (3600, "h"))
    times, unit = next((one for one in units if per_s * one[0] >= 1), units[-1])
    return f"{number(round(per_s * times, 2))}/{unit}"


def percent(share: float | None) -> str:
    """Return a share of one as a whole percentage."""
    return NOTHING if share is None else f"{share * 100:.0f} %"


def width(share: float) -> str:
    """Return how wide a meter of a width of 100 is filled; never beyond its ends."""
    return f"{100 * min(max(share, 0.0), 1.0):.1f}"


def moment(at_ms: int | None, *, day: bool = False) -> str:
    """Return a time as an element: UTC here, in the reader's zone by script.

    Args:
        at_ms: milliseconds since 1970; None: there is none.
        day: with its date, also where that is plain.
    """
    if at_ms is None:
        return NOTHING
    try:
        at = datetime.fromtimestamp(at_ms / _MS, UTC)
    except (OverflowError, ValueError, OSError):  # a row that was written by hand
        return f"{at_ms} ms"
    # Without Markup.format, which takes most of the time of a page: nothing to escape.
    utc = at.isoformat(" ", "milliseconds")
    whole, hour = utc[:_SECONDS], utc[_DAY + 1 : _SECONDS]
    iso, days = f"{utc[:_DAY]}T{utc[_DAY + 1 :]}", " data-day" if day else ""
    return Markup(  # noqa: S704 - digits and signs
        f'<time datetime="{iso}" title="{whole} UTC"{days}>'
        f"{whole if day else hour}</time>"
    )


def clock(at_ms: int) -> str:
    """Return the hour and minute of a time in UTC, for the label of a plot."""
    return datetime.fromtimestamp(at_ms / _MS, UTC).strftime("%H:%M")


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: ``1 job``, ``1,284 jobs``."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def _apart(text: str) -> str:
    """Return ``512MiB`` as ``512 MiB``, and ``1h05m`` as ``1 h 05 m``."""
    parts: list[str] = []
    for char in text:
        is_digit = char.isdigit() or char in ".-+"
        if parts and is_digit == (parts[-1][-1].isdigit() or parts[-1][-1] in ".-+"):
            parts[-1] += char
        else:
            parts.append(char)
    return "\N{NO-BREAK SPACE}".join(parts)


@cache
def fingerprint(name: str) -> str:
    """Return what changes whenever a static file does."""
    return hashlib.blake2b((STATIC / name).read_bytes(), digest_size=6).hexdigest()


@cache
def environment() -> Environment:
    """Return the templates' environment, the same for all dashboards of a process."""
    made = Environment(
        loader=PackageLoader("jobpool.dashboard", "templates"),
        autoescape=True,
        auto_reload=False,  # a package does not change while it is used
        undefined=StrictUndefined,
        finalize=harmless,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "lines": lines,
        "n": number,
        "output": output,
        "pretty": pretty,
        "size": size,
        "duration": duration,
        "rate": rate,
        "percent": percent,
        "clock": clock,
        "time": moment,
        "width": width,
    }
    made.globals |= {
        "counted": counted,
        "nothing": NOTHING,
        "meanings": MEANINGS,
    }
    made.tests["unknown"] = lambda value: isinstance(value, Unknown)
    return made


def compile_all(templates: Environment) -> None:
    """Compile all templates, which takes half a second, and is kept."""
    for name in templates.list_templates():
        templates.get_template(name)
