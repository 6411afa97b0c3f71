"""What a run's dead letter keeps and tells: the envelope as it came, whichever way it is read."""

import json

import msgspec
import pytest

from processors.ports.journal import Batch, Claim, RunEnd
from processors.ports.runs import NewRun
from schemas.envelope import Envelope, decode_envelope
from schemas.records import ErrorInfo
from schemas.stored_bodies import described
from tests.integration.log.lab import DEAD_LETTERS, Lab, end_of

DATA = r'{"n":1.10, "big":1180591620717411303424,"none":null, "text":"\u0041\"é\/", "deep":[[],{}]}'
MOMENTS = ["2026-07-19T14:02:11Z", "2026-07-19T14:02:11.8Z", "2026-07-19T14:02:11.884Z", "2026-07-19T14:02:11.884100Z",
           "0099-01-01T00:00:00.000000Z", "9999-12-31T23:59:59.999999Z"]  # fmt: skip
NAMES = ["", ',"trigger_id":"trg_orders"']
CORRELATIONS = ["", r',"correlation_id":"c\"1 ü\\"']


async def test_the_envelope_of_a_body_in_storage_says_where_it_lies(lab: Lab) -> None:
    sha256 = "0f" * 32
    sent = (
        '{"id":"big-1","type":"order.paid","idempotency_key":"k","partition_key":"p","occurred_at":"2026-07-19T14:02:11Z"'
        ',"attempt":1,"project_id":"shop","operation_version":1,"redrive_count":0,"data":null'
        f',"data_ref":"20260719/shop/{sha256}","data_size":300000,"data_sha256":"{sha256}"}}'
    )
    envelope = decode_envelope(sent.encode())
    told = described(envelope.data_ref or "", envelope.data_size, sha256)
    await lab.queue()
    await lab.make([msgspec.structs.replace(run_of(lab, envelope), input=told, input_ref=envelope.data_ref)])
    journal = await lab.journal()
    (claim,) = await lab.claim(journal)
    await journal.commit(Batch(ends=[letter_of(claim)]))
    assert await lab.column("select envelope from automation.dead_letters") == [sent]


def letter_of(claim: Claim) -> RunEnd:
    return RunEnd(
        claim.run_id, claim.project_id, claim.queue_id, claim.lane, None, "failed", None,
        ErrorInfo("E_UPSTREAM_503", "Upstream", "no answer"), "dlq_01J00000000000000000000000",
        "max_attempts_exceeded", "step a failed with E_UPSTREAM_503 on attempt 3",
    )  # fmt: skip


def run_of(lab: Lab, envelope: Envelope) -> NewRun:
    """The run that ingest makes of it, but for its queue."""
    return msgspec.structs.replace(
        lab.run(),
        event_id=envelope.id,
        event_type=envelope.type,
        idempotency_key=envelope.idempotency_key,
        partition_key=envelope.partition_key,
        correlation_id=envelope.correlation_id,
        operation_version=envelope.operation_version,
        redrive_count=envelope.redrive_count,
        occurred_at=envelope.occurred_at,
        input=envelope.data,
        attempt=envelope.attempt,
        names_trigger=envelope.trigger_id is not None,
    )


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("name", NAMES, ids=["by its type", "by its trigger"])
@pytest.mark.parametrize("correlation", CORRELATIONS, ids=["alone", "correlated"])
async def test_the_envelope_of_a_dead_letter_is_the_one_that_came_byte_for_byte(
    lab: Lab, moment: str, name: str, correlation: str
) -> None:
    sent = (
        r'{"id":"signup-77","type":"order.paid","idempotency_key":"key \"7\"","partition_key":"é/\\"'
        f',"occurred_at":"{moment}","attempt":3{name},"project_id":"shop"{correlation}'
        f',"operation_version":2,"redrive_count":1,"data":{DATA}}}'
    )
    envelope = decode_envelope(sent.encode())
    await lab.queue()
    made = run_of(lab, envelope)
    keyed = msgspec.structs.replace(made, partition_key="another", sent_partition_key=envelope.partition_key)
    await lab.make([keyed if correlation else made])  # as a trigger with a key of its own makes it
    journal = await lab.journal()
    (claim,) = await lab.claim(journal)
    await journal.commit(Batch(ends=[letter_of(claim)]))
    (kept,) = await lab.column("select envelope from automation.dead_letters")
    assert kept == sent
    assert await lab.column("select convert_from(value, 'UTF8') from automation.outbox") == [sent]
    assert decode_envelope(kept.encode()) == envelope


async def test_a_runs_dead_letter_is_told_on_its_topic_by_the_commit_that_ends_the_run(lab: Lab) -> None:
    await lab.queue()
    await lab.make([lab.run(), lab.run()])
    journal = await lab.journal()
    well, ill = await lab.claim(journal)
    await journal.commit(Batch(ends=[end_of(well), letter_of(ill)]))
    (told,) = await lab.rows("select topic, partition_key, headers, convert_from(value, 'UTF8') as value, xid::text"
                             " from automation.outbox")  # fmt: skip
    (letter,) = await lab.rows("select dead_letter_id, envelope, xmin::text from automation.dead_letters")
    assert (told["topic"], told["partition_key"]) == (DEAD_LETTERS, letter["dead_letter_id"])
    assert told["value"] == letter["envelope"]
    assert told["xid"] == letter["xmin"]
    assert json.loads(told["headers"]) == {
        "a44-dead-letter-id": letter["dead_letter_id"],
        "a44-error-code": "E_UPSTREAM_503",
        "a44-run-id": ill.run_id,
    }


async def test_an_end_that_was_no_longer_the_sessions_tells_of_no_dead_letter(lab: Lab) -> None:
    await lab.queue()
    await lab.make([lab.run()])
    (claim,) = await lab.claim(await lab.journal())
    other = await lab.journal(owner="executor-2")
    await other.commit(Batch(ends=[letter_of(claim)]))
    assert await lab.rows("select from automation.dead_letters") == []
    assert await lab.rows("select from automation.outbox") == []
