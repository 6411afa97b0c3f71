"""What Kafka answers to questions about topics: what passes by itself is waited out, and what does not is said."""

import pytest
from confluent_kafka import KafkaError

from processors.adapters.kafka.admin import translated
from schemas.errors import Refused, Unavailable


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_CONTROLLER,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError._TRANSPORT,
    ],
)
def test_a_relay_waits_while_a_topic_is_being_made_again(code: int):
    assert isinstance(translated(KafkaError(code), "tell the ends of a44.events.v1"), Unavailable)


@pytest.mark.parametrize("code", [KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.INVALID_REPLICATION_FACTOR])
def test_what_only_a_person_can_mend_is_refused(code: int):
    fault = translated(KafkaError(code), "tell the ends of a44.events.v1")
    assert isinstance(fault, Refused)
    assert fault.code == "E_CONFIG"
