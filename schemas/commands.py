"""Step commands: the hint on Kafka that a run was granted. Losing one is harmless: Postgres decides."""

from collections.abc import Sequence

import msgspec

from schemas.avro import UndecodableError, codec
from schemas.errors import Refused


class StepCommand(msgspec.Struct, frozen=True, gc=False):
    """The run may advance under this fence."""

    run_id: str
    fence: int


_codec = codec("step_command")


def encode_commands(commands: Sequence[StepCommand]) -> list[bytes]:
    return [_codec.encode({"run_id": command.run_id, "fence": command.fence}) for command in commands]


def decode_commands(records: Sequence[bytes | None]) -> list[StepCommand | Refused]:
    """Read a whole poll; a record that is no command is its own refusal."""
    answer: list[StepCommand | Refused] = []
    for record in records:
        try:
            answer.append(StepCommand(**_codec.decode(record or b"")))
        except UndecodableError as exc:
            answer.append(Refused("E_ENVELOPE_INVALID", f"the record is no step command: {exc}"))
    return answer
