"""CloudEvents 1.0 as envelopes: attributes and data go in, whatever carried them (HTTP, Kafka) stays outside.

`source` and `id` together name an event, so together they are its key, and where no id of ours is drawn, its id. Kept
are `type`, `time`, the data, and what orders and traces it: `partitionkey` (else `subject`) and `correlationid`. The
data is JSON: what is not is taken as the text that the JSON format holds, or refused. Attribute names are those of
the specification; extensions that are not named here are passed over.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Final, NoReturn

import msgspec

from schemas import strict_json
from schemas.envelope import Envelope, checked
from schemas.errors import Refused

STRUCTURED: Final = "application/cloudevents+json"
_FAMILY: Final = "application/cloudevents"
BATCH: Final = "application/cloudevents-batch+json"
VERSION: Final = "1.0"
MAX_KEY: Final = 255

_VISIBLE = re.compile(r"[^\x00-\x1f\x7f-\x9f]*[^\x00-\x1f\x7f-\x9f\s][^\x00-\x1f\x7f-\x9f]*")
_JSON_MEDIA = re.compile(r"\s*(?:application|text)/json\s*(?:;.*)?|\s*[^/;]+/[^/;]+\+json\s*(?:;.*)?", re.IGNORECASE)
_FIELD = re.compile(r"\$\.([a-z_]+)`|required field `([a-z_]+)`")
# Where an envelope is refused, the attribute that its field came from.
_ATTRIBUTES: Final = {"occurred_at": "time", "partition_key": "partitionkey", "correlation_id": "correlationid"}


class CloudEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One event as its sender named it. `data` is JSON text, `time` as it was sent or None."""

    id: str
    source: str
    type: str
    time: str | None
    subject: str | None
    partition_key: str | None
    correlation_id: str | None
    project: str | None
    data: str

    @property
    def key(self) -> str:
        """`source` and `id` with a space between, which no source holds; hashed where that is longer than a key."""
        both = f"{self.source} {self.id}"
        return both if len(both) <= MAX_KEY else f"cloudevent:{hashlib.sha256(both.encode()).hexdigest()}"


class _Attributes(msgspec.Struct, kw_only=True, gc=False):
    specversion: str
    id: str
    source: str
    type: str
    time: str | None = None
    subject: str | None = None
    datacontenttype: str | None = None
    partitionkey: str | None = None
    correlationid: str | None = None
    project: str | None = None


class _Structured(_Attributes, kw_only=True, gc=False):
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    data_base64: str | None = None


def is_whole(content_type: str) -> bool:
    """Whether the whole event is in the body, in whichever format; headers that tell of it are copies."""
    return media_type(content_type).startswith(_FAMILY)


def media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def is_json(content_type: str | None) -> bool:
    """Whether data of this content type is JSON; data without one is."""
    return content_type is None or not content_type.strip() or _JSON_MEDIA.fullmatch(content_type) is not None


def from_structured(body: bytes) -> CloudEvent:
    """One event in the JSON format. Raises Refused: what strict JSON refuses, and E_CLOUDEVENT_INVALID."""
    strict_json.check(body)
    try:
        told = msgspec.json.decode(body, type=_Structured)
    except msgspec.ValidationError as exc:
        _refuse(str(exc), exc)
    return _event(told, _structured_data(told))


def from_binary(attributes: Mapping[str, str], data: bytes) -> CloudEvent:
    """One event whose attributes came beside its data, by their names without prefix, `datacontenttype` among them.

    Raises Refused: what strict JSON refuses of the data, and E_CLOUDEVENT_INVALID.
    """
    try:
        told = msgspec.convert(dict(attributes), _Attributes)
    except msgspec.ValidationError as exc:
        _refuse(str(exc), exc)
    if data and not is_json(told.datacontenttype):
        raise _invalid(f"the data is {told.datacontenttype!r}; send JSON, and refer to what is not", "datacontenttype")
    strict_json.check(data or b"null")
    return _event(told, (data or b"null").decode())


def split_batch(body: bytes, most: int) -> Sequence[bytes]:
    """The events of a batch in the JSON format, each for `from_structured`: one that is none costs the others nothing.
    Where there are more than `most`, one more than that.

    Raises Refused E_JSON_INVALID, and E_CLOUDEVENT_INVALID for what is no array.
    """
    items = strict_json.split_array(body, most)
    if items is None:
        raise _invalid("a batch is a JSON array of events", "data")
    return items


def envelope_of(event: CloudEvent, *, project_id: str, received_at: str, event_id: str | None = None) -> Envelope:
    """The event as an envelope, checked. `event_id` None: its key is its id, as for all that doors did not draw one
    for. `received_at` (ISO 8601, UTC) is its time where it tells none. Raises Refused E_CLOUDEVENT_INVALID.
    """
    told_id = event.id if len(event.id) <= MAX_KEY else None
    try:
        return checked(
            Envelope(
                id=event_id or event.key,
                type=event.type,
                idempotency_key=event.key,
                partition_key=event.partition_key or event.subject or event.key,
                occurred_at=received_at if event.time is None else event.time.upper(),
                data=event.data,
                project_id=project_id,
                correlation_id=event.correlation_id or told_id,
            )
        )
    except Refused as refused:
        field = str(refused.details.get("field", ""))
        name = _attribute(event, field)
        raise Refused(
            "E_CLOUDEVENT_INVALID",
            refused.message.replace(f"field {field}", f"attribute {name}")
            + ("; it orders the event where there is no partitionkey" if name == "subject" else ""),
            details={"field": name},
        ) from refused


def _attribute(event: CloudEvent, field: str) -> str:
    """Where a field of the envelope came from, as the sender calls it."""
    is_subject = field == "partition_key" and not event.partition_key and event.subject
    return "subject" if is_subject else _ATTRIBUTES.get(field, field)


def _structured_data(told: _Structured) -> str:
    if told.data_base64 is None:
        return "null" if told.data is msgspec.UNSET else bytes(told.data).decode()
    if told.data is not msgspec.UNSET:
        raise _invalid("the event has both data and data_base64; send one", "data_base64")
    if not is_json(told.datacontenttype):
        raise _invalid(f"the data is {told.datacontenttype!r}; send JSON, and refer to what is not", "datacontenttype")
    try:
        data = base64.b64decode(told.data_base64, validate=True)
    except (binascii.Error, ValueError) as exc:
        raise _invalid("data_base64 is not Base64", "data_base64") from exc
    strict_json.check(data)
    return data.decode()


def _event(told: _Attributes, data: str) -> CloudEvent:
    if told.specversion != VERSION:
        raise _invalid(f"the version is {told.specversion[:20]!r}; {VERSION} is spoken here", "specversion")
    for name, text in (("id", told.id), ("source", told.source), ("type", told.type)):
        if _VISIBLE.fullmatch(text) is None:
            raise _invalid(f"the attribute {name} is empty or holds control characters", name)
    if any(character.isspace() for character in told.source):
        raise _invalid("the attribute source holds spaces; it is a URI reference", "source")
    return CloudEvent(
        id=told.id,
        source=told.source,
        type=told.type,
        time=told.time,
        subject=told.subject or None,
        partition_key=told.partitionkey or None,
        correlation_id=told.correlationid or None,
        project=told.project or None,
        data=data,
    )


def _refuse(why: str, cause: Exception) -> NoReturn:
    found = _FIELD.search(why)
    if found is None:
        raise _invalid("an event is one JSON object with specversion, id, source and type", "data") from cause
    name = found[1] or found[2]
    fault = "is missing" if found[2] else "is no text"
    raise _invalid(f"the attribute {name} {fault}; an event has specversion, id, source and type", name) from cause


def _invalid(message: str, field: str) -> Refused:
    return Refused("E_CLOUDEVENT_INVALID", message, details={"field": field})
