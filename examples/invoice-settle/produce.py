"""Produces invoice events straight to the events topic, as any team with a Kafka client would.

python produce.py --bootstrap 127.0.0.1:9092 --project dev --events 200 --keys 20
"""

import argparse
import json
from datetime import UTC, datetime

from confluent_kafka import Producer


def envelopes(project: str, events: int, keys: int):
    """Key by key in turn, so that each key's events are spread over the whole run."""
    for number in range(events):
        key, revision = number % keys, number // keys
        yield (
            f"cust_{key:03}",
            {
                "id": f"evt_demo_{key:03}_{revision:03}",
                "type": "billing.invoice.finalized",
                "idempotency_key": f"invoice:inv_{key:03}:finalized:v{revision}",
                "partition_key": f"cust_{key:03}",
                "occurred_at": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                "attempt": 1,
                "project_id": project,
                "data": {"invoiceId": f"inv_{key:03}", "revision": revision, "amountCents": 249_900 + revision},
            },
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", default="a44.events.v1")
    parser.add_argument("--project", required=True)
    parser.add_argument("--events", type=int, default=200)
    parser.add_argument("--keys", type=int, default=20)
    options = parser.parse_args()
    producer = Producer({"bootstrap.servers": options.bootstrap, "enable.idempotence": True})
    refused = []
    for key, envelope in envelopes(options.project, options.events, options.keys):
        producer.produce(
            options.topic,
            key=key,
            value=json.dumps(envelope),
            on_delivery=lambda error, _: refused.append(str(error)) if error else None,
        )
        producer.poll(0)
    left = producer.flush(30)
    if left or refused:
        raise SystemExit(f"{left} records were not delivered, {len(refused)} were refused: {refused[:3]}")
    print(f"{options.events} events on {options.topic}")


if __name__ == "__main__":
    main()
