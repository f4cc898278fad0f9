"""Counts by label, as Prometheus wants them: kept in plain dicts, turned into samples.

The library's own counters take a lock and a search at every call. A supervisor ends
thousands of attempts a second and is scraped every few seconds: here the work is done
when somebody looks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric as Family

from jobpool.monitoring.metrics.catalogue import Kind, Metric

Labels = tuple[str, ...]
_INFINITY = "+Inf"


class Histogram:
    """Values of one series."""

    __slots__ = ("counts", "sum")

    def __init__(self, buckets: int) -> None:
        self.counts = [0] * (buckets + 1)
        self.sum = 0.0

    def add(self, edges: tuple[float, ...], values: Iterable[float]) -> None:
        """Count values; *edges* are those of its metric."""
        counts = self.counts
        for value in values:
            counts[bisect_left(edges, value)] += 1
            self.sum += value


class Values:
    """The series of some metrics."""

    def __init__(self) -> None:
        self._numbers: defaultdict[Metric, Counter[Labels]] = defaultdict(Counter)
        self._gauges: defaultdict[Metric, dict[Labels, float]] = defaultdict(dict)
        self._histograms: defaultdict[Metric, dict[Labels, Histogram]]
        self._histograms = defaultdict(dict)

    def count(self, metric: Metric, *labels: str, by: int = 1) -> None:
        """Add to a counter; 0 makes its series known."""
        self._numbers[metric][labels] += by

    def set(self, metric: Metric, *labels: str, to: float) -> None:
        """Set a gauge."""
        self._gauges[metric][labels] = to

    def total(self, metric: Metric, *labels: str, to: int) -> None:
        """Set a counter to what somebody else has counted."""
        self._numbers[metric][labels] = to

    def default(self, metric: Metric, *labels: str, to: float) -> None:
        """Set a gauge that has no value yet."""
        self._gauges[metric].setdefault(labels, to)

    def replace(self, metric: Metric, to: Mapping[Labels, float]) -> None:
        """Set all series of a gauge: those that are missing are gone."""
        self._gauges[metric] = dict(to)

    def add(self, metric: Metric, *labels: str, values: Iterable[float]) -> None:
        """Add values to a histogram; none make its series known."""
        series = self._histograms[metric]
        if labels not in series:
            series[labels] = Histogram(len(metric.buckets))
        series[labels].add(metric.buckets, values)

    def families(self, metrics: Iterable[Metric]) -> Iterator[Family]:
        """Yield what Prometheus reads, of these metrics; empty ones as well."""
        for metric in metrics:
            if metric.kind is Kind.HISTOGRAM:
                yield self._histogram(metric)
            elif metric.kind is Kind.COUNTER:
                name = metric.name.removesuffix("_total")
                counter = CounterMetricFamily(name, metric.help, labels=metric.labels)
                for labels, number in self._numbers[metric].items():
                    counter.add_metric(labels, number)
                yield counter
            else:
                gauge = GaugeMetricFamily(
                    metric.name, metric.help, labels=metric.labels
                )
                for labels, value in self._gauges[metric].items():
                    gauge.add_metric(labels, value)
                yield gauge

    def _histogram(self, metric: Metric) -> HistogramMetricFamily:
        family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        edges = [*map(str, metric.buckets), _INFINITY]
        for labels, one in self._histograms[metric].items():
            below = accumulate(one.counts)
            family.add_metric(labels, list(zip(edges, below, strict=True)), one.sum)
        return family
