"""Produces straight to Kafka as a producer with an outbox of its own: what is not known as accepted goes again."""

import json
import time
from collections import deque
from collections.abc import Collection

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.chaos.orders import Order

TOPIC = "a44.events.v1"
NOT_THERE = (KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART)


class Records:
    """`orders` by event id. A record that the broker refuses is sent again; the service drops the second one."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "message.timeout.ms": 20_000,
                "linger.ms": 5,
                "log_level": 0,
                "allow.auto.create.topics": False,
            }
        )
        self._unsent: deque[Order] = deque()
        self.orders: dict[str, Order] = {}
        self.again = 0

    def send(self, order: Order) -> None:
        assert order.event_id is not None
        self.orders[order.event_id] = order
        self._unsent.append(order)

    def _produce(self, order: Order) -> None:
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
                self._unsent.append(order)

        self._producer.produce(TOPIC, key=order.lane, value=json.dumps(envelope), on_delivery=delivered)

    def send_again(self, known: Collection[str]) -> int:
        """After a broker came back without its data: what the service has not accepted; answers how many."""
        missing = [order for event_id, order in self.orders.items() if event_id not in known]
        for order in missing:
            self.send(order)
        self.again += len(missing)
        return len(missing)

    def poll(self) -> None:
        """Records go out and deliveries are told in here. Where the topic is not there yet they wait."""
        try:
            while self._unsent:
                self._produce(self._unsent[0])
                self._unsent.popleft()
        except (KafkaException, BufferError) as exc:
            if isinstance(exc, KafkaException) and exc.args[0].code() not in NOT_THERE:
                raise
        self._producer.poll(0)

    @property
    def waiting(self) -> int:
        return len(self._producer) + len(self._unsent)
