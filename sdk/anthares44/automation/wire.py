"""The frames between an executor and its step hosts: encode, decode, chunks, byte credit, version.

Both sides import this module; it reads no socket and knows no event loop. A frame is a 4-byte
big-endian length and a UTF-8 JSON array of messages; each message is an object whose "t" is its type.
`docs/frames.md` has the messages themselves. What breaks the format raises WireError: end the link.
"""

import json
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

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

_encode = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":")).encode


class WireError(Exception):
    """The other side broke the frame format, or both share no version."""


def agree(offered: Iterable[int]) -> int:
    """The highest version that both sides speak."""
    seen = list(offered)
    common = set(VERSIONS).intersection(seen)
    if not common:
        raise WireError(f"no common frame version: offered {seen}, spoken here {list(VERSIONS)}")
    return max(common)


def _dumps(value: Any) -> bytes:
    # A lone surrogate (from a broken file name in a log line, say) must not take the link down.
    return _encode(value).encode("utf-8", "backslashreplace")


def _framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(LENGTH_BYTES, "big") + payload


def encode_frame(messages: list[Message]) -> bytes:
    """One frame that holds the messages as they are: no chunks, no credit."""
    return _framed(_dumps(messages))


def spends_credit(messages: list[Message]) -> bool:
    """Whether a frame of these messages counts, with its whole payload, against the receiver's credit."""
    return any(message["t"] not in CONTROL for message in messages)


class FrameDecoder:
    """Bytes in, whole messages out: joins split frames and chunked messages."""

    def __init__(self, loads: Callable[[bytes], Any] = json.loads) -> None:
        self._loads = loads
        self._inbox = bytearray()
        self._parts: dict[int, list[str]] = {}
        self._consumed = 0

    def feed(self, data: bytes) -> list[Message]:
        """All messages that are complete with these bytes, in order."""
        inbox = self._inbox
        inbox += data
        messages: list[Message] = []
        at, end = 0, len(inbox)
        while end - at >= LENGTH_BYTES:
            size = int.from_bytes(inbox[at : at + LENGTH_BYTES], "big")
            if size > LARGEST_FRAME:
                raise WireError(f"a frame of {size} bytes; at most {LARGEST_FRAME} are allowed")
            at += LENGTH_BYTES
            if end - at < size:
                at -= LENGTH_BYTES
                break
            self._read(bytes(inbox[at : at + size]), messages)
            at += size
        del inbox[:at]
        return messages

    def take_consumed(self) -> int:
        """Payload bytes of credit-bound frames since the last call: give them back as CREDIT."""
        consumed, self._consumed = self._consumed, 0
        return consumed

    def _read(self, payload: bytes, into: list[Message]) -> None:
        bound = False
        for message in self._array(payload):
            kind = _type_of(message)
            bound = bound or kind not in CONTROL
            if kind == "CHUNK":
                whole = self._join(message)
                if whole is not None:
                    into.append(whole)
            else:
                into.append(message)
        if bound:
            self._consumed += len(payload)

    def _array(self, payload: bytes) -> list[Message]:
        try:
            messages = self._loads(payload)
        except ValueError as error:
            raise WireError(f"a frame that is not JSON: {error}") from error
        if not isinstance(messages, list):
            raise WireError(f"a frame must hold an array of messages, not {type(messages).__name__}")
        return messages

    def _join(self, chunk: Message) -> Message | None:
        number, data = chunk.get("id"), chunk.get("data")
        if not isinstance(number, int) or not isinstance(data, str):
            raise WireError("a CHUNK needs an integer id and text data")
        parts = self._parts.setdefault(number, [])
        if chunk.get("n") != len(parts):
            raise WireError(f"chunk {chunk.get('n')} of message {number} where {len(parts)} was due")
        parts.append(data)
        if sum(map(len, parts)) > LARGEST_MESSAGE:
            raise WireError(f"a message of more than {LARGEST_MESSAGE} bytes")
        if not chunk.get("last"):
            return None
        del self._parts[number]
        whole = self._array(b"[" + "".join(parts).encode() + b"]")
        if len(whole) != 1 or _type_of(whole[0]) == "CHUNK":
            raise WireError("chunks must join to exactly one message")
        return whole[0]


def _type_of(message: Any) -> str:
    kind = message.get("t") if isinstance(message, dict) else None
    if not isinstance(kind, str):
        raise WireError('a message must be an object with a text field "t"')
    return kind


class Outbox:
    """What waits to be sent: gathers messages into frames, cuts long ones, keeps to the credit.

    A frame may be sent while credit is above zero, and takes it below by at most itself. Messages bound
    to a run stay in order; those bound to none go out even when there is no credit.
    """

    def __init__(self, credit: int = CREDIT_BYTES) -> None:
        self._window = credit
        self._credit = credit
        self._control: list[Message] = []
        self._bound: deque[Message | _Cut] = deque()
        self._chunked = 0

    @property
    def waiting(self) -> bool:
        return bool(self._control or self._bound)

    def put(self, message: Message) -> None:
        if message["t"] in CONTROL:
            self._control.append(message)
        else:
            self._bound.append(message)

    def resize(self, window: int) -> None:
        """Set the window that both sides agreed on, counting what is already on its way."""
        self._credit += window - self._window
        self._window = window

    def grant(self, count: int) -> None:
        """The other side has consumed that many bytes (its CREDIT message)."""
        self._credit += count

    def take(self) -> bytes:
        """The frames that may go now; empty when nothing waits or the credit is used up."""
        frames = []
        while True:
            if self._bound and self._credit > 0:
                frames.append(self._next_bound())
            elif self._control:
                batch, self._control = self._control, []
                frames.append(self._frame(batch))
            else:
                return frames[0] if len(frames) == 1 else b"".join(frames)

    def _next_bound(self) -> bytes:
        """The next frame of run-bound messages; control messages that wait ride along."""
        bound = self._bound
        if isinstance(bound[0], _Cut):
            return self._paid(*bound.popleft())
        batch, self._control = self._control, []
        while bound and len(batch) < MESSAGES_PER_FRAME:
            message = bound[0]
            if isinstance(message, _Cut):
                break
            batch.append(message)
            bound.popleft()
        return self._frame(batch)

    def _frame(self, batch: list[Message]) -> bytes:
        """A frame of the messages; when one of them is too long, the first of several."""
        payload = _dumps(batch)
        if len(payload) <= CHUNK_BYTES:
            return self._paid(payload, spends_credit(batch))
        self._bound.extendleft(reversed(self._pieces(batch)))
        return self._paid(*self._bound.popleft())

    def _pieces(self, batch: list[Message]) -> "list[_Cut]":
        """The same messages in order: the short ones gathered, the long ones in chunks."""
        pieces: list[_Cut] = []
        texts: list[bytes] = []
        size, spends = 0, False
        for message in batch:
            text = _dumps(message)
            if texts and size + len(text) > CHUNK_BYTES:
                pieces.append(_Cut(_array_of(texts), spends))
                texts, size, spends = [], 0, False
            if len(text) > CHUNK_BYTES:
                pieces.extend(self._chunks(text))
            else:
                texts.append(text)
                size += len(text)
                spends = spends or message["t"] not in CONTROL
        if texts:
            pieces.append(_Cut(_array_of(texts), spends))
        return pieces

    def _paid(self, payload: bytes, spends: bool) -> bytes:
        if spends:
            self._credit -= len(payload)
        return _framed(payload)

    def _chunks(self, text: bytes) -> "list[_Cut]":
        self._chunked += 1
        whole = text.decode()
        # A character is at most four bytes in UTF-8, so the step holds for any text.
        step = CHUNK_BYTES if whole.isascii() else CHUNK_BYTES // 4
        pieces = [whole[at : at + step] for at in range(0, len(whole), step)]
        last = len(pieces) - 1
        return [
            _Cut(_dumps([{"t": "CHUNK", "id": self._chunked, "n": n, "last": n == last, "data": piece}]), True)
            for n, piece in enumerate(pieces)
        ]


class _Cut(NamedTuple):
    """A payload that is ready to go."""

    payload: bytes
    spends: bool


def _array_of(texts: list[bytes]) -> bytes:
    return b"[" + b",".join(texts) + b"]"
