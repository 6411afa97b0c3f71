"""Bodies that are too large to travel: what stands for them, and where in storage they lie.

A reference names the day on which the body was put, the project and the content: a repetition on the same day is the
same object, no project reaches another's, and what a day brought can be swept when nothing asks for it any more,
without a look at what is put now.
"""

import hashlib
import re
from datetime import datetime
from typing import Final

import msgspec

from schemas.errors import Refused
from schemas.ids import is_project_id

MOST_BODY: Final = 1_000_000  # bytes of a body, by whichever way it comes: leaves room for the envelope in a record
MOST_INLINE: Final = 256 * 1024  # bytes: what is larger goes to storage where there is one
NOTHING: Final = "null"  # the data of what has its data elsewhere
_REFERENCE = re.compile(r"\A([0-9]{8})/([a-z][a-z0-9_-]{1,62})/([0-9a-f]{64})\Z")


class Reference(msgspec.Struct, frozen=True):
    """`day` is a date of UTC as `20260719`."""

    day: str
    project_id: str
    sha256: str

    def __str__(self) -> str:
        return f"{self.day}/{self.project_id}/{self.sha256}"


class StoredBody(msgspec.Struct, frozen=True):
    """A body on its way into storage."""

    reference: Reference
    content: bytes


def parsed(reference: str) -> Reference | None:
    """A reference as it was told; None where it is none."""
    found = _REFERENCE.match(reference)
    return None if found is None or not is_project_id(found[2]) else Reference(found[1], found[2], found[3])


def too_large_to_travel(project_id: str, data: str, now: datetime) -> StoredBody | None:
    """What has to be put into storage of this data: nothing where it is small. `now` is in UTC."""
    if len(data) <= MOST_INLINE // 4:  # a character has four bytes at most
        return None
    content = data.encode()
    if len(content) <= MOST_INLINE:
        return None
    digest = hashlib.sha256(content).hexdigest()
    return StoredBody(Reference(now.strftime("%Y%m%d"), project_id, digest), content)


def check_size(data: str) -> None:
    """Raises Refused E_BODY_TOO_LARGE for data that no door would have taken."""
    if len(data) > MOST_BODY // 4 and len(data.encode()) > MOST_BODY:
        raise too_large(len(data.encode()))


def too_large(size: int) -> Refused:
    return Refused(
        "E_BODY_TOO_LARGE",
        f"the data has {size} bytes, {MOST_BODY} are the most by any way in; send a reference to large data instead",
    )


def standing_for(body: StoredBody) -> str:
    """What a run's row holds in place of an input that lies in storage: JSON for whoever looks."""
    reference = body.reference
    return described(str(reference), len(body.content), reference.sha256)


def described(reference: str, size: int, sha256: str) -> str:
    told = {"data_ref": reference, "data_size": size, "data_sha256": sha256}
    return msgspec.json.encode(told).decode()


def is_content_of(reference: Reference, content: bytes) -> bool:
    return hashlib.sha256(content).hexdigest() == reference.sha256
