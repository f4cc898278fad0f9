"""One picture of `jobpool top`: exactly so many lines of exactly such a width. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import chop_cells
from rich.text import Text

from jobpool.cli.watch.top import panes
from jobpool.cli.watch.top.cells import apart
from jobpool.cli.watch.top.panes import Canvas
from jobpool.cli.watch.top.view import (
    BINDINGS,
    Pane,
    Rows,
    View,
    place_of,
    rows_of,
)
from jobpool.core.event_lines import iso_time
from jobpool.core.safe_text import one_line
from jobpool.monitoring.glance.glance import Glance
from jobpool.words.pauses import pause_words

_DEATHS_SHARE = 3
"""What died gets at most this fraction of the lines,"""
_OTHERS_LEAST = 16
"""and leaves so many to the rest, but for two."""
_ALARMS_MAX = 3
_STALE_S = 3.0
"""Figures that are older say so."""
LEAST_WIDTH, LEAST_HEIGHT = 60, 12


def frame(
    glance: Glance | None,
    view: View,
    *,
    width: int,
    height: int,
    now_ms: int,
    error: str = "",
    ascii_only: bool = False,
    has_keys: bool = True,
) -> list[Text]:
    """Draw everything.

    Args:
        glance: what was read last; None: nothing yet.
        view: what of it is looked at.
        width: in cells.
        height: in lines.
        now_ms: the time, for what is moving.
        error: why the store cannot be read at present; "": it can.
        ascii_only: draw without blocks.
        has_keys: the last line names them.
    """
    canvas = Canvas(width, now_ms, ascii_only, has_keys)
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        least = f"{LEAST_WIDTH}x{LEAST_HEIGHT}"
        body = [Text(f"the terminal is too small: {width}x{height}, at least {least}")]
        return _exactly(body, [], canvas, height)
    head = list(_head(glance, error, canvas))
    foot = [_last_line(view, canvas)] if has_keys else []
    room = height - len(head) - len(foot)
    if view.helped:
        body = _help(canvas)
    elif view.opened is not None:
        body = _opened(view, width, room)
    elif glance is None:
        body = [Text(""), Text("  reading the store", style="dim")]
    else:
        body = _panes(glance, view, room, canvas)
    return _exactly([*head, *body[:room]], foot, canvas, height)


def _exactly(
    body: Sequence[Text], foot: Sequence[Text], canvas: Canvas, height: int
) -> list[Text]:
    """Return so many lines, each cut and padded to the width."""
    gap = [Text("") for _ in range(height - len(body) - len(foot))]
    found = []
    for one in [*body, *gap, *foot][:height]:
        cut = one.copy()
        cut.truncate(canvas.width, overflow="ellipsis", pad=True)
        if canvas.ascii_only:
            cut.plain = cut.plain.replace("…", "~")
        cut.no_wrap, cut.end = True, ""
        found.append(cut)
    return found


def _head(glance: Glance | None, error: str, canvas: Canvas) -> Iterator[Text]:
    clock = (iso_time(canvas.now_ms) or "")[11:19]
    title = Text("jobpool top", style="bold")
    if glance is not None:
        title.append(f"  {one_line(glance.url)}", style="not bold dim")
    yield apart(title, Text(f"{clock}Z", style="dim"), canvas.width)
    if error:
        text = f"THE STORE CANNOT BE READ, trying again: {one_line(error)}"
        yield Text(text, style="bold red")
    if glance is None:
        return
    stale = Text()
    if error and (old_s := (canvas.now_ms - glance.at_ms) / 1000) >= _STALE_S:
        stale = Text(f"{panes.age(old_s)} old", style="bold red")
    elif glance.counted_ms is None:
        stale = Text("counting what waits", style="dim")
    elif (old_s := (glance.at_ms - glance.counted_ms) / 1000) >= _STALE_S:
        stale = Text(f"counts {panes.age(old_s)} old", style="dim")
    yield apart(panes.summary(glance, canvas), stale, canvas.width)
    yield from list(_alarms(glance))[:_ALARMS_MAX]


def _alarms(glance: Glance) -> Iterator[Text]:
    """Yield what somebody should know before anything else."""
    for pause in glance.pauses:
        if not pause.name:
            words = pause_words(pause, glance.at_ms)
            text = f"PAUSED: nothing starts  {one_line(words)}  jobpool resume --all"
            yield Text(text, style="bold yellow")
    for why in glance.silent:
        yield Text(f"SILENT: {one_line(why)}", style="bold red")
    if not glance.alive and not glance.silent:
        yield Text("no supervisor is running", style="bold red")
    for one in glance.crashing:
        text = (
            f"CRASHING: kind {one_line(one.kind)} is {one.state}, its jobs are tried "
            f"one at a time; next try in {panes.age(one.wait_s)}"
        )
        yield Text(text, style="bold red")
    kinds = [one for one in glance.pauses if one.what == "kind"]
    if kinds:
        names = ", ".join(one_line(one.name) for one in kinds)
        yield Text(f"paused kinds: {names}", style="yellow")


def _panes(glance: Glance, view: View, room: int, canvas: Canvas) -> list[Text]:
    rows = rows_of(glance, view)
    most = max(2, min(room // _DEATHS_SHARE, room - _OTHERS_LEAST))
    of_deaths = 2 + min(most, max(1, len(rows.deaths)))
    of_pools = 2 + min(max(1, len(rows.pools)), max(1, (room - of_deaths) // 2 - 2))
    of_running = room - of_deaths - of_pools
    parts = (
        (Pane.POOLS, of_pools, panes.pools, "no pools, and nothing waits"),
        (Pane.RUNNING, of_running, panes.running, _nothing_runs(glance, view)),
        (Pane.DEATHS, of_deaths, panes.deaths, _nothing_died(glance)),
    )
    found: list[Text] = []
    for pane, lines, draw, nothing in parts:
        found.append(
            _title(pane, rows, view, canvas, begun=glance.begun, room=lines - 2)
        )
        drawn = draw(rows, view, lines - 1, canvas)
        if not rows.keys(pane):
            drawn = [drawn[0], Text(f"  {nothing}", style="dim")]
        found += drawn
        found += [Text("")] * (lines - 1 - len(drawn))
    return found


def _title(
    pane: Pane, rows: Rows, view: View, canvas: Canvas, *, begun: int, room: int
) -> Text:
    """Return the line above a pane: its name, and what of it is not visible."""
    count = len(rows.keys(pane))
    has_focus = canvas.has_focus(view, pane)
    place = place_of(view, rows, pane) or 0
    first = max(0, place - room + 1) if has_focus else 0
    parts = [f"{count:,}" if pane is not Pane.DEATHS else ""]
    if count > room:
        parts = [f"{first + 1:,} to {first + room:,} of {count:,}"]
    if pane is Pane.RUNNING and begun:
        parts.append(f"and {begun:,} begun within the last second")
    dash = "-" if canvas.ascii_only else "─"
    style = "bold cyan" if has_focus else "dim"
    words = " ".join(filter(None, parts))
    found = Text(f"{dash} {pane.value} ", style=style)
    found.append(f"{words} " if words else "", "not bold")
    return found.append(dash * (canvas.width - found.cell_len))


def _nothing_runs(glance: Glance, view: View) -> str:
    if view.wanted and glance.running:
        return f"{len(glance.running):,} run; none has {one_line(view.wanted)!r}"
    return "no job has run for a second" if glance.begun else "nothing runs"


def _nothing_died(glance: Glance) -> str:
    return "none of these" if glance.deaths else "no attempt has failed or died"


def _last_line(view: View, canvas: Canvas) -> Text:
    """Return the question, the filter, what was said, or the keys."""
    if view.asked is not None:
        text = f"{view.asked.question}  [y/N]"
        return Text(text, style="bold reverse yellow")
    if view.is_typing:
        return Text("filter: ", style="bold").append(f"{view.wanted}_")
    if view.said:
        return Text(one_line(view.said), style="bold")
    if view.opened is not None:
        return Text("up/down scroll  Esc back", style="dim")
    if view.helped:
        return Text("any key: back", style="dim")
    left = Text()
    for one in BINDINGS:
        if one.short and (one.pane is None or one.pane is view.pane):
            left.append(f"{one.shown} ", style="bold").append(f"{one.short}  ")
    right = Text()
    if view.wanted:
        right = Text(f"filter: {one_line(view.wanted)}  (Esc)", style="bold yellow")
    return apart(left, right, canvas.width)


def _help(canvas: Canvas) -> list[Text]:
    brief, idle = panes.glyphs(canvas)
    found = [
        Text(""),
        *(
            Text(f"  {one.shown:<15}", style="bold").append(one.does, "not bold")
            for one in BINDINGS
            if one.shown
        ),
        Text(""),
    ]
    found += [
        Text(f"  {line}", style="dim")
        for line in (
            "SLOTS: each slot is a block that is as full as its child, up to its",
            f"memory limit; {brief} has run for less than a second, {idle} is free.",
            "What you do here is in the audit trail: jobpool audit.",
        )
    ]
    return found


def _opened(view: View, width: int, room: int) -> list[Text]:
    """Return the visible lines about one job."""
    lines: list[Text] = []
    for one in view.opened or ():
        style = "bold" if one.isupper() else ""
        parts = chop_cells(one, width) or [""]
        lines += [Text(part, style=style) for part in parts]
    top = min(view.top, max(0, len(lines) - room))
    return lines[top : top + room]
