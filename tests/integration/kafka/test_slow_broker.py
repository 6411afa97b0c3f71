"""A broker that takes long for each answer, as one does that is starved: a producer that is new to it gets through."""

import asyncio
import time

import pytest

from processors.adapters.kafka.producer import KafkaProducer
from processors.ports.streams import Delivery
from schemas.errors import Unavailable
from tests.integration.kafka.conftest import Place, numbered
from tests.support.wires import CHUNK, Wire, wire_to

ANSWER_SECONDS, TIMEOUT_SECONDS, PATIENCE_SECONDS = 0.6, 1.0, 20.0
HOST = b"127.0.0.1"


class SlowWire(Wire):
    """Answers come late, one after the other; the address in them is this proxy's, or clients would go past it."""

    async def _answer(self, far: asyncio.StreamReader, answer: asyncio.StreamWriter, number: int) -> None:
        theirs, ours = (HOST + int(one.rpartition(":")[2]).to_bytes(4) for one in (self._far, self.dsn))
        while data := await far.read(CHUNK):
            await asyncio.sleep(ANSWER_SECONDS)
            answer.write(data.replace(theirs, ours))


@pytest.mark.kafka
async def test_a_new_producer_gets_through_to_a_slow_broker(place: Place) -> None:
    async with wire_to(f"//{place.bootstrap}", SlowWire) as wire:
        producer = KafkaProducer(wire.dsn.removeprefix("//@"), "new", message_timeout=TIMEOUT_SECONDS)
        until = time.monotonic() + PATIENCE_SECONDS
        delivered = False
        while not delivered and time.monotonic() < until:
            try:
                await producer.ready({place.topic})
            except Unavailable:
                continue
            (answer,) = await producer.send(numbered(place.topic, [1]))
            delivered = isinstance(answer, Delivery)
        await producer.aclose()
    assert delivered
