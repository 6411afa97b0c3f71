"""Produces straight to Kafka as a producer with an outbox of its own: what is not known as accepted goes again."""

import json
import time
from collections.abc import Collection

from confluent_kafka import KafkaError, Message, Producer

from tests.chaos.orders import Order

TOPIC = "a44.events.v1"


class Records:
    """`orders` by event id. A record that the broker refuses is sent again; the service drops the second one."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "message.timeout.ms": 20_000, "linger.ms": 5, "log_level": 0}
        )
        self.orders: dict[str, Order] = {}
        self.again = 0

    def send(self, order: Order) -> None:
        assert order.event_id is not None
        self.orders[order.event_id] = order
        envelope = {
            "id": order.event_id,
            "type": f"chaos.{order.workflow}",
            "idempotency_key": order.key,
            "partition_key": order.lane,
            "occurred_at": "2026-11-29T00:00:00Z",
            "project_id": "dev",
            "data": order.data,
        }

        def delivered(problem: KafkaError | None, message: Message) -> None:
            if problem is None:
                order.accepted, order.partition = time.time(), message.partition()
            else:
                self.again += 1
                self.send(order)

        self._producer.produce(TOPIC, key=order.lane, value=json.dumps(envelope), on_delivery=delivered)

    def send_again(self, known: Collection[str]) -> int:
        """After a broker came back without its data: what the service has not accepted; answers how many."""
        missing = [order for event_id, order in self.orders.items() if event_id not in known]
        for order in missing:
            self.send(order)
        self.again += len(missing)
        return len(missing)

    def poll(self) -> None:
        """Deliveries are told in here."""
        self._producer.poll(0)

    @property
    def waiting(self) -> int:
        return len(self._producer)
