"""What of a glance is looked at, and what keys change of that. Pure.

Each mode has a table of its keys: a list of them is the help, too. What a key asks of
the store is a request, and the question before it names what it will do: jobs that come
and go between the question and its answer change nothing of that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from jobpool.core.safe_text import one_line
from jobpool.core.units import show_duration
from jobpool.monitoring.glance.glance import Glance, PoolRow, Running
from jobpool.operations.action import Action
from jobpool.operations.jobs import Cancel, Release, Retry
from jobpool.operations.queue import Pause, Resume
from jobpool.operations.selection import Selection
from jobpool.store.records.reading import EndRow

_FILTER_MAX = 60
_FAR = 1_000_000
"""Further than there are rows."""


class Pane(StrEnum):
    """A part of the screen in which rows are chosen."""

    POOLS = "POOLS"
    RUNNING = "RUNNING"
    DEATHS = "LAST FAILURES AND DEATHS"


PANES = tuple(Pane)


class Sort(StrEnum):
    """What running jobs are sorted by; the highest first."""

    RUNS = "RUNS"
    MEMORY = "MEMORY"
    PROGRESS = "PROGRESS"
    KIND = "KIND"
    JOB = "JOB"


SORTS = tuple(Sort)


class Ask(NamedTuple):
    """A question, and what is done if the answer is yes."""

    question: str
    action: Action


class Open(NamedTuple):
    """Asks for all that `jobpool show` tells of a job."""

    job_id: int


class Quit(NamedTuple):
    """Asks to end."""


Request = Action | Open | Quit


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked at."""

    pane: Pane = Pane.RUNNING
    chosen: Mapping[Pane, int | str] = {}
    """By pane: the key of the row that is chosen, which stays with it."""
    places: Mapping[Pane, int] = {}
    """Where that row was: if it is gone, the one there is chosen."""
    sort: Sort = Sort.RUNS
    reverse: bool = False
    wanted: str = ""
    """Only rows that have this in kind, pool, slot, host or id."""
    is_typing: bool = False
    asked: Ask | None = None
    opened: tuple[str, ...] | None = None
    """Lines about one job, in the place of everything else."""
    opened_id: int | None = None
    top: int = 0
    """The first of them that is visible."""
    helped: bool = False
    said: str = ""
    """What became of the last request."""


class Rows(NamedTuple):
    """The rows of each pane, sorted and filtered."""

    pools: Sequence[PoolRow]
    running: Sequence[Running]
    deaths: Sequence[EndRow]

    def keys(self, pane: Pane) -> list[int | str]:
        """Return what tells the rows of a pane apart."""
        match pane:
            case Pane.POOLS:
                return [row.name for row in self.pools]
            case Pane.RUNNING:
                return [row.job.id for row in self.running]
            case Pane.DEATHS:
                return [f"{row.job_id}.{row.attempt}" for row in self.deaths]


def rows_of(glance: Glance, view: View) -> Rows:
    """Return what is visible of a glance."""
    running = [
        one
        for one in glance.running
        if _has(view.wanted, one.job.kind, one.job.slot, one.job.id, one.host)
    ]
    by = _SORTS[view.sort]
    running.sort(key=lambda one: (by(one, glance.at_ms), one.job.id))
    descends = view.sort is not Sort.KIND and view.sort is not Sort.JOB
    if descends is not view.reverse:
        running.reverse()
    deaths = [
        one
        for one in glance.deaths
        if _has(view.wanted, one.kind, one.pool, one.job_id, one.outcome)
    ]
    return Rows(glance.pools, running, deaths)


def _has(wanted: str, *parts: object) -> bool:
    word = wanted.casefold()
    return not word or any(word in str(one).casefold() for one in parts)


_SORTS: Mapping[Sort, Callable[[Running, int], float | str]] = {
    Sort.RUNS: lambda one, now_ms: now_ms - one.began_ms,
    Sort.MEMORY: lambda one, _: one.filled or 0.0,
    Sort.PROGRESS: lambda one, _: progress_share(one) or 0.0,
    Sort.KIND: lambda one, _: one.job.kind,
    Sort.JOB: lambda one, _: one.job.id,
}


def progress_of(one: Running) -> object:
    """Return what a handler has reported; None: nothing, or nothing that is JSON."""
    try:
        return msgspec.json.decode(one.job.progress or b"null")
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def progress_share(one: Running) -> float | None:
    """Return a progress from 0 to 1, if that is what a handler reports."""
    value = progress_of(one)
    if isinstance(value, float | int) and not isinstance(value, bool):
        return float(value) if 0 <= value <= 1 else None
    return None


def place_of(view: View, rows: Rows, pane: Pane) -> int | None:
    """Return the place of the chosen row of a pane; None: there are no rows."""
    keys = rows.keys(pane)
    if not keys:
        return None
    chosen = view.chosen.get(pane)
    if chosen in keys:
        return keys.index(chosen)
    return min(view.places.get(pane, 0), len(keys) - 1)


def press(key: str, view: View, glance: Glance) -> tuple[View, Request | None]:
    """Return what a key makes of a view, and what it asks for.

    Args:
        key: a character, or the name of a key as in `keys.py`.
        view: before.
        glance: what is visible.
    """
    if view.asked is not None:
        return _answer(key, view)
    view = msgspec.structs.replace(view, said="")
    if view.is_typing:
        return _typed(key, view), None
    if view.helped:
        return msgspec.structs.replace(view, helped=False), None
    if view.opened is not None:
        return _read(key, view)
    rows = rows_of(glance, view)
    if (bound := BY_KEY.get(key)) is not None:
        return bound.act(view, rows, glance)
    return view, None


def _answer(key: str, view: View) -> tuple[View, Request | None]:
    """Only a plain yes is one."""
    asked = view.asked
    view = msgspec.structs.replace(view, asked=None)
    if asked is not None and key in {"y", "Y"}:
        return msgspec.structs.replace(view, said="asked the store"), asked.action
    return msgspec.structs.replace(view, said="nothing was changed"), None


def _typed(key: str, view: View) -> View:
    """Edit the filter."""
    if key in {"enter", "escape"}:
        wanted = "" if key == "escape" else view.wanted
        return msgspec.structs.replace(view, is_typing=False, wanted=wanted)
    if key == "backspace":
        return msgspec.structs.replace(view, wanted=view.wanted[:-1])
    if len(key) == 1 and key.isprintable() and len(view.wanted) < _FILTER_MAX:
        return msgspec.structs.replace(view, wanted=view.wanted + key)
    return view


_MOVES = {
    "down": 1,
    "j": 1,
    "up": -1,
    "k": -1,
    "page down": 10,
    " ": 10,
    "page up": -10,
    "home": -_FAR,
    "g": -_FAR,
    "end": _FAR,
    "G": _FAR,
}


def _read(key: str, view: View) -> tuple[View, Request | None]:
    """Scroll what is said of a job, or close it."""
    if key in _MOVES:
        last = max(0, len(view.opened or ()) - 1)
        top = min(last, max(0, view.top + _MOVES[key]))
        return msgspec.structs.replace(view, top=top), None
    if key in {"escape", "q", "enter", "left", "backspace"}:
        return msgspec.structs.replace(view, opened=None, opened_id=None, top=0), None
    return view, None


def _moving(by: int) -> Act:
    def move(view: View, rows: Rows, glance: Glance) -> Result:
        del glance
        place = place_of(view, rows, view.pane)
        if place is None:
            return view, None
        keys = rows.keys(view.pane)
        place = min(len(keys) - 1, max(0, place + by))
        return msgspec.structs.replace(
            view,
            chosen={**view.chosen, view.pane: keys[place]},
            places={**view.places, view.pane: place},
        ), None

    return move


def _pane(view: View, rows: Rows, glance: Glance) -> Result:
    del rows, glance
    place = (PANES.index(view.pane) + 1) % len(PANES)
    return msgspec.structs.replace(view, pane=PANES[place]), None


def _pane_before(view: View, rows: Rows, glance: Glance) -> Result:
    del rows, glance
    return msgspec.structs.replace(view, pane=PANES[PANES.index(view.pane) - 1]), None


def _open(view: View, rows: Rows, glance: Glance) -> Result:
    """Open a job; of a pool, what runs in it."""
    del glance
    place = place_of(view, rows, view.pane)
    if place is None:
        return view, None
    match view.pane:
        case Pane.POOLS:
            name = rows.pools[place].name
            return msgspec.structs.replace(
                view, wanted=f"{name}/", pane=Pane.RUNNING
            ), None
        case Pane.RUNNING:
            return view, Open(rows.running[place].job.id)
        case Pane.DEATHS:
            return view, Open(rows.deaths[place].job_id)


def _sort(view: View, rows: Rows, glance: Glance) -> Result:
    del rows, glance
    sort = SORTS[(SORTS.index(view.sort) + 1) % len(SORTS)]
    return msgspec.structs.replace(view, sort=sort, reverse=False), None


def _reverse(view: View, rows: Rows, glance: Glance) -> Result:
    del rows, glance
    return msgspec.structs.replace(view, reverse=not view.reverse), None


def _filter(view: View, rows: Rows, glance: Glance) -> Result:
    del rows, glance
    return msgspec.structs.replace(view, is_typing=True, wanted=""), None


def _clear(view: View, rows: Rows, glance: Glance) -> Result:
    del rows, glance
    return msgspec.structs.replace(view, wanted=""), None


def _help(view: View, rows: Rows, glance: Glance) -> Result:
    del rows, glance
    return msgspec.structs.replace(view, helped=True), None


def _quit(view: View, rows: Rows, glance: Glance) -> Result:
    del rows, glance
    return view, Quit()


def _cancel(view: View, rows: Rows, glance: Glance) -> Result:
    place = place_of(view, rows, Pane.RUNNING)
    if view.pane is not Pane.RUNNING or place is None:
        return _say(view, "choose a running job to cancel it: Tab changes the pane")
    one = rows.running[place]
    ran = show_duration(max(0, glance.at_ms - one.began_ms) / 1000)
    question = (
        f"Cancel job {one.job.id} ({one.job.kind}, has run for {ran})? It is killed"
    )
    return _ask(view, question, Cancel(jobs=Selection(ids=(one.job.id,))))


def _retry(view: View, rows: Rows, glance: Glance) -> Result:
    del glance
    place = place_of(view, rows, Pane.DEATHS)
    if view.pane is not Pane.DEATHS or place is None:
        return _say(view, "choose one of the last deaths to let its job run again")
    one = rows.deaths[place]
    acts = {"dead": Retry, "pending": Retry, "quarantined": Release}
    if (act := acts.get(one.state)) is None:
        return _say(view, f"job {one.job_id} is {one.state}: it need not run again")
    question = f"Let job {one.job_id} ({one.kind}) run again now, with fresh counters?"
    return _ask(view, question, act(jobs=Selection(ids=(one.job_id,))))


def _pause(view: View, rows: Rows, glance: Glance) -> Result:
    """Pause, or resume, the pool or the kind of the chosen row."""
    place = place_of(view, rows, view.pane)
    if place is None:
        return _say(view, "choose a pool, or a job of a kind, to pause it")
    if view.pane is Pane.POOLS:
        pool = rows.pools[place]
        if pool.pause is not None:
            return _ask(view, f"Resume pool {pool.name}?", Resume(pool=pool.name))
        question = f"Pause pool {pool.name}? What runs goes on; nothing more begins"
        return _ask(view, question, Pause(pool=pool.name))
    of_running = view.pane is Pane.RUNNING
    kind = rows.running[place].job.kind if of_running else rows.deaths[place].kind
    if kind in glance.kinds_paused:
        return _ask(view, f"Resume kind {kind}?", Resume(kind=kind))
    question = f"Pause kind {kind}? What runs goes on; nothing more of it begins"
    return _ask(view, question, Pause(kind=kind))


def _ask(view: View, question: str, action: Action) -> Result:
    return msgspec.structs.replace(view, asked=Ask(one_line(question), action)), None


def _say(view: View, said: str) -> Result:
    return msgspec.structs.replace(view, said=said), None


Result = tuple[View, Request | None]
Act = Callable[[View, Rows, Glance], Result]


class Bound(NamedTuple):
    """What keys do in the list."""

    keys: tuple[str, ...]
    shown: str
    """The keys, for people."""
    does: str
    act: Act
    short: str = ""
    """What they do in a word, for the last line; "": it is not there."""
    pane: Pane | None = None
    """The only pane in which they do it."""


BINDINGS = (
    Bound(("up", "k"), "Up Down, k j", "the row above, or below", _moving(-1)),
    Bound(("down", "j"), "", "", _moving(1)),
    Bound(("page up",), "PgUp PgDn", "ten rows up, or down", _moving(-10)),
    Bound(("page down",), "", "", _moving(10)),
    Bound(("home", "g"), "Home End, g G", "the first row, or the last", _moving(-_FAR)),
    Bound(("end", "G"), "", "", _moving(_FAR)),
    Bound(("tab", "right"), "Tab", "the next pane; Shift-Tab: back", _pane, "pane"),
    Bound(("back tab", "left"), "", "", _pane_before),
    Bound(("enter",), "Enter", "all about a job; what runs in a pool", _open, "open"),
    Bound(("s",), "s", "sort what runs by the next column", _sort, "sort"),
    Bound(("S",), "S", "the other way round", _reverse),
    Bound(("/", "f"), "/", "only rows that have a text", _filter, "filter"),
    Bound(("escape",), "Esc", "all rows again", _clear),
    Bound(("c",), "c", "cancel a running job", _cancel, "cancel", Pane.RUNNING),
    Bound(("p",), "p", "pause a pool, or a job's kind; resume it", _pause, "pause"),
    Bound(("r",), "r", "let a dead job run again", _retry, "retry", Pane.DEATHS),
    Bound(("?", "h"), "?", "this list", _help, "help"),
    Bound(("q",), "q", "end", _quit, "quit"),
)
"""In the order of the help; what is named with another has no line of its own."""
BY_KEY = {key: bound for bound in BINDINGS for key in bound.keys}
