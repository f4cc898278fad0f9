"""What holds where nobody has said anything."""

import importlib
import inspect
import logging
import pkgutil

import msgspec
import pytest

import jobpool.core
from jobpool.core import (
    breaker,
    cgroups,
    events,
    policy,
    printable,
    settings,
    suspicion,
)
from jobpool.core.outcome import CHARGES, Charge, Outcome
from jobpool.store import records

MODULES = [
    *(
        f"jobpool.core.{one.name}"
        for one in pkgutil.iter_modules(jobpool.core.__path__)
    ),
    records.__name__,
]
MIB = 1_048_576

SAID = {
    "SupervisorStopped": {"how": "drained"},
    "Lockdown": {"network": True, "enclosure": "none"},
    "Policy": {
        "max_attempts": 5,
        "max_crashes": 3,
        "crash_window_s": 259_200.0,
        "max_lost": 5,
        "rerun": "always",
    },
    "PoolSettings": {
        "recycle_jobs": 10_000,
        "recycle_age_s": 3600.0,
        "recycle_growth_bytes": 128 * MIB,
        "drain_s": 25.0,
        "preload": True,
        "sandbox": "standard",
        "network": True,
        "idle_shrink_s": 60.0,
        "output_max_bytes": MIB,
        "breaker_after": 5,
    },
    "Retention": {
        "succeeded_s": 7 * 86_400,
        "canceled_s": 7 * 86_400,
        "dead_s": 180 * 86_400,
    },
    "Settings": {
        "payload_max_bytes": MIB,
        "result_max_bytes": MIB,
        "queue_depth_max": 10_000_000,
        "app_timeout_s": 60.0,
        "lease_ttl_s": 60.0,
        "probation_s": 10.0,
    },
    "HandlerSpec": {"schema": b"{}"},
    "Option": {"show": str},
}


def records_of(module):
    """Return the records that a module defines: structs and named tuples."""
    return [
        found
        for found in vars(importlib.import_module(module)).values()
        if inspect.isclass(found)
        and found.__module__ == module
        and (issubclass(found, msgspec.Struct) or hasattr(found, "_field_defaults"))
    ]


def defaults_of(record):
    """Return those of a record's defaults that say anything by themselves."""
    if issubclass(record, msgspec.Struct):
        fields = msgspec.structs.fields(record)
        found = {one.name: one.default for one in fields}
    else:
        found = record._field_defaults
    return {
        name: default
        for name, default in found.items()
        if default is not msgspec.NODEFAULT
        and default
        and not isinstance(default, msgspec.Struct | Charge)
    }


@pytest.mark.parametrize("module", MODULES)
def test_a_record_says_only_what_it_was_told(module):
    """Counters, times and flags begin with nothing; what begins otherwise is here."""
    for record in records_of(module):
        assert defaults_of(record) == SAID.get(record.__name__, {}), record


def test_every_promised_default_is_some_records():
    """A name above that is nobody's promises nothing."""
    names = {one.__name__ for module in MODULES for one in records_of(module)}
    assert SAID.keys() <= names


CHARGED = {
    Outcome.SUCCEEDED: "",
    Outcome.FAILED: "failure",
    Outcome.TIMED_OUT: "failure end_unknown",
    Outcome.STALLED: "failure end_unknown",
    Outcome.OUT_OF_MEMORY: "failure crash end_unknown",
    Outcome.CRASHED: "failure crash end_unknown",
    Outcome.INTERRUPTED: "interruption end_unknown",
    Outcome.LOST: "recovery end_unknown",
    Outcome.CANCELED: "",
}


def test_each_outcome_has_its_price():
    """Whom an end is charged to is a promise."""
    words = {
        outcome: " ".join(name for name in Charge._fields if getattr(charge, name))
        for outcome, charge in CHARGES.items()
    }
    assert words == CHARGED


def test_levels_are_those_of_logging():
    """So that a log collector sorts ours among its own."""
    for level in events.Level:
        assert level == getattr(logging, level.name)


def test_limits_that_pools_have_by_their_nature():
    """By the work that they are for; any other pool is as the larger one."""
    assert dict(settings.DEFAULT_TIMEOUT_S) == {"cpu": 600, "io": 120}
    gib = 1024 * MIB
    assert dict(settings.DEFAULT_MEMORY_BYTES) == {"cpu": gib, "io": gib // 2}
    others = settings.OTHER_TIMEOUT_S, settings.OTHER_MEMORY_BYTES
    assert others == (600, gib)
    assert (settings.DEFAULT_IO_SLOTS, settings.MEMORY_BUDGET_SHARE) == (16, 0.8)
    assert settings.LEASE_TTL_MIN_S == 5


@pytest.mark.parametrize(
    ("nth", "wait_s"), [(1, 30), (2, 120), (3, 480), (4, 1920), (5, 3600), (99, 3600)]
)
def test_waits_between_attempts(nth, wait_s):
    """30 s, four times as long each time, an hour at most; a fifth to either side."""
    found = [policy.backoff_s(nth, spread) for spread in (-2, -1, 0, 1, 2)]
    wanted = [wait_s * part for part in (0.8, 0.8, 1, 1.2, 1.2)]
    assert found == pytest.approx(wanted)


def test_after_a_crash_a_minute_at_least():
    """Before the first two attempts; an own rule's delay is taken as it is."""
    wait = {"nth": 1, "under_rule": 1, "spread": 0}
    assert policy.retry_delay_s(None, crashed=True, **wait) == 60
    assert policy.retry_delay_s(None, crashed=False, **wait) == 30
    rule = policy.RetryRule(delays_s=(1, 2))
    waits = [
        policy.retry_delay_s(rule, crashed=True, nth=9, under_rule=n, spread=1)
        for n in (1, 2, 3)
    ]
    assert waits == [1, 2, 2]
    assert policy.INTERRUPTIONS_MAX == 20


def paused(crashes):
    """Return how long a kind waits after so many different jobs crashed in a row."""
    kind = breaker.Breaker("a", 5)
    for number in range(crashes):
        kind.crash(number, None, 0.0)
    return kind.state.value, kind.pause_s()


def test_pauses_of_a_kind_that_crashes():
    """From a second to a minute, then from five minutes to an hour."""
    found = [paused(crashes) for crashes in (4, 5, 6, 10, 11, 19, 20, 21, 23, 24, 200)]
    assert found == [
        ("closed", 0),
        ("slowed", 1),
        ("slowed", 2),
        ("slowed", 32),
        ("slowed", 60),
        ("slowed", 60),
        ("open", 300),
        ("open", 600),
        ("open", 2400),
        ("open", 3600),
        ("open", 3600),
    ]


def test_suspicion_counts_ten_minutes_and_ten_seconds():
    """Deaths so close are no chance; who runs so long alone is cleared."""
    assert (suspicion.DEATHS_WITHIN_S, suspicion.PROBATION_S) == (600, 10)


@pytest.mark.parametrize(
    ("limit_mib", "most_mib"), [(1, 33), (320, 352), (330, 363), (1000, 1100)]
)
def test_a_cgroup_leaves_room_for_the_meter(limit_mib, most_mib):
    """A tenth more, and 32 MiB at least."""
    assert cgroups.memory_max_bytes(limit_mib * MIB) == most_mib * MIB


def test_a_cgroup_bounds_processes():
    """Where nothing else is said."""
    assert cgroups.PROCESSES_MAX == 1024


# -- texts -----------------------------------------------------------------------------


def test_a_line_and_a_text_are_capped_and_marked():
    """A line keeps its beginning, a text its end."""
    assert printable.one_line("a" * 2000) == "a" * 2000
    assert printable.one_line("a" * 2001) == "a" * 2000 + "… [1 more characters]"
    assert printable.lines("b" * 100_000) == "b" * 100_000
    head = "[2 characters before this left out]\n"
    assert printable.lines("xy" + "b" * 100_000) == head + "b" * 100_000


@pytest.mark.parametrize(
    ("char", "shown", "in_json"),
    [
        ("\n", r"\n", r"\u000a"),
        ("\r", r"\r", r"\u000d"),
        ("\t", r"\t", r"\u0009"),
        ("\x1b", r"\x1b", r"\u001b"),
        ("\xad", r"\xad", r"\u00ad"),
        ("\u202e", r"\u202e", r"\u202e"),
        ("\ufeff", r"\ufeff", r"\ufeff"),
        ("\ud800", r"\ud800", r"\ud800"),
        ("\U000e0041", r"\U000e0041", r"\udb40\udc41"),
    ],
)
def test_what_is_hidden_is_shown(char, shown, in_json):
    """As Python writes it; in JSON as JSON does."""
    assert printable.one_line(f"a{char}b") == f"a{shown}b"
    assert printable.json_text(f"a{char}b") == f"a{in_json}b"
    visible = char if char in "\n\t" else shown
    assert printable.lines(f"a{char}b") == f"a{visible}b"


def test_lines_of_other_systems_are_lines():
    """CR LF is one break; a lone CR would hide what stands before it."""
    assert printable.lines("a\r\nb\rc") == "a\nb\\rc"
    assert printable.whole("a\ud800b") == "a\ufffd\ufffd\ufffdb"
