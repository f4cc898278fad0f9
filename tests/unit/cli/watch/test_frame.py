"""Pictures of `jobpool top`: of the right size, harmless, with what is wrong on top."""

import re

import pytest
from rich.text import Text

from jobpool.cli.watch.top.cells import bar, block
from jobpool.cli.watch.top.frame import frame
from jobpool.cli.watch.top.panes import number
from jobpool.cli.watch.top.view import BINDINGS, Ask, Pane, View
from jobpool.manual import pages
from jobpool.monitoring.glance.glance import Host
from jobpool.operations.queue import Pause
from jobpool.store.records.operating import PauseRow
from support.glances import (
    MIB,
    NOW_MS,
    end_row,
    glance,
    lines_of,
    pool_row,
    printed,
    running_row,
    shop,
)

EVIL = "\x1b[2J\x9b1m\u202e\nforged \x07"
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u202e]")
BUSY = glance(
    [
        running_row(10_000_000 + n, n * 7.0, slot=f"io/{n}", progress=b"0.5")
        for n in range(60)
    ],
    [end_row(n, attempt=n) for n in range(30)],
    [pool_row(f"pool-{n}", 40, 30, causes=(("slots", 1.0),)) for n in range(12)],
    begun=12,
    dead=3,
    quarantined=1,
)


@pytest.mark.parametrize(
    "seen", [None, glance(), BUSY], ids=["nothing", "idle", "busy"]
)
@pytest.mark.parametrize("pane", Pane)
def test_a_picture_has_exactly_the_size_of_the_terminal(seen, pane):
    """Or it would scroll, at any size, with few rows and with many."""
    for width, height in [(1, 1), (59, 30), (60, 12), (80, 24), (97, 13), (140, 40)]:
        for more in (View(pane=pane), View(helped=True), View(opened=("x" * 300,))):
            lines = frame(seen, more, width=width, height=height, now_ms=NOW_MS)
            assert len(lines) == height
            assert {line.cell_len for line in lines} == {width}


@pytest.mark.parametrize("pane", Pane)
def test_the_chosen_row_is_visible_wherever_it_is(pane):
    """The rows above it make room."""
    last = {Pane.POOLS: "pool-11", Pane.RUNNING: 10_000_000, Pane.DEATHS: "29.29"}
    view = View(pane=pane, chosen={pane: last[pane]})
    (marked,) = [line for line in lines_of(BUSY, view, 80, 24) if line.startswith(">")]
    assert str(last[pane]).partition(".")[0] in marked


def test_what_jobs_and_people_wrote_controls_no_terminal():
    """Kinds, slots, progress, reasons, notes, hosts, urls, errors."""
    one = running_row(
        kind=EVIL, slot=f"cpu/{EVIL}", progress=f'"{EVIL}"'.encode(), attempt=2
    )
    pause = PauseRow(what="pool", name="cpu", who=EVIL, note=EVIL)
    everything = PauseRow(what="store", name="", who=EVIL, note=EVIL)
    kind = PauseRow(what="kind", name=EVIL)
    seen = glance(
        [one],
        [end_row(reason=EVIL, kind=EVIL, outcome=EVIL, state=EVIL)],
        [pool_row(EVIL, running=[one]), pool_row(pause=pause)],
        url=EVIL,
        silent=(EVIL,),
        pauses=(everything, kind),
    )
    for view in (View(), View(said=EVIL), View(wanted=EVIL), View(is_typing=True)):
        for line in lines_of(seen, view, 140, 40, error=EVIL):
            assert not CONTROL.search(line), line


def test_a_terminal_without_unicode_gets_ascii():
    """Also where a text was cut."""
    view = View(asked=Ask("Pause?", Pause(pool="cpu")))
    for one in (view, View(), View(pane=Pane.POOLS), View(helped=True)):
        text = "".join(lines_of(BUSY, one, 80, 24, ascii_only=True))
        assert text.isascii(), text


def test_without_colours_everything_is_still_told():
    """What is chosen, what is full and what is dead is no matter of colour."""
    seen = glance([running_row()], [end_row()])
    lines = frame(seen, View(), width=100, height=30, now_ms=NOW_MS)
    plain = printed(lines, no_color=True)
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]", plain)
    assert re.search(r"\x1b\[[0-9;]*3[0-7]", printed(lines))
    assert ">  1" in "\n".join(line.plain for line in lines)


@pytest.mark.parametrize(
    ("share", "glyph", "style"),
    [
        (0.0, "▁", "green"),
        (0.5, "▄", "green"),
        (0.75, "▆", "yellow"),
        (0.95, "█", "bold red"),
        (7.0, "█", "bold red"),
    ],
)
def test_a_child_is_a_block_as_full_as_its_memory(share, glyph, style):
    """Never empty: it is there."""
    assert block(share) == Text(glyph, style=style)
    assert block(share, ascii_only=True).plain.isascii()


@pytest.mark.parametrize("share", [-1.0, 0.0, 0.33, 0.5, 1.0, 9.0])
def test_a_bar_has_its_width(share):
    """Whatever the share."""
    for ascii_only in (False, True):
        assert bar(share, 10, "green", ascii_only=ascii_only).cell_len == 10


def test_slots_stand_where_they_are_and_hosts_apart():
    """A block each: as full as its child; brief jobs are dots, free slots are faint."""
    running = [
        running_row(1, slot="cpu/2", rss_bytes=512 * MIB),
        running_row(2, slot="cpu/0", rss_bytes=64 * MIB),
        running_row(3, slot="cpu/1", supervisor="run-2", rss_bytes=256 * MIB),
    ]
    hosts = (
        Host(run_id="run-1", size=4, busy=3),
        Host(run_id="run-2", size=2, busy=1),
    )
    seen = glance(running, pools=[pool_row(running=running, hosts=hosts)])
    (row,) = [line for line in lines_of(seen, View()) if line.startswith(" cpu")]
    assert "▁•█· ·▄" in row
    assert "4/6" in row


def test_a_pool_with_more_slots_than_room_says_how_many_are_hidden():
    """And the columns behind it stay."""
    seen = glance(pools=[pool_row(size=500, busy=500)])
    (row,) = [line for line in lines_of(seen, View(), 80) if line.startswith(" cpu")]
    drawn, hidden = row.count("•"), int(re.search(r"\+(\d+)", row)[1])
    assert drawn + hidden == 500
    assert "500/500" in row


def test_what_is_wrong_stands_above_everything():
    """Who does not live, what is paused, and that the store is away."""
    pause = PauseRow(what="store", name="", who="ada", note="maintenance")
    seen = glance(silent=("supervisor 7 on web-3: it has died",), pauses=(pause,))
    top = "\n".join(lines_of(seen, View(), error="no route to host")[:6])
    for text in ("SILENT: supervisor 7", "PAUSED", "ada", "CANNOT BE READ", "route"):
        assert text in top
    assert "no supervisor is running" in "\n".join(lines_of(glance(alive=0), View()))
    old = glance(at_ms=NOW_MS - 12_000)
    assert "12s old" in "\n".join(lines_of(old, View(), error="away")[:4])
    counted = glance(counted_ms=NOW_MS - 40_000)
    assert "counts 40s old" in "\n".join(lines_of(counted, View())[:4])


def test_a_pool_says_what_its_due_jobs_wait_for():
    """Causes with shares; that nobody serves it, or who has paused it."""
    pause = PauseRow(what="pool", name="c", who="ada", note="driver")
    pools = [
        pool_row("a", due=10, causes=(("quota", 0.8), ("slots", 0.2)), blocked=8),
        pool_row("b", hosts=(), due=3),
        pool_row("c", pause=pause),
        pool_row("d", due=3, causes=(("slots", 1.0),)),
    ]
    text = "\n".join(lines_of(glance(pools=pools), View(), 120))
    for words in ("quota 80 %, slots 20 %", "NO SUPERVISOR", "PAUSED by ada: driver"):
        assert words in text
    assert re.search(r"^ d .* slots$", text, re.MULTILINE)


def test_the_help_has_each_key():
    """And the last line has those that fit the pane."""
    text = "\n".join(lines_of(glance(), View(helped=True), 80, 24))
    assert "audit trail" in text, "all of it, on the smallest usual terminal"
    assert all(one.does in text for one in BINDINGS)
    assert "c cancel" in lines_of(BUSY, View())[-1]
    assert "c cancel" not in lines_of(BUSY, View(pane=Pane.POOLS))[-1]
    assert "r retry" in lines_of(BUSY, View(pane=Pane.DEATHS))[-1]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "-"),
        (999, "999"),
        (9_999, "9,999"),
        (12_340, "12.3k"),
        (999_499, "999k"),
        (999_500, "1M"),
        (5_000_000, "5M"),
        (7 * 10**9, "7G"),
    ],
)
def test_counts_are_short(value, shown):
    """At most six characters."""
    assert number(value) == shown


def test_the_manuals_picture_is_what_is_drawn():
    """Line by line."""
    page = pages.text_of("watching")
    shown = re.search(r"```text\n(.*?)\n```", page, re.DOTALL)[1].splitlines()
    drawn = lines_of(shop(), View(), 100, 22)
    assert shown == [line for line in drawn if line]
