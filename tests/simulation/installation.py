"""What is published in every simulation: two workflows on one event, one of them in order, two others on events of
their own, one of which is soon too old, and the topics.
"""

from functools import cache

from processors.ports.catalog import CatalogSnapshot
from tests.unit.gateway.catalogs import snapshot_of
from topology.topics import Topics, TopicSpec

PROJECT = "pj_shop"
EVENT_TYPE = "order.paid"
LOOSE_TYPE = "order.noted"  # no order is kept among its runs
URGENT_TYPE = "order.pressing"  # no order either, and nobody wants it after three seconds
ORDERED, LOOSE = "q_orders", "q_notices"
TOPICS = Topics("sim")
DELAYS = dict(zip(TOPICS.retries(), (1.0, 3.0, 8.0), strict=True))  # shorter than in truth: faults do not last long
FILES = {
    "orders.yaml": """\
name: settle-order
version: 1
trigger: { event: order.paid }
queue: q_orders
steps:
  - { id: pay, uses: sql/execute, timeout: 5s, query: "select 1" }
""",
    "reminders.yaml": """\
name: remind-buyer
version: 1
deadline: 4s
queue: q_orders
steps:
  - { id: remind, uses: sql/execute, timeout: 5s, query: "select 1" }
""",
    "notices.yaml": """\
name: notify-buyer
version: 1
trigger: { event: order.paid }
queue: q_notices
steps:
  - { id: send, uses: sql/execute, timeout: 5s, query: "select 1" }
""",
    "notes.yaml": """\
name: note-order
version: 1
trigger: { event: order.noted }
queue: q_notices
steps:
  - { id: send, uses: sql/execute, timeout: 5s, query: "select 1" }
""",
    "pressing.yaml": """\
name: press-order
version: 1
trigger: { event: order.pressing, deliver: { maxAge: 3s } }
queue: q_notices
steps:
  - { id: press, uses: sql/execute, timeout: 5s, query: "select 1" }
""",
    "queues.yaml": """\
queues:
  - { id: q_orders, maxConcurrency: 5, ordering: by-partition }
  - { id: q_notices, maxConcurrency: 5 }
""",
}


@cache
def snapshot() -> CatalogSnapshot:
    return snapshot_of(FILES, PROJECT)


class PublishedCatalog:
    """The part of `Catalog` that ingest asks."""

    async def version(self) -> int:
        return 1

    async def snapshot(self) -> CatalogSnapshot:
        return snapshot()


def specs(partitions: int) -> list[TopicSpec]:
    spread = (TOPICS.events, TOPICS.commands, TOPICS.run_events)
    return [TopicSpec(name, partitions, 1) for name in spread] + [
        TopicSpec(name, 1, 1) for name in (TOPICS.dead_letters, *DELAYS)
    ]
