"""Reads a process's measures as Prometheus does: name and labels to value."""

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def sample(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    """The place of a value in what `scrape` answers."""
    return name, frozenset(labels.items())


async def scrape(address: object) -> Samples:
    """`address` is the `metrics` of a ready line."""
    async with aiohttp.ClientSession() as session, session.get(str(address)) as answer:
        answer.raise_for_status()
        text = await answer.text()
    return {
        (one.name, frozenset(one.labels.items())): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }
