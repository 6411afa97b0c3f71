"""What dead letters keep of a record beside its value: key and headers, bounded; and how they are shown.

What producers write is kept as bytes. Whoever may look at runs sees which headers there were, and the values of those
that say what kind of record it is; all of it is for those who may read letters whole.
"""

import base64
from typing import Any, Final, NamedTuple

import msgspec

from schemas.framing import PROJECT_HEADER, Framed
from schemas.redacted_text import without_secrets
from schemas.results import REDACTED

MOST_KEPT: Final = 16 * 1024  # bytes, names and values and key together
_LONGEST_SHOWN: Final = 200
_SHOWN: Final = frozenset(
    {
        "content-type", "ce_specversion", "ce_type", "ce_source", "ce_id", "ce_time", "ce_dataschema",
        PROJECT_HEADER, "a44-seq",
    }
)  # fmt: skip
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[tuple[str, str | None]]).decode


class KeptRecord(NamedTuple):
    """`headers` is a JSON list of [name, value in base64, or null]; `left_out` counts what was too large to keep."""

    key: bytes | None
    headers: str | None
    left_out: int


NOTHING_KEPT: Final = KeptRecord(None, None, 0)


def kept(record: Framed) -> KeptRecord:
    """The key first, then headers in their order, each that still fits."""
    room, left_out, told = MOST_KEPT, 0, []
    key = record.key
    if key is not None:
        if len(key) <= room:
            room -= len(key)
        else:
            key, left_out = None, 1
    for name, value in record.headers:
        written = name.encode(errors="replace")
        size = len(written) + len(value or b"")
        if size > room:
            left_out += 1
            continue
        room -= size
        told.append((written.decode(), None if value is None else base64.b64encode(value).decode()))
    return KeptRecord(key, _encode(told).decode() if told else None, left_out)


def headers_of(text: str | None) -> list[tuple[str, str | None]]:
    """The headers that were kept, values in base64."""
    return [] if text is None else _decode(text)


def redacted(record: KeptRecord) -> dict[str, Any]:
    """For whoever may see the letter: the key and most values hidden."""
    return {
        "key": None if record.key is None else REDACTED,
        "headers": [{"name": name, "value": _shown(name, value)} for name, value in headers_of(record.headers)],
        "left_out": record.left_out,
    }


def _shown(name: str, value: str | None) -> str | None:
    if value is None or name not in _SHOWN:
        return None if value is None else REDACTED
    try:
        return without_secrets(base64.b64decode(value).decode())[:_LONGEST_SHOWN]
    except UnicodeDecodeError:
        return REDACTED
