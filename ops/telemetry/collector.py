"""`Measures` as families of Prometheus, under the very names of `MEASURES`.

A counter without labels is there from the start, as 0; a gauge is there once somebody has set it, because 0 would
say something.
"""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from processors.ports.measures import MEASURES, Kind, Measures


class MeasuresCollector(Collector):
    """Called from the thread that answers a scrape."""

    def __init__(self, measures: Measures) -> None:
        self._measures = measures

    def collect(self) -> Iterator[Metric]:
        values: dict[str, dict[tuple[str, ...], float]] = {
            name: {(): 0.0} if measure.kind is Kind.COUNTER and not measure.labels else {}
            for name, measure in MEASURES.items()
        }
        for name, labels, value in self._measures:
            values[name][labels] = value
        for name, samples in values.items():
            measure = MEASURES[name]
            family = CounterMetricFamily if measure.kind is Kind.COUNTER else GaugeMetricFamily
            metric = family(name, measure.help, labels=measure.labels)
            for labels, value in samples.items():
                metric.add_metric(labels, value)
            if samples:
                yield metric
