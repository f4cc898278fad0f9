"""Debian's cron, minute by minute: the judge of what expressions mean.

The loop is that of cron.c (3.0pl1, with Debian's patches), which sleeps to the next
minute, compares local clocks with a virtual time of its own, and so finds what a change
of clocks has left out or repeated. It shares nothing with jobpool: not the reading of
expressions, and of time zones only what clocks show at an instant.
"""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

ZONES = {
    "Europe/Berlin": 2,
    "America/New_York": 2,
    "Australia/Lord_Howe": 2,
    "Africa/Casablanca": 2,
    "Africa/Cairo": 2,
    "Antarctica/Troll": 2,
    "UTC": 0,
}
"""Zones that differ in how clocks are set, and how often they are in `YEAR`.

By half an hour on Lord Howe, by two in Troll; in Morocco for Ramadan, back first; in
Cairo at midnight.
"""
YEAR = 2026
EXPRESSIONS = (
    "* * * * *",
    "*/15 * * * *",
    "30 * * * *",
    "0 */2 * * *",
    "0 2 * * *",
    "30 2 * * *",
    "15 1,2,3 * * *",
    "*/20 2 * * *",
    "45 1-3 * * 0",
    "10 0 1,15 * sun",
    "59 23 */2 * *",
    "0,30 0-23 * * *",
)
MONTHS = (
    *("jan", "feb", "mar", "apr", "may", "jun"),
    *("jul", "aug", "sep", "oct", "nov", "dec"),
)
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
FIELDS = ((0, 59, ()), (0, 23, ()), (1, 31, ()), (1, 12, MONTHS), (0, 7, DAYS))
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - by local clocks
RECORD = Path(__file__).with_name("debian.txt")
Judged = tuple[str, int, int, str, list[int]]
"""Zone, after, until, expression, and when it ran."""
FEW, HOURS_3 = 5, 180
"""Minutes: clocks that jump by more were set, and by more were set wrong."""


def field(text, low, high, names):
    """Return the values that a field of an expression names."""
    found = set()
    for item in text.lower().split(","):
        span, first, last, step = re.fullmatch(
            r"(\*|(\w+)(?:-(\w+))?)(?:/(\d+))?", item
        ).groups()
        if span == "*":
            begin, end = low, high
        else:
            begin = names.index(first) + (low == 1) if first in names else int(first)
            end = begin
            if last is not None:
                end = names.index(last) + (low == 1) if last in names else int(last)
        found.update(range(begin, end + 1, int(step or 1)))
    return found


class Entry:
    """A line of a crontab."""

    def __init__(self, text):
        texts = text.split()
        self.minutes, self.hours, self.days, self.months, self.weekdays = (
            field(one, *rest) for one, rest in zip(texts, FIELDS, strict=True)
        )
        self.weekdays |= {7} if 0 in self.weekdays else set()
        self.weekdays |= {0} if 7 in self.weekdays else set()
        self.is_wild = texts[0].startswith("*") or texts[1].startswith("*")
        self.both = texts[2].startswith("*") or texts[4].startswith("*")
        self.ran = []

    def matches(self, minute):
        """Return whether a local minute, counted from 1970, is one of its."""
        hour, of_hour = divmod(minute, 60)
        if of_hour not in self.minutes or hour % 24 not in self.hours:
            return False
        day = EPOCH + timedelta(hours=hour)
        if day.month not in self.months:
            return False
        of_month, of_week = day.day in self.days, day.isoweekday() in self.weekdays
        return (of_month and of_week) if self.both else (of_month or of_week)


class Cron:
    """The program's state, and its main loop."""

    def __init__(self, entries, zone, from_ms):
        self.zone = zone
        self.lines = [Entry(text) for text in entries]
        self.fixed = [line for line in self.lines if not line.is_wild]
        self.wild = [line for line in self.lines if line.is_wild]
        self.virtual = self.clock(from_ms)

    def clock(self, at_ms):
        """Return what local clocks show, in minutes since 1970."""
        local = datetime.fromtimestamp(at_ms / 1000, UTC).astimezone(self.zone)
        return (local.replace(tzinfo=None) - EPOCH) // timedelta(minutes=1)

    def catch_up(self, now, lines, at_ms):
        """Run each virtual minute up to now."""
        while self.virtual < now:
            self.virtual += 1
            self.find_jobs(self.virtual, lines, at_ms)

    def find_jobs(self, virtual, lines, at_ms):
        """Run what a minute names, once."""
        for line in lines:
            if line.matches(virtual) and line.ran[-1:] != [at_ms]:
                line.ran.append(at_ms)

    def minute(self, at_ms):
        """Do what it does each minute."""
        now = self.clock(at_ms)
        ahead = now - self.virtual
        if 0 < ahead <= FEW:
            self.catch_up(now, self.lines, at_ms)
        elif FEW < ahead <= HOURS_3:
            self.find_jobs(now, self.wild, at_ms)
            self.catch_up(now, self.fixed, at_ms)
        elif -HOURS_3 < ahead <= 0:
            self.find_jobs(now, self.wild, at_ms)
        else:
            self.virtual = now
            self.find_jobs(now, self.lines, at_ms)


def walk(entries, zone, from_ms, until_ms):
    """Return the minutes at which Debian's cron runs each entry.

    Args:
        entries: expressions.
        zone: of the host.
        from_ms: when cron has started, a full minute.
        until_ms: the last minute.
    """
    cron = Cron(entries, zone, from_ms)
    for at_ms in range(from_ms + MINUTE_MS, until_ms + 1, MINUTE_MS):
        cron.minute(at_ms)
    return [line.ran for line in cron.lines]


def start_of(year):
    """Return when a year begins, in UTC milliseconds."""
    return round(datetime(year, 1, 1, tzinfo=UTC).timestamp() * 1000)


def transitions(zone):
    """Return the full hours of the year in or after which clocks are set, in UTC."""

    def offset(at_ms):
        return datetime.fromtimestamp(at_ms / 1000, ZoneInfo(zone)).utcoffset()

    days = range(start_of(YEAR), start_of(YEAR + 1), DAY_MS)
    return [
        hour
        for day in days
        if offset(day) != offset(day + DAY_MS)
        for hour in range(day, day + DAY_MS, HOUR_MS)
        if offset(hour) != offset(hour + HOUR_MS)
    ]


def spans(zone):
    """Return half a day before to half a day after each change; one day if none."""
    changes = transitions(zone) or [start_of(YEAR) + DAY_MS]
    return [(change - DAY_MS // 2, change + DAY_MS // 2) for change in changes]


def record(judged):
    """Keep what the program ran: minutes since the begin, as first, count, step."""
    lines = []
    for zone, after_ms, until_ms, cron, ran in judged:
        minutes = [(at - after_ms) // MINUTE_MS for at in ran]
        runs, before = [], None
        for minute in minutes:
            if runs and (runs[-1][1] == 1 or minute - before == runs[-1][2]):
                runs[-1][1:] = [runs[-1][1] + 1, minute - before]
            else:
                runs.append([minute, 1, 0])
            before = minute
        texts = " ".join(":".join(map(str, run)) for run in runs)
        lines.append(f"{zone} | {after_ms} | {until_ms} | {cron} | {texts}")
    RECORD.write_text("\n".join(lines) + "\n")


def recorded():
    """Return what the program ran, as it was recorded."""
    found = []
    for line in RECORD.read_text().splitlines():
        zone, after, until, cron, texts = (part.strip() for part in line.split("|"))
        runs = [tuple(map(int, text.split(":"))) for text in texts.split()]
        minutes = [
            first + n * step for first, count, step in runs for n in range(count)
        ]
        after_ms = int(after)
        ran = [after_ms + minute * MINUTE_MS for minute in minutes]
        found.append((zone, after_ms, int(until), cron, ran))
    return found
