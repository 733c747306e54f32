"""Counters, gauges and histograms that are written on one thread only, as everything here is on the event loop's, and
read by prometheus_client at a scrape. Its own metric objects take a lock for each number; a run changes some fifty."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString


class Number:
    """A counter's value, or a gauge's."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1.0) -> None:
        self.value += amount

    def dec(self) -> None:
        self.value -= 1.0

    def set(self, value: float) -> None:
        self.value = value


class Distribution:
    """A histogram's buckets, each with what lies above the one before it, and the sum of all."""

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self._bounds, value)] += 1
        self.sum += value


Child = TypeVar("Child", Number, Distribution)


class Series(Generic[Child]):
    """The children of one metric by their labels. Without labels there is one, from the start. A collector, which
    registers itself: `add` puts a child into the family that `empty` makes."""

    def __init__(
        self,
        registry: CollectorRegistry,
        labels: Sequence[str],
        new: Callable[[], Child],
        empty: Callable[[], Metric],
        add: Callable[[Metric, Sequence[str], Child], None],
    ) -> None:
        self._children: dict[tuple[str, ...], Child] = {} if labels else {(): new()}
        self._new = new
        self._empty = empty
        self._add = add
        registry.register(self)

    def labels(self, *values: str) -> Child:
        child = self._children.get(values)
        if child is None:
            child = self._children[values] = self._new()
        return child

    def collect(self) -> Iterable[Metric]:
        family = self._empty()
        for values, child in self._children.items():
            self._add(family, values, child)
        return [family]

    def describe(self) -> Iterable[Metric]:
        """So that the registry need not collect to know its name."""
        return [self._empty()]


def counter(registry: CollectorRegistry, name: str, about: str, *labels: str) -> Series[Number]:
    return Series(registry, labels, Number, lambda: CounterMetricFamily(name, about, labels=labels), add_number)


def gauge(registry: CollectorRegistry, name: str, about: str, *labels: str) -> Series[Number]:
    return Series(registry, labels, Number, lambda: GaugeMetricFamily(name, about, labels=labels), add_number)


def histogram(
    registry: CollectorRegistry, name: str, about: str, bounds: Sequence[float], *labels: str
) -> Series[Distribution]:
    names = [*map(floatToGoString, bounds), "+Inf"]

    def add(family: Metric, values: Sequence[str], child: Distribution) -> None:
        assert isinstance(family, HistogramMetricFamily)
        buckets = list(zip(names, accumulate(child.counts), strict=True))
        family.add_metric(values, buckets, child.sum)

    def empty() -> Metric:
        return HistogramMetricFamily(name, about, labels=labels)

    return Series(registry, labels, lambda: Distribution(bounds), empty, add)


def add_number(family: Metric, values: Sequence[str], child: Number) -> None:
    assert isinstance(family, CounterMetricFamily | GaugeMetricFamily)
    family.add_metric(values, child.value)
