"""The relay: from the outbox to Kafka."""

import asyncio

from ops.composition.roles.parts import OnReady, topic_specs
from ops.settings import Settings
from processors.adapters.kafka.admin import KafkaAdmin
from processors.adapters.kafka.producer import KafkaProducer
from processors.adapters.postgres.relay_store import open_relay_store
from processors.ports.measures import Measures
from processors.relay.relay import run_relay


async def run(settings: Settings, stop: asyncio.Event, on_ready: OnReady, measures: Measures) -> None:
    admin = KafkaAdmin(settings.kafka_bootstrap, f"{settings.owner}-relay-admin")
    specs = topic_specs(settings)
    async with open_relay_store(settings.postgres_dsn, measures=measures) as store:
        # Nothing is under way any more when another relay may begin: see run_relay.
        producer = KafkaProducer(settings.kafka_bootstrap, f"{settings.owner}-relay", message_timeout=store.lease / 2)
        try:
            await admin.ensure_topics(specs)
            on_ready("relay", {})
            await run_relay(store, producer, admin, settings.owner, stop, specs=specs, measures=measures)
        finally:
            await producer.aclose()
