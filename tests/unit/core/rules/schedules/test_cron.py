"""Cron expressions: what they mean, above all when clocks are set, and what is refused.

The judges are cronsim's own cases, and Debian's cron: its loop, minute by minute
(`support/schedules/debian.py`), and what the program itself did under a faked clock.
"""

import subprocess
import sys
from datetime import UTC, datetime
from itertools import islice, product
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobpool.core.rules.schedules.cron import ALIASES, CRON_MAX_CHARS, read_cron
from jobpool.core.rules.schedules.rule import Rule, between, check_rule, next_after
from jobpool.errors import ConfigError
from support.schedules import debian

CASES = [
    [part.strip() for part in line.split("|")]
    for line in (Path(debian.__file__).with_name("cronsim.txt"))
    .read_text()
    .splitlines()
    if not line.startswith("#")
]
DAY_MS = 86_400_000


def ms(moment):
    return round(moment.timestamp() * 1000)


def ticks(cron, zone, after_ms, until_ms):
    rule = check_rule(Rule(cron=cron, tz=zone))
    return list(between(rule, after_ms, until_ms))


@pytest.mark.parametrize(("cron", "zone", "after", "expected"), CASES)
def test_cronsims_own_cases(cron, zone, after, expected):
    """42 cases, 28 of them around changes of the clocks in Riga."""
    start = ms(datetime.fromisoformat(after).replace(tzinfo=ZoneInfo(zone)))
    local = [datetime.fromisoformat(text) for text in expected.split()]
    wanted = [ms(at if at.tzinfo else at.replace(tzinfo=UTC)) for at in local]
    found = between(check_rule(Rule(cron=cron, tz=zone)), start, start + 400 * DAY_MS)
    assert list(islice(found, len(wanted))) == wanted


@pytest.mark.parametrize("zone", debian.ZONES)
def test_ticks_are_those_of_debians_cron_when_clocks_are_set(zone):
    """A day around each change, by cron's loop. Whole years: `scripts/schedules`."""
    assert len(debian.transitions(zone)) == debian.ZONES[zone]
    for span in debian.spans(zone):
        judged = debian.walk(debian.EXPRESSIONS, ZoneInfo(zone), *span)
        for cron, ran in zip(debian.EXPRESSIONS, judged, strict=True):
            assert ticks(cron, zone, *span) == ran, cron


def test_ticks_are_those_that_debians_cron_ran():
    """The program itself, under a faked clock: `scripts/schedules --record`."""
    recorded = debian.recorded()
    assert {zone for zone, *_ in recorded} == set(debian.ZONES)
    for zone, after_ms, until_ms, cron, ran in recorded:
        assert ticks(cron, zone, after_ms, until_ms) == ran, (zone, cron)


def comes(cron):
    """Return whether an expression, made of fields that are right, has a tick."""
    try:
        return read_cron(cron)
    except ConfigError as exc:
        if "never comes" in str(exc) or "day-of-month" in str(exc):
            return False
        raise


FIELD = st.sampled_from(["*", "*/2", "*/7", "0", "30", "1-3", "0,59", "2-20/6"])
EXPRESSION = (
    st.tuples(
        FIELD,
        st.sampled_from(["*", "*/3", "0", "1", "2", "3", "1-3", "2,23", "0-23/5"]),
        st.sampled_from(["*", "*", "1", "28-31", "*/2", "15,L", "LW"]),
        st.sampled_from(["*", "*", "3,4", "10-11", "2"]),
        st.sampled_from(["*", "*", "SUN", "1-5", "7", "MON#1", "5L"]),
    )
    .map(" ".join)
    .filter(comes)
)
SPRUNG = [
    (zone, change) for zone in debian.ZONES for change in debian.transitions(zone)
]


@given(EXPRESSION, st.sampled_from(SPRUNG), st.integers(0, 2 * 1440 * 60))
def test_ticks_do_not_depend_on_where_one_begins(cron, where, second):
    """Strictly later, in order; and from any moment the next of all that follow."""
    zone, change = where
    begin, end = change - DAY_MS, change + DAY_MS
    found = ticks(cron, zone, begin, end)
    assert found == sorted({at for at in found if begin < at <= end})
    at = begin + 1000 * second
    later = next_after(Rule(cron=cron, tz=zone), at)
    assert later is None or later > at
    expected = next((tick for tick in found if tick > at), None)
    assert later == expected or (expected is None and (later or end + 1) > end)


def test_neither_cronsim_nor_time_zones_are_loaded_before_they_are_used():
    """They take longer than the rest of the core."""
    code = (
        "import sys, jobpool.core.rules.schedules.plan;"
        "sys.exit(str({'cronsim', 'zoneinfo', 'difflib'} & {*sys.modules} or ''))"
    )
    run = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    assert run.stderr == b"\n"


def test_leap_days_are_waited_for():
    century = [datetime(year, 2, 29, tzinfo=UTC) for year in (2092, 2096, 2104)]
    after = ms(datetime(2090, 1, 1, tzinfo=UTC))
    assert ticks("0 0 29 2 *", "UTC", after, after + 15 * 366 * DAY_MS) == [
        ms(day) for day in century
    ]


def test_months_that_are_passed_over_end_at_the_next_ones_beginning():
    middle, first = datetime(2026, 1, 20, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)
    rule = Rule(cron="0 0 1 3 *")
    assert next_after(rule, ms(middle)) == ms(first)


@pytest.mark.parametrize("at", [-(10**18), -1, 0, 253_402_300_799_000, 10**17])
def test_any_moment_has_an_answer(at):
    """Also beyond the dates that Python has. Nothing is before 1970."""
    if at <= 0:
        assert (
            next_after(Rule(cron="* * * * *", tz="Asia/Tokyo"), at)
            == (at == 0) * 60_000
        )
    later = next_after(Rule(cron="0 0 * * *", tz="Europe/Berlin"), at)
    assert later == (82_800_000 if at <= 0 else None)


MEANT = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
"""As crontab(5) has it."""


def test_names_stand_for_expressions():
    assert ALIASES == MEANT
    rule = check_rule(Rule(cron=" @Daily\t", tz="UTC"))
    assert list(between(rule, 0, 2 * DAY_MS)) == [DAY_MS, 2 * DAY_MS]


NEVER = ["0 0 31 2 *", "0 0 31 4,6 *", "1 1 */100 * MON#4", "0 0 */31 * MON#5"]


@pytest.mark.parametrize("cron", NEVER)
def test_dates_that_never_come_are_refused(cron):
    with pytest.raises(ConfigError, match=r"date that never comes|day-of-month"):
        read_cron(cron)


WRONG = [
    *("-1", "61", "ABC", "2/", "/2", "2#", "#2", "1##1", "1//2", "¹", "LL", "LWX"),
    *("1--100000000", "1-1_0", "5L-6", "5L#1", "99999999999999999999"),
]
PLACES = ["{} * * * *", "* {} * * *", "* * {} * *", "* * * {} *", "* * * * {}"]


@pytest.mark.parametrize(("place", "wrong"), [*product(PLACES, WRONG)])
def test_what_is_no_expression_is_refused(place, wrong):
    """By the table of cronsim's tests, and what has cost others gigabytes."""
    with pytest.raises(
        ConfigError, match=r"cron '.*' is not an expression.*write five"
    ):
        read_cron(place.format(wrong))


@pytest.mark.parametrize(
    ("cron", "said"),
    [
        ("", "five fields"),
        ("* * * *", "five fields"),
        ("* * * * * *", "there are no seconds, use every="),
        ("@reboot", "names no time"),
        ("@dayly", "five fields"),
        ("0 0 * * lün", "five fields"),
        ("* " * 5 + "\0", "no seconds"),
        ("*" * (CRON_MAX_CHARS + 1), "has 201 characters; expected at most 200"),
        ("0," * 10_000_000, "has 20,000,000 characters"),
    ],
)
def test_errors_say_what_is_expected(cron, said):
    with pytest.raises(ConfigError) as caught:
        read_cron(cron)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 300
