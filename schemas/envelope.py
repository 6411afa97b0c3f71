"""The event envelope: what every door and every producer puts on the events topic.

Written as Avro (single-object encoding), read as that or as plain JSON. `data` is JSON text and stays
byte for byte as it was sent. Data that is too large to travel lies in storage: `data` is null then, and `data_ref`
says where, in the event's own project (see `schemas.stored_bodies`). Whatever decodes here can be stored: no other
check stands between this module and the log.
"""

import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from operator import attrgetter
from typing import Annotated, Any, Final, NoReturn

import msgspec
from msgspec import Meta

from schemas import strict_json
from schemas.avro import MAGIC, UndecodableError, codec
from schemas.errors import Refused
from schemas.ids import is_project_id
from schemas.stored_bodies import NOTHING, Reference, StoredBody, parsed

_VISIBLE = re.compile(r"\A[^\x00-\x1f\x7f-\x9f]*[^\x00-\x1f\x7f-\x9f\s][^\x00-\x1f\x7f-\x9f]*\Z")
_MOMENT = r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})\Z"
Text = Annotated[str, Meta(min_length=1, max_length=255)]  # and what `_check_texts` says
Moment = Annotated[str, Meta(pattern=_MOMENT)]
FromOne = Annotated[int, Meta(ge=1, le=2**31 - 1)]
FromZero = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Sha256 = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]

_WANTED: Final = {
    "occurred_at": "a moment such as 2026-07-19T14:02:11.884Z",
    "attempt": "a whole number from 1",
    "operation_version": "a whole number from 1",
    "redrive_count": "a whole number from 0",
    "project_id": "the id of a project: a-z, then a-z 0-9 _ -, at most 63 characters",
    "data": "any JSON value",
    "data_size": "a whole number from 0",
    "data_sha256": "64 hexadecimal digits",
}
_TEXT_WANTED: Final = "text of 1 to 255 characters, not blank, with no control characters"
# Finer moments are cut: Postgres would round them up, at the end of the last year into one that nothing can read.
_TO_THE_MICROSECOND: Final = len("2026-07-19T14:02:11.884000Z")
_FIELD = re.compile(r"\$\.([a-z0-9_]+)`|required field `([a-z0-9_]+)`")


class Envelope(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One event. `occurred_at` is ISO 8601 in UTC, `data` is JSON text."""

    id: Text
    type: Text
    idempotency_key: Text
    partition_key: Text
    occurred_at: Moment
    attempt: FromOne = 1
    data: str
    trigger_id: Text | None = None
    project_id: str
    correlation_id: Text | None = None
    operation_version: FromOne = 1
    redrive_count: FromZero = 0
    data_ref: Text | None = None
    data_size: FromZero = 0
    data_sha256: Sha256 | None = None


class _Wire(msgspec.Struct, kw_only=True, gc=False):
    """The same fields as they come: JSON holds `data` as a value, and the project may be left out."""

    id: Text
    type: Text
    idempotency_key: Text
    partition_key: Text
    occurred_at: Moment
    attempt: FromOne = 1
    data: msgspec.Raw
    trigger_id: Text | None = None
    project_id: str | None = None
    correlation_id: Text | None = None
    operation_version: FromOne = 1
    redrive_count: FromZero = 0
    data_ref: Text | None = None
    data_size: FromZero = 0
    data_sha256: Sha256 | None = None


_codec = codec("envelope")
_json = msgspec.json.Decoder(_Wire)
_NAMES: Final = Envelope.__struct_fields__
_asdict = msgspec.structs.asdict
_TEXTS: Final = ("id", "type", "idempotency_key", "partition_key", "trigger_id", "correlation_id", "data_ref")
_texts_of = attrgetter(*_TEXTS)


def encode_envelope(envelope: Envelope) -> bytes:
    """Write an envelope as Avro. Its fields are taken as they are: `checked` is for the doors."""
    return _codec.encode_struct(envelope)


def checked(envelope: Envelope) -> Envelope:
    """Answer the envelope, its time in UTC, or raise Refused where a reader would refuse it."""
    return _from_fields(_asdict(envelope), None)


def decode_envelope(data: bytes, default_project: str | None = None) -> Envelope:
    """Read Avro or JSON. Raises Refused E_ENVELOPE_INVALID, naming the field."""
    if data[:1] == MAGIC[:1]:
        try:
            fields = _codec.decode(data)
        except UndecodableError as exc:
            raise _refusal(f"the record cannot be read: {exc}") from exc
        return _from_fields(fields, default_project)
    return _from_json(data, default_project)


def referring(envelope: Envelope, body: StoredBody) -> Envelope:
    """The same event with its data in storage."""
    reference = body.reference
    return msgspec.structs.replace(
        envelope,
        data=NOTHING,
        data_ref=str(reference),
        data_size=len(body.content),
        data_sha256=reference.sha256,
    )


def data_hash(envelope: Envelope) -> bytes:
    """The hash of an event's data, wherever it is."""
    reference = reference_of(envelope)
    return body_hash(envelope.data) if reference is None else bytes.fromhex(reference.sha256)


def reference_of(envelope: Envelope) -> Reference | None:
    """Where an event's data lies, unless it is here."""
    return None if envelope.data_ref is None else parsed(envelope.data_ref)


def envelope_text(envelope: Envelope) -> str:
    """The envelope as JSON text, its data byte for byte: how dead letters keep it, and `decode_envelope` reads it."""
    fields = {name: value for name, value in _asdict(envelope).items() if value is not None}
    if envelope.data_ref is None:
        del fields["data_size"]
    fields["data"] = msgspec.Raw(fields.pop("data").encode())
    return msgspec.json.encode(fields).decode()


def redriven(envelope: Envelope) -> Envelope:
    """The same event as the next version of its operation: what a named person lets run again."""
    return msgspec.structs.replace(
        envelope,
        operation_version=envelope.operation_version + 1,
        redrive_count=envelope.redrive_count + 1,
    )


def body_hash(data: str) -> bytes:
    """SHA-256 over the data text as it was sent: two bodies are the same only byte for byte."""
    return hashlib.sha256(data.encode()).digest()


def _from_json(data: bytes, default_project: str | None) -> Envelope:
    try:
        strict_json.check(data)
        wire = _json.decode(data)
    except Refused as exc:
        # What is said of a record stands in lists of dead letters: a key of somebody's data has no place there.
        fault = "a key stands twice in one object" if exc.code == "E_DUPLICATE_KEY" else exc.message
        raise _refusal(f"the record is neither Avro nor strict JSON: {fault}") from exc
    except msgspec.ValidationError as exc:
        _refuse_field(str(exc), exc)
    except msgspec.DecodeError as exc:
        raise _refusal(f"the record is not JSON: {exc}") from exc
    envelope = Envelope(
        id=wire.id,
        type=wire.type,
        idempotency_key=wire.idempotency_key,
        partition_key=wire.partition_key,
        occurred_at=_in_utc(wire.occurred_at),
        attempt=wire.attempt,
        data=str(wire.data, "utf-8"),
        trigger_id=wire.trigger_id,
        project_id=_project(wire.project_id, default_project),
        correlation_id=wire.correlation_id,
        operation_version=wire.operation_version,
        redrive_count=wire.redrive_count,
        data_ref=wire.data_ref,
        data_size=wire.data_size,
        data_sha256=wire.data_sha256,
    )
    _check_texts(envelope)
    _check_reference(envelope)
    return envelope


def from_told(told: Mapping[str, Any]) -> Envelope:
    """An envelope of fields that somebody else's schema names; others are passed over. Raises Refused."""
    return _from_fields({"project_id": None, **{name: told[name] for name in _NAMES if name in told}}, None)


def _from_fields(fields: dict[str, Any], default_project: str | None) -> Envelope:
    fields["project_id"] = _project(fields["project_id"], default_project)
    try:
        envelope = msgspec.convert(fields, Envelope)
    except msgspec.ValidationError as exc:
        _refuse_field(str(exc), exc)
    _check_texts(envelope)
    moment = _in_utc(envelope.occurred_at)
    _check_reference(envelope)
    try:
        strict_json.check(envelope.data.encode())
    except Refused as exc:
        raise _refusal(f"the field data is not strict JSON: {exc.message}", "data") from exc
    except UnicodeEncodeError as exc:
        raise _refusal("the field data holds half of a surrogate pair", "data") from exc
    if moment != envelope.occurred_at:
        return msgspec.structs.replace(envelope, occurred_at=moment)
    return envelope


def _check_texts(envelope: Envelope) -> None:
    """Texts can be seen. Asked of all at once: a pattern for each took a third of the time of reading."""
    texts = list(filter(None, _texts_of(envelope)))
    if "".join(texts).isprintable() and not any(map(str.isspace, texts)):
        return
    for name, text in zip(_TEXTS, _texts_of(envelope), strict=True):
        if text is not None and _VISIBLE.search(text) is None:
            raise _unlike_wanted(name, "not usable")


def _check_reference(envelope: Envelope) -> None:
    """A reference leads into the event's own project, to content of its hash: nobody reads what is another's."""
    if envelope.data_ref is None:
        return
    found = parsed(envelope.data_ref)
    if found is None or found.project_id != envelope.project_id:
        raise _refusal("the field data_ref is no reference into this project's stored bodies", "data_ref")
    if envelope.data_sha256 not in (None, found.sha256):
        raise _refusal("the fields data_ref and data_sha256 tell of different content", "data_sha256")
    if envelope.data != NOTHING:
        raise _refusal("the field data is there beside data_ref; wanted null", "data")


def _project(told: str | None, default: str | None) -> str:
    project = default if told is None else told
    if project is None:
        raise _refusal("the field project_id is missing, and this topic belongs to no one project", "project_id")
    if not is_project_id(project):
        raise _refusal(f"the field project_id is {project[:80]!r}; wanted {_WANTED['project_id']}", "project_id")
    return project


def _in_utc(moment: str) -> str:
    try:
        told = datetime.fromisoformat(moment)
        if moment[-1] == "Z" and len(moment) <= _TO_THE_MICROSECOND:
            return moment
        return told.astimezone(UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError) as exc:
        raise _refusal(f"the field occurred_at is {moment!r}: no such moment", "occurred_at") from exc


def _refuse_field(why: str, cause: Exception) -> NoReturn:
    found = _FIELD.search(why)
    if found is None:
        raise _refusal(f"the record is no envelope: {why}") from cause
    raise _unlike_wanted(found[1] or found[2], "missing" if found[2] else "not usable") from cause


def _unlike_wanted(name: str, fault: str) -> Refused:
    return _refusal(f"the field {name} is {fault}; wanted {_WANTED.get(name, _TEXT_WANTED)}", name)


def _refusal(message: str, field: str | None = None) -> Refused:
    return Refused("E_ENVELOPE_INVALID", message, details={} if field is None else {"field": field})
