"""Step commands: the hint on Kafka that runs were granted. Losing one is harmless: Postgres decides.

A record holds what one commit granted, up to `MOST_A_RECORD` of them: one record a run would cost more than the claim.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from schemas.avro import UndecodableError, codec
from schemas.errors import Refused

MOST_A_RECORD: Final = 200


class StepCommand(msgspec.Struct, frozen=True, gc=False):
    """The run may advance under this fence."""

    run_id: str
    fence: int


_codec = codec("step_command")


def encode_commands(commands: Sequence[StepCommand]) -> list[bytes]:
    """Records, each with the next of the commands."""
    return [_encode(*commands[at : at + MOST_A_RECORD]) for at in range(0, len(commands), MOST_A_RECORD)]


def decode_commands(records: Sequence[bytes | None]) -> list[StepCommand | Refused]:
    """The commands of a whole poll; a record that holds none is its own refusal."""
    answer: list[StepCommand | Refused] = []
    for record in records:
        try:
            first = _codec.decode(record or b"")
        except UndecodableError as exc:
            answer.append(Refused("E_ENVELOPE_INVALID", f"the record is no step command: {exc}"))
        else:
            answer.append(StepCommand(first["run_id"], first["fence"]))
            answer += map(StepCommand, first["other_runs"], first["other_fences"])
    return answer


def _encode(first: StepCommand, *others: StepCommand) -> bytes:
    rest = {"other_runs": [one.run_id for one in others], "other_fences": [one.fence for one in others]}
    return _codec.encode({"run_id": first.run_id, "fence": first.fence, **rest})
