"""The frames between an executor and its step hosts: encode, decode, chunks, byte credit, version.

Both sides import this module; it reads no socket and knows no event loop. A frame is a 4-byte
big-endian length and a UTF-8 JSON array of messages; each message is an object whose "t" is its type.
`docs/frames.md` has the messages themselves. What breaks the format raises WireError: end the link.
"""

import json
from collections import deque
from collections.abc import Callable, Iterable
from json.encoder import encode_basestring
from typing import Any

Message = dict[str, Any]

VERSIONS = (1,)
CREDIT_BYTES = 4 * 1024 * 1024
CHUNK_BYTES = 64 * 1024
LARGEST_FRAME = 16 * 1024 * 1024
LARGEST_MESSAGE = 64 * 1024 * 1024
MESSAGES_PER_FRAME = 128
LENGTH_BYTES = 4

# Messages that belong to no run. They spend no credit and may overtake the others; everything bound to
# a run spends credit and keeps its order (a DROP must not pass the START that it ends).
CONTROL = frozenset(
    {
        "HELLO",
        "WELCOME",
        "LOAD",
        "LOADED",
        "LOAD_FAILED",
        "DRAIN",
        "PING",
        "BEAT",
        "LOG",
        "CREDIT",
        "BYE",
    },
)

dumps = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":")).encode
quote = encode_basestring  # JSON text of a text


class WireError(Exception):
    """The other side broke the frame format, or both share no version."""


def agree(offered: Iterable[int]) -> int:
    """The highest version that both sides speak."""
    seen = list(offered)
    common = set(VERSIONS).intersection(seen)
    if not common:
        raise WireError(f"no common frame version: offered {seen}, spoken here {list(VERSIONS)}")
    return max(common)


def to_bytes(text: str) -> bytes:
    # A lone surrogate (from a broken file name in a log line, say) must not take the link down.
    return text.encode("utf-8", "backslashreplace")


def _framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(LENGTH_BYTES, "big") + payload


def encode_message(message: Message) -> bytes:
    return to_bytes(dumps(message))


def encode_frame(messages: list[Message]) -> bytes:
    """One frame that holds the messages as they are: no chunks, no credit."""
    return _framed(to_bytes(dumps(messages)))


class Payloads:
    """Bytes in, the payloads of whole frames out."""

    def __init__(self) -> None:
        self._inbox = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """All that are complete with these bytes, in order."""
        inbox = self._inbox
        inbox += data
        payloads = []
        at, end = 0, len(inbox)
        while end - at >= LENGTH_BYTES:
            size = int.from_bytes(inbox[at : at + LENGTH_BYTES], "big")
            if size > LARGEST_FRAME:
                raise WireError(f"a frame of {size} bytes; at most {LARGEST_FRAME} are allowed")
            if end - at - LENGTH_BYTES < size:
                break
            at += LENGTH_BYTES + size
            payloads.append(bytes(inbox[at - size : at]))
        del inbox[:at]
        return payloads


class Chunks:
    """Pieces of long messages in, whole messages out."""

    def __init__(self) -> None:
        self._parts: dict[int, list[str]] = {}

    def join(self, number: int, n: int, data: str, *, last: bool) -> bytes | None:
        """The payload of a frame that holds the message alone, once this is its last piece."""
        parts = self._parts.setdefault(number, [])
        if n != len(parts):
            raise WireError(f"chunk {n} of message {number} where {len(parts)} was due")
        parts.append(data)
        if sum(map(len, parts)) > LARGEST_MESSAGE:
            raise WireError(f"a message of more than {LARGEST_MESSAGE} bytes")
        if not last:
            return None
        del self._parts[number]
        return b"[" + to_bytes("".join(parts)) + b"]"


class FrameDecoder:
    """Bytes in, whole messages out: joins split frames and chunked messages."""

    def __init__(self) -> None:
        self._payloads = Payloads()
        self._chunks = Chunks()
        self._consumed = 0

    def feed(self, data: bytes) -> list[Message]:
        """All messages that are complete with these bytes, in order."""
        messages: list[Message] = []
        for payload in self._payloads.feed(data):
            self._read(payload, messages)
        return messages

    def take_consumed(self) -> int:
        """Payload bytes of credit-bound frames since the last call: give them back as CREDIT."""
        consumed, self._consumed = self._consumed, 0
        return consumed

    def _read(self, payload: bytes, into: list[Message]) -> None:
        messages = _array(payload)
        kinds = _kinds_of(messages)
        if "CHUNK" in kinds:
            for message in messages:
                whole = self._join(message) if message["t"] == "CHUNK" else message
                if whole is not None:
                    into.append(whole)
        else:
            into += messages
        if not kinds <= CONTROL:
            self._consumed += len(payload)

    def _join(self, chunk: Message) -> Message | None:
        number, n, data = chunk.get("id"), chunk.get("n"), chunk.get("data")
        if not isinstance(number, int) or not isinstance(n, int) or not isinstance(data, str):
            raise WireError("a CHUNK needs an integer id, an integer n and text data")
        payload = self._chunks.join(number, n, data, last=bool(chunk.get("last")))
        if payload is None:
            return None
        whole = _array(payload)
        if len(whole) != 1 or "CHUNK" in _kinds_of(whole):
            raise WireError("chunks must join to exactly one message")
        return whole[0]


def _array(payload: bytes) -> list[Message]:
    try:
        messages = json.loads(payload)
    except ValueError as error:
        raise WireError(f"a frame that is not JSON: {error}") from error
    if not isinstance(messages, list):
        raise WireError(f"a frame must hold an array of messages, not {type(messages).__name__}")
    return messages


def _kinds_of(messages: list[Any]) -> set[str]:
    try:
        kinds = {message["t"] for message in messages}
    except (KeyError, TypeError):
        kinds = {None}
    if not all(isinstance(kind, str) for kind in kinds):
        raise WireError('a message must be an object with a text field "t"')
    return kinds


class Outbox:
    """What waits to be sent: gathers messages into frames, cuts long ones, keeps to the credit.

    A frame may be sent while credit is above zero, and takes it below by at most itself. Messages bound
    to a run stay in order; those bound to none go out even when there is no credit.
    """

    def __init__(self, credit: int = CREDIT_BYTES, encode: Callable[[Message], bytes] = encode_message) -> None:
        self._window = credit
        self._credit = credit
        self._encode = encode
        self._control: list[bytes] = []
        self._bound: deque[bytes] = deque()
        self._chunked = 0

    @property
    def waiting(self) -> bool:
        return bool(self._control or self._bound)

    def put(self, message: Message) -> None:
        text = self._encode(message)
        if message["t"] in CONTROL and len(text) <= CHUNK_BYTES:
            self._control.append(text)
        else:
            self.put_bound(text)

    def put_bound(self, text: bytes) -> None:
        """The JSON text of a message that is bound to a run."""
        if len(text) <= CHUNK_BYTES:
            self._bound.append(text)
        else:
            self._bound.extend(self._cut(text))

    def resize(self, window: int) -> None:
        """Set the window that both sides agreed on, counting what is already on its way."""
        self._credit += window - self._window
        self._window = window

    def grant(self, count: int) -> None:
        """The other side has consumed that many bytes (its CREDIT message)."""
        self._credit += count

    def take(self) -> bytes:
        """The frames that may go now; empty when nothing waits or the credit is used up."""
        frames: list[bytes] = []
        while True:
            if self._bound and self._credit > 0:
                payload = self._next_bound()
                self._credit -= len(payload)
            elif self._control:
                payload, self._control = _array_of(self._control), []
            else:
                return b"".join(frames)
            frames.append(_framed(payload))

    def _next_bound(self) -> bytes:
        """The payload of the next frame of run-bound messages; where there is room, what is not bound rides along."""
        bound = self._bound
        batch = [bound.popleft()]
        size = len(batch[0]) + sum(map(len, self._control))
        if self._control and size <= CHUNK_BYTES:
            batch, self._control = self._control + batch, []
        while bound and len(batch) < MESSAGES_PER_FRAME:
            size += len(bound[0])
            if size > CHUNK_BYTES:
                break
            batch.append(bound.popleft())
        return _array_of(batch)

    def _cut(self, text: bytes) -> list[bytes]:
        """A long message as CHUNK messages."""
        self._chunked += 1
        whole = text.decode()
        # A character is at most four bytes in UTF-8, so the step holds for any text.
        step = CHUNK_BYTES if whole.isascii() else CHUNK_BYTES // 4
        pieces = [whole[at : at + step] for at in range(0, len(whole), step)]
        last = len(pieces) - 1
        return [
            self._encode({"t": "CHUNK", "id": self._chunked, "n": n, "last": n == last, "data": piece})
            for n, piece in enumerate(pieces)
        ]


def _array_of(texts: list[bytes]) -> bytes:
    return b"[" + b",".join(texts) + b"]"
