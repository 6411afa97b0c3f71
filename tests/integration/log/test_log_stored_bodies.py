"""Runs that refer to storage: the reference goes with the run into its claim, its history and its dead letter."""

import json

import msgspec

from processors.ports.journal import Batch, RunEnd
from processors.ports.runs import NewRun
from schemas.records import ErrorInfo
from schemas.stored_bodies import Reference, described
from tests.integration.log.lab import PROJECT, Lab, end_of, manual_acceptance

REFERENCE = Reference("20260719", PROJECT, "a" * 64)


def stored_run(lab: Lab) -> NewRun:
    told = described(str(REFERENCE), 300_000, REFERENCE.sha256)
    return msgspec.structs.replace(lab.run("lane"), input=told, input_ref=str(REFERENCE))


async def test_a_run_is_claimed_with_its_reference_and_keeps_it_in_history(lab: Lab) -> None:
    await lab.queue()
    await (await lab.door()).accept(manual_acceptance(stored_run(lab)))
    journal = await lab.journal()
    (claim,) = await lab.claim(journal)
    assert claim.input_ref == str(REFERENCE)
    assert claim.stale_at is None
    await journal.commit(Batch(ends=[end_of(claim)]))
    assert await lab.column("select input_ref from automation.runs_ended") == [str(REFERENCE)]


async def test_what_any_run_refers_to_is_kept_and_nothing_else(lab: Lab) -> None:
    await lab.queue()
    await (await lab.door()).accept(manual_acceptance(stored_run(lab)))
    other = msgspec.structs.replace(REFERENCE, sha256="b" * 64)
    assert await lab.schedule().kept_bodies([REFERENCE, other]) == [REFERENCE]


async def test_the_dead_letter_of_a_run_refers_to_its_data(lab: Lab) -> None:
    await lab.queue()
    await (await lab.door()).accept(manual_acceptance(stored_run(lab)))
    journal = await lab.journal()
    (claim,) = await lab.claim(journal)
    error = ErrorInfo("E_UPSTREAM_503", "Upstream", "no answer")
    end = RunEnd(
        claim.run_id, claim.project_id, claim.queue_id, claim.lane, None, "failed", None, error,
        "dlq_01J00000000000000000000000", "max_attempts_exceeded", "step a failed",
    )  # fmt: skip
    await journal.commit(Batch(ends=[end]))
    letter = await lab.value("select envelope from automation.dead_letters")
    assert (json.loads(letter)["data"], json.loads(letter)["data_ref"]) == (None, str(REFERENCE))
