"""The table of metrics keeps Prometheus's rules, and nothing else makes metrics."""

import re
from pathlib import Path

import pytest

import jobpool
from jobpool.monitoring.metrics.attempts import CAUSES, AttemptMetrics
from jobpool.monitoring.metrics.catalogue import CATALOGUE, Kind, Where
from jobpool.monitoring.metrics.fleet import values_of
from jobpool.monitoring.scaling import scaling_of
from jobpool.sandbox.protocol.verdict import KillReason

PAGE = Path(jobpool.__file__).parent / "manual" / "metrics.md"
FORBIDDEN = ("_ms", "_mib", "_percent", "_minutes", "_count", "_info_total")


@pytest.mark.parametrize("metric", CATALOGUE, ids=lambda metric: metric.name)
def test_names_follow_the_conventions(metric):
    """A prefix, base units, and `_total` for counters and nothing else."""
    assert re.fullmatch(r"jobpool_[a-z0-9_]+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
    assert not metric.name.endswith(FORBIDDEN)
    assert metric.help.endswith(".")
    assert (metric.kind is Kind.HISTOGRAM) == bool(metric.buckets)
    assert list(metric.buckets) == sorted(metric.buckets)


def test_names_are_used_once():
    names = [metric.name for metric in CATALOGUE]
    assert len(names) == len(set(names))


def test_no_label_is_without_bounds():
    """Ids, keys and messages are none: each value is a series for ever."""
    labels = {label for metric in CATALOGUE for label in metric.labels}
    assert labels == {
        *("app", "band", "cause", "how", "kind", "name", "outcome", "pool", "quantile"),
        *("quota", "resource", "schedule", "state", "tenant", "version", "what"),
    }


def test_each_metric_is_exported_by_one_side(store):
    def names(families):
        return {family.name for family in families}

    def meant(where):
        return {
            metric.name.removesuffix("_total")
            for metric in CATALOGUE
            if metric.where is where
        }

    own = names(AttemptMetrics().collect())
    fleet = [one for one in CATALOGUE if one.where is Where.FLEET]
    assert own == meant(Where.SUPERVISOR)
    assert names(values_of(store, scaling_of(store)).families(fleet)) == meant(
        Where.FLEET
    )


def test_every_cause_of_a_kill_has_a_series_from_the_start():
    assert set(CAUSES) == {reason.value for reason in KillReason}


@pytest.mark.parametrize("metric", CATALOGUE, ids=lambda metric: metric.name)
def test_the_manual_has_each_metric_with_its_labels(metric):
    name = metric.name.removeprefix("jobpool_")
    row = f"| `{name}` | {', '.join(metric.labels)} | {metric.help.rstrip('.')} |"
    assert row in PAGE.read_text().splitlines()
