"""The ratios, verdicts, table and plot of scripts/bench, on planted figures."""

import json
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

LIB = Path(__file__).parents[3] / "scripts" / "lib"


@pytest.fixture(scope="module")
def bench():
    """Import the pure parts, which belong to a script and are in no package of ours."""
    sys.path.insert(0, str(LIB))
    try:
        from bench import plot, report
    finally:
        sys.path.remove(str(LIB))
    return plot, report


def planted(report):
    """Return two rounds; the second is ten times slower for all."""
    rates = {"jobpool": (8000.0, 900.0), "celery": (400.0, 30.0), "limit": (1e4, 2e3)}
    return [
        report.Sample("throughput", "no-op: jobs/s", system, number, value)
        for system, values in rates.items()
        for number, value in enumerate(values)
    ]


def test_a_ratio_is_taken_within_its_round(bench):
    """Noise that affects a whole round does not affect the ratio."""
    _, report = bench
    found = report.ratio(
        planted(report), "throughput", "no-op: jobs/s", "jobpool", "celery"
    )
    assert found == (20.0, 25.0, 30.0)


def test_a_round_without_the_peer_or_with_nothing_is_left_out(bench):
    """Half a pair is no ratio, and nothing is divided by zero."""
    _, report = bench
    make = report.Sample
    samples = [
        make("s", "w", "jobpool", 0, 4.0),
        make("s", "w", "jobpool", 1, 6.0),
        make("s", "w", "jobpool", 2, 8.0),
        make("s", "w", "huey", 1, 3.0),
        make("s", "w", "huey", 2, 0.0),
    ]
    assert report.ratio(samples, "s", "w", "jobpool", "huey") == (2.0, 2.0, 2.0)
    assert report.ratio(samples, "s", "w", "jobpool", "rq") is None


def test_bounds_are_met_missed_or_not_measured(bench):
    """A median on the bound meets it, one below does not, none is no verdict."""
    _, report = bench
    bounds = [
        report.Bound("throughput", "no-op: jobs/s", "jobpool", "celery", least=25),
        report.Bound("throughput", "no-op: jobs/s", "jobpool", "limit", least=0.7),
        report.Bound("throughput", "no-op: jobs/s", "jobpool", None, most=100),
        report.Bound("throughput", "no-op: jobs/s", "jobpool", "pebble", least=1),
        report.Bound("idle", "20 slots: % of a core", "jobpool", None, most=0.5),
    ]
    holds = [holds for _, _, holds in report.verdicts(planted(report), bounds)]
    assert holds == [True, False, False, None, None]


def test_the_table_names_every_system_its_spread_and_our_multiple(bench):
    """A row each, with minimum, median and maximum; ours has no ratio to itself."""
    _, report = bench
    lines = list(report.table(planted(report), {"rq": "there is no redis-server"}))
    assert lines[2:] == [
        "| throughput: no-op: jobs/s | jobpool | 900 / 4,450 / 8,000 |  |",
        "| throughput: no-op: jobs/s | celery | 30 / 215 / 400 | 20 / 25 / 30 |",
        (
            "| throughput: no-op: jobs/s | limit program | 2,000 / 6,000 / 10,000 "
            "| 0.45 / 0.625 / 0.8 |"
        ),
        "not measured: rq: there is no redis-server",
    ]


def test_systems_on_postgresql_are_compared_with_ours_on_postgresql(bench):
    """SQLite's speed is no argument against a server."""
    _, report = bench
    make = report.Sample
    samples = [
        make("s", "w", "jobpool", 0, 100.0),
        make("s", "w", "jobpool-postgresql", 0, 30.0),
        make("s", "w", "pgqueuer", 0, 10.0),
    ]
    rows = list(report.table(samples, {}))
    assert rows[-1].endswith("| pgqueuer | 10 / 10 / 10 | 3 / 3 / 3 |")


def test_a_missed_bound_is_reported(bench):
    """The run's last lines name what misses, with the required figure."""
    _, report = bench
    lines = [line for line in report.judged(planted(report)) if "celery" in line]
    assert lines == [
        (
            "met    throughput: no-op: jobs/s, jobpool over celery: 20 / 25 / 30, "
            "wanted >= 20"
        )
    ]
    slow = [s._replace(value=1.0) for s in planted(report)]
    assert next(report.judged(slow)).startswith("MISSED throughput")


def test_the_json_holds_every_value_and_verdict(bench):
    """A reader who doubts a median can compute another."""
    _, report = bench
    text = json.dumps(report.as_json(planted(report), {"rq": "why"}, {"kills": "1"}))
    found = json.loads(text)
    assert [s["value"] for s in found["samples"]] == [8000, 900, 400, 30, 1e4, 2e3]
    assert len(found["bounds"]) == len(report.BOUNDS)
    assert found["not measured"] == {"rq": "why"}


def test_the_plot_draws_a_longer_bar_for_a_faster_system(bench):
    """On a logarithmic scale ten times is a fixed length; names are escaped."""
    plot, report = bench
    found = {
        "jobpool": report.Spread(900.0, 1000.0, 1100.0),
        "a<b": report.Spread(10.0, 10.0, 10.0),
        "celery": report.Spread(100.0, 100.0, 100.0),
    }
    drawn = ET.fromstring(plot.bars("jobs & seconds", found))  # noqa: S314 - our own
    space = "{http://www.w3.org/2000/svg}"
    widths = [float(bar.get("width")) for bar in drawn.findall(f"{space}rect")][1:]
    names = [text.text for text in drawn.findall(f"{space}text")]
    assert [name for name in names if name in found] == ["jobpool", "celery", "a<b"]
    assert widths[0] == pytest.approx(2 * widths[1], abs=0.2)
    assert widths[2] == 1
