"""The check of a chaos run sees quotas that did not hold, by what handlers wrote."""

from types import SimpleNamespace

from chaos.accounts import Attempt
from chaos.limits import BURST, PLACES, RATE_PER_S
from chaos.nemesis import Blow
from chaos.quotas import caps_hold, rates_hold

MS = 1_000_000
AFTER_MS = 1000 // RATE_PER_S


def run(kind, *spans_ms, blows=(), shared=False):
    """Return the accounts of attempts of a kind: when each began, and for how long."""
    jobs = [SimpleNamespace(job=n, kind=kind) for n, _ in enumerate(spans_ms)]
    attempts = {
        n: Attempt(n, n, 1, 77, from_ms * MS, (from_ms + ms) * MS, starts=1)
        for n, (from_ms, ms) in enumerate(spans_ms)
    }
    return SimpleNamespace(jobs=jobs, attempts=attempts, blows=blows, shared=shared)


def test_no_more_handlers_run_than_there_are_places():
    """I20: from a first mark to the last one."""
    long = [(100 * n, 1000) for n in range(PLACES)]
    assert list(caps_hold(run("capped", *long))) == []
    assert list(caps_hold(run("capped", *long, (1001, 9)))) == []
    assert list(caps_hold(run("steady", *long, (900, 9)))) == []
    assert list(caps_hold(run("capped", (0, 0), (1, 0), (2, 0), *long))) == []
    (found,) = caps_hold(run("capped", *long, (900, 9)))
    assert found.rule == "I20"


def test_no_more_handlers_begin_than_the_rate_allows():
    """I21: whenever they end."""
    burst = [(1000, 5)] * BURST
    assert list(rates_hold(run("paced", *burst, (1000 + AFTER_MS, 5)))) == []
    assert list(rates_hold(run("steady", *burst, (1000, 5)))) == []
    (found,) = rates_hold(run("paced", *burst, (999 + AFTER_MS, 5)))
    assert found.rule == "I21"


def test_after_what_makes_begins_late_there_may_be_a_burst():
    """I21: a clock is one on several hosts, and each supervisor's own on one."""

    def holds(sort, at_ms, *, shared=False):
        spans = [(1000, 5)] * BURST + [(1050, 5)]
        blow = Blow(sort, (at_ms - 1) * MS, at_ms * MS, "a", "cpu/1", 77)
        return not list(rates_hold(run("paced", *spans, blows=[blow], shared=shared)))

    assert holds("child stopped", 1020)
    assert not holds("child stopped", 1200)
    assert not holds("child killed", 1020)
    assert holds("clock shifted", 1020)
    assert not holds("clock shifted", 1020, shared=True)
