"""The three tables of `jobpool top`: pools, what runs, what died. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
from rich.text import Text

from jobpool.cli.watch.top.cells import (
    Column,
    bar,
    block,
    fill_style,
    fitting,
    line,
    text,
)
from jobpool.cli.watch.top.view import (
    Pane,
    Rows,
    Sort,
    View,
    place_of,
    progress_of,
    progress_share,
)
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.safe_text import one_line
from jobpool.core.units import show_duration, show_size
from jobpool.monitoring.glance.glance import Glance, Host, PoolRow, Running
from jobpool.store.records.reading import EndRow

_LATE_SHARE = 0.8
"""An attempt that has used so much of its time limit is worth a look."""
_LATE_S = 60.0
"""So is a due job that waits for as long."""
_BAR, _BAR_NARROW = 10, 6
_WIDE = 100
"""A terminal of so many cells has room for what is nice to have."""
_PROGRESS_MAX = 60
_MILLE = 10_000
_OUTCOMES = {
    Outcome.OUT_OF_MEMORY.value: "bold red",
    Outcome.CRASHED.value: "bold red",
    Outcome.TIMED_OUT.value: "red",
    Outcome.STALLED.value: "red",
    Outcome.FAILED.value: "yellow",
}
_STATES = {
    "succeeded": "green",
    "dead": "red",
    "quarantined": "bold red",
    "retryable": "yellow",
    "running": "cyan",
}


class Canvas(NamedTuple):
    """What a pane is drawn on."""

    width: int
    now_ms: int
    ascii_only: bool = False
    has_keys: bool = True
    """Rows can be chosen."""

    def has_focus(self, view: View, pane: Pane) -> bool:
        """Whether keys move in a pane."""
        return self.has_keys and view.pane is pane

    @property
    def bar(self) -> int:
        """The width of bars."""
        return _BAR if self.width >= _WIDE else _BAR_NARROW

    @property
    def slots_max(self) -> int:
        """The most that all slots of a pool may take."""
        return self.width // (3 if self.width >= _WIDE else 4)


def age(seconds: float) -> str:
    """Return a duration for a column that moves: whole seconds from ten on."""
    return show_duration(float(int(seconds)) if seconds >= 1 else seconds)


def table(
    columns: Sequence[Column],
    rows: Sequence[dict[str, Text]],
    canvas: Canvas,
    room: int,
    *,
    has_focus: bool,
    place: int | None,
) -> list[Text]:
    """Return a heading and as many rows as there is room for, the chosen one included.

    Args:
        columns: that fit.
        rows: a cell for each of them.
        canvas: the width.
        room: lines, with the heading's.
        has_focus: keys move in it.
        place: of the chosen row.
    """
    width = canvas.width - 1
    names = {one.name: Text(one.name, style="dim") for one in columns}
    shown = [Text(" ").append_text(line(columns, names, width))]
    most = max(0, room - 1)
    first = 0 if place is None or not has_focus else max(0, place - most + 1)
    named = 1 + sum(one.width + 2 for one in columns[: _named(columns)]) - 2
    for n, row in enumerate(rows[first : first + most], first):
        is_chosen = has_focus and n == place
        drawn = Text(">" if is_chosen else " ", end="")
        drawn.append_text(line(columns, row, width))
        if is_chosen:
            drawn.stylize("bold reverse", 0, named)
        shown.append(drawn)
    return shown


def _named(columns: Sequence[Column]) -> int:
    """Return how many columns say which row it is: bars are not to be inverted."""
    return next(n for n, one in enumerate(columns, 1) if one.name in {"POOL", "KIND"})


def pools(rows: Rows, view: View, room: int, canvas: Canvas) -> list[Text]:
    """Draw the pools: each slot a block that is filled up to its memory limit."""
    cells = [_pool(one, canvas) for one in rows.pools]
    wide = max((one["SLOTS"].cell_len for one in cells), default=5)
    columns = fitting(
        (
            Column("POOL", _widest(cells, "POOL", 4, canvas.width // 5)),
            Column("SLOTS", min(max(5, wide), canvas.slots_max)),
            Column("BUSY", _widest(cells, "BUSY", 4), right=True),
            Column("A SECOND", 8, right=True, spare=3),
            Column("DUE", _widest(cells, "DUE", 3), right=True),
            Column("LATER", _widest(cells, "LATER", 5), right=True, spare=2),
            Column("OLDEST", 6, right=True),
            Column("WAIT FOR", 20, takes_rest=True),
        ),
        canvas.width - 1,
    )
    place = place_of(view, rows, Pane.POOLS)
    return table(
        columns,
        cells,
        canvas,
        room,
        has_focus=canvas.has_focus(view, Pane.POOLS),
        place=place,
    )


def _pool(one: PoolRow, canvas: Canvas) -> dict[str, Text]:
    late = one.oldest_s is not None and one.oldest_s >= _LATE_S
    return {
        "POOL": text(one.name, "bold"),
        "SLOTS": _slots(one, canvas),
        "BUSY": text(f"{one.busy}/{one.size}", "" if one.busy else "dim"),
        "A SECOND": text(rate(one.ends_per_s), "" if one.ends_per_s else "dim"),
        "DUE": text(number(one.due), "" if one.due else "dim"),
        "LATER": text(number(one.later), "" if one.later else "dim"),
        "OLDEST": text(
            None if one.oldest_s is None else age(one.oldest_s),
            "yellow" if late else "",
        ),
        "WAIT FOR": _held(one),
    }


def _held(one: PoolRow) -> Text:
    """Return what a pool's due jobs wait for."""
    if one.pause is not None:
        who = f" by {one.pause.who}" if one.pause.who else ""
        note = f": {one.pause.note}" if one.pause.note else ""
        return text(f"PAUSED{who}{note}", "bold yellow")
    if not one.hosts:
        return text("NO SUPERVISOR serves it", "bold red")
    parts = [
        cause if share >= 0.995 else f"{cause} {share * 100:.0f} %"  # noqa: PLR2004 - rounds to all
        for cause, share in one.causes
    ]
    return text(", ".join(parts), "yellow" if one.blocked else "")


def _slots(one: PoolRow, canvas: Canvas) -> Text:
    """Draw all slots of a pool; those of different hosts stand apart."""
    most = canvas.slots_max
    found = Text(end="")
    for n, host in enumerate(one.hosts):
        found.append(" " if n else "")
        for cell in _host(host, one.running, canvas):
            found.append_text(cell)
    if found.cell_len > most:
        kept = most - len(f" +{one.size}")
        hidden = sum(1 for glyph in found.plain[kept:] if glyph != " ")
        found.truncate(kept)
        found.append(f" +{hidden}", style="dim")
    return found


def glyphs(canvas: Canvas) -> tuple[str, str]:
    """Return how a slot looks whose attempt is brief, and a free one."""
    return ("o", "_") if canvas.ascii_only else ("•", "·")


def _host(host: Host, running: Iterable[Running], canvas: Canvas) -> list[Text]:
    brief_glyph, idle_glyph = glyphs(canvas)
    idle = Text(idle_glyph, style="dim")
    cells: list[Text | None] = [None] * host.size
    homeless: list[Text] = []
    for one in running:
        if one.job.supervisor != host.run_id:
            continue
        share = one.filled
        drawn = block(share or 0.0, ascii_only=canvas.ascii_only)
        tail = (one.job.slot or "").rpartition("/")[2]
        place = int(tail) if tail.isdecimal() else host.size
        if place < host.size and cells[place] is None:
            cells[place] = drawn
        else:
            homeless.append(drawn)
    known = sum(cell is not None for cell in cells) + len(homeless)
    brief = Text(brief_glyph, style="cyan")
    homeless += [brief] * max(0, host.busy - known)
    for place, cell in enumerate(cells):
        if cell is None:
            cells[place] = homeless.pop(0) if homeless else idle
    return [cell for cell in cells if cell is not None]


def running(rows: Rows, view: View, room: int, canvas: Canvas) -> list[Text]:
    """Draw what runs."""
    cells = [_run(one, canvas) for one in rows.running[:1000]]
    hosts = {one.host for one in rows.running}
    columns = [
        Column("JOB", _widest(cells, "JOB", 3), right=True),
        Column("KIND", _widest(cells, "KIND", 4, canvas.width // 5)),
        Column("SLOT", _widest(cells, "SLOT", 4, 16)),
        Column("HOST", _widest(cells, "HOST", 4, 16), spare=3),
        Column("TRY", 3, right=True, spare=4),
        Column("RUNS", 6, right=True),
        Column("LIMIT", _widest(cells, "LIMIT", 5), spare=2),
        Column("MEMORY", _widest(cells, "MEMORY", canvas.bar)),
        Column("PROGRESS", canvas.bar + 6, takes_rest=True),
    ]
    if len(hosts) < 2:  # noqa: PLR2004 - nothing to tell apart
        columns = [one for one in columns if one.name != "HOST"]
    fitted = fitting(columns, canvas.width - 1)
    arrow = "^" if view.reverse else "v"
    if not canvas.ascii_only:
        arrow = "▲" if view.reverse else "▼"
    place = place_of(view, rows, Pane.RUNNING)
    shown = table(
        fitted,
        cells,
        canvas,
        room,
        has_focus=canvas.has_focus(view, Pane.RUNNING),
        place=place,
    )
    _mark(shown[0], view.sort, arrow)
    return shown


def _mark(heading: Text, sort: Sort, arrow: str) -> None:
    """Put an arrow behind, or before, the name of the column that is sorted by."""
    at = heading.plain.find(sort.value)
    if at < 0:
        return
    after = at + len(sort.value)
    if heading.plain[after : after + 1] == " ":
        heading.plain = f"{heading.plain[:after]}{arrow}{heading.plain[after + 1 :]}"
    elif at and heading.plain[at - 1] == " ":
        heading.plain = f"{heading.plain[: at - 1]}{arrow}{heading.plain[at:]}"


def _run(one: Running, canvas: Canvas) -> dict[str, Text]:
    job, ran_s = one.job, max(0.0, (canvas.now_ms - one.began_ms) / 1000)
    late = one.limit_s is not None and ran_s >= _LATE_SHARE * one.limit_s
    return {
        "JOB": text(job.id),
        "KIND": text(job.kind, "bold"),
        "SLOT": text(job.slot),
        "HOST": text(one.host),
        "TRY": text(job.attempt, "yellow" if job.attempt > 1 else "dim"),
        "RUNS": text(age(ran_s), "bold red" if late else ""),
        "LIMIT": text(
            None if one.limit_s is None else show_duration(one.limit_s), "dim"
        ),
        "MEMORY": _memory(one, canvas),
        "PROGRESS": _progress(one, canvas),
    }


def _memory(one: Running, canvas: Canvas) -> Text:
    share, rss_bytes = one.filled, one.job.rss_bytes
    if rss_bytes is None:
        return text(None)
    if share is None or one.limit_bytes is None:
        return text(show_size(rss_bytes))
    style = fill_style(share)
    drawn = bar(share, canvas.bar, style, ascii_only=canvas.ascii_only)
    of = show_size(one.limit_bytes)
    return drawn.append(f" {show_size(rss_bytes)}", style=style).append(
        f"/{of}", style="dim"
    )


def _progress(one: Running, canvas: Canvas) -> Text:
    if one.job.cancel_requested:
        return text("being canceled", "bold yellow")
    share, value = progress_share(one), progress_of(one)
    if share is not None:
        drawn = bar(share, canvas.bar, "cyan", ascii_only=canvas.ascii_only)
        return drawn.append(f" {share * 100:.0f} %")
    if value is None:
        return Text()
    shown = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text(one_line(shown, _PROGRESS_MAX))


def deaths(rows: Rows, view: View, room: int, canvas: Canvas) -> list[Text]:
    """Draw the last attempts that did not succeed."""
    cells = [_death(one, canvas) for one in rows.deaths]
    columns = fitting(
        (
            Column("ENDED", 10, right=True),
            Column("JOB", _widest(cells, "JOB", 3), right=True),
            Column("KIND", _widest(cells, "KIND", 4, canvas.width // 5)),
            Column("TRY", 3, right=True, spare=3),
            Column("HOW", _widest(cells, "HOW", 3)),
            Column("NOW", _widest(cells, "NOW", 3), spare=2),
            Column("WHY", 16, takes_rest=True),
        ),
        canvas.width - 1,
    )
    place = place_of(view, rows, Pane.DEATHS)
    return table(
        columns,
        cells,
        canvas,
        room,
        has_focus=canvas.has_focus(view, Pane.DEATHS),
        place=place,
    )


def _death(one: EndRow, canvas: Canvas) -> dict[str, Text]:
    ago_s = max(0.0, (canvas.now_ms - one.finished_at_ms) / 1000)
    state = state_now(one)
    return {
        "ENDED": text(f"{age(ago_s)} ago"),
        "JOB": text(one.job_id),
        "KIND": text(one.kind, "bold"),
        "TRY": text(one.attempt, "dim"),
        "HOW": text(one.outcome.replace("_", " "), _OUTCOMES.get(one.outcome, "")),
        "NOW": text(state, _STATES.get(state, "")),
        "WHY": text(one.reason or one.error_class or ""),
    }


def state_now(one: EndRow) -> str:
    """Return the state of a job as shown."""
    if one.state == "pending":
        return "retryable"
    return "running" if one.state == "leased" else one.state


def rate(per_s: float) -> str:
    """Return how many a second, or less often, in few characters."""
    if per_s <= 0:
        return "-"
    return f"{per_s:,.0f}" if per_s >= 10 else f"{per_s:.2g}"  # noqa: PLR2004 - digits


def number(value: int) -> str:
    """Return a count in at most six characters."""
    if value < _MILLE:
        return f"{value:,}" if value else "-"
    scaled = float(value)
    for unit in ("k", "M", "G"):
        scaled /= 1000
        if scaled < 999.5:  # noqa: PLR2004 - it would be shown as a thousand
            return f"{scaled:.3g}{unit}"
    return f"{scaled / 1000:.3g}T"


def _widest(
    cells: Sequence[dict[str, Text]], name: str, least: int, most: int = 1000
) -> int:
    widest = max((one[name].cell_len for one in cells), default=0)
    return max(least, min(widest, most))


def summary(glance: Glance, canvas: Canvas) -> Text:
    """Return what there is in all, in one line."""
    size = sum(pool.size for pool in glance.pools)
    busy = sum(pool.busy for pool in glance.pools)
    due = sum(pool.due for pool in glance.pools)
    oldest_s = max((pool.oldest_s or 0.0 for pool in glance.pools), default=0.0)
    ends = sum(pool.ends_per_s for pool in glance.pools)
    plural = "" if glance.alive == 1 else "s"
    found = Text(no_wrap=True, end="")
    found.append(f"{glance.alive} supervisor{plural}", "" if glance.alive else "red")
    found.append(f"  {busy}/{size} busy")
    if ends and canvas.width >= _WIDE:
        found.append(f"  {rate(ends)}/s")
    found.append(f"  {number(due) if due else 'none'} due")
    if due:
        late = "yellow" if oldest_s >= _LATE_S else ""
        found.append(", ").append(f"oldest {age(oldest_s)}", late)
    if glance.dead:
        found.append("  ").append(f"{number(glance.dead)} dead", "red")
    if glance.quarantined:
        text = f"{number(glance.quarantined)} quarantined"
        found.append("  ").append(text, "bold red")
    return found
