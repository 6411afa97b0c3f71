"""Frames: whatever way the bytes are cut, the same messages come out; credit holds runs back, never control."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from anthares44.automation.wire import (
    CHUNK_BYTES,
    FrameDecoder,
    Outbox,
    WireError,
    agree,
    encode_frame,
)

SMALL = {"t": "DONE", "run": "r", "value": '{"ok":true}'}


def large(letter: str, size: int) -> dict[str, Any]:
    return {"t": "DONE", "run": letter, "value": letter * size}


@given(some.lists(some.integers(1, 40), max_size=60))
def test_frames_may_come_in_any_pieces(cuts: list[int]):
    messages = [SMALL | {"n": n} for n in range(5)]
    data = encode_frame(messages[:2]) + encode_frame([]) + encode_frame(messages[2:])
    decoder, seen, at = FrameDecoder(), [], 0
    for cut in [*cuts, len(data)]:
        seen += decoder.feed(data[at : at + cut])
        at += cut
    assert seen == messages


LETTERS = some.sampled_from(["a", "é", "😀", '"'])
SIZES = some.sampled_from([1, 50, CHUNK_BYTES - 60, CHUNK_BYTES, 3 * CHUNK_BYTES])


@given(some.lists(some.builds(large, LETTERS, SIZES), max_size=12))
@settings(deadline=None, max_examples=40)
def test_any_messages_pass_in_order(messages: list[dict[str, Any]]):
    outbox, decoder = Outbox(), FrameDecoder()
    for message in messages:
        outbox.put(message)
    seen: list[Any] = []
    while outbox.waiting:
        seen += decoder.feed(outbox.take())
        outbox.grant(decoder.take_consumed())
    assert seen == messages


def test_a_long_message_is_cut_and_joined():
    outbox, decoder = Outbox(), FrameDecoder()
    long = large("é", 200_000)
    for message in (SMALL, long, SMALL):
        outbox.put(message)
    data = outbox.take()
    assert decoder.feed(data) == [SMALL, long, SMALL]
    sizes = []
    while data:
        size = int.from_bytes(data[:4], "big")
        sizes.append(size)
        data = data[4 + size :]
    assert len(sizes) > 6
    assert max(sizes) < 2 * CHUNK_BYTES + 200


def test_both_sides_count_the_same_credit():
    outbox, decoder = Outbox(1000), FrameDecoder()
    outbox.put(large("a", 5000))
    outbox.put(SMALL)
    outbox.put({"t": "PING", "n": 1})
    first = decoder.feed(outbox.take())
    assert [message["t"] for message in first] == ["PING", "DONE", "DONE"]
    outbox.put(SMALL)
    outbox.put({"t": "BEAT", "n": 1})
    assert [message["t"] for message in decoder.feed(outbox.take())] == ["BEAT"]
    assert outbox.waiting
    assert outbox.take() == b""
    consumed = decoder.take_consumed()
    outbox.grant(consumed)
    assert decoder.feed(outbox.take()) == [SMALL]
    outbox.grant(decoder.take_consumed())
    assert outbox._credit == 1000


def test_credit_is_whole_again_after_every_message_was_taken_in():
    outbox, decoder = Outbox(300_000), FrameDecoder()
    messages = [large("x", size) for size in (10, 100_000, 70_000, 1, 400_000)] + [{"t": "LOG", "text": "l" * 90_000}]
    for message in messages:
        outbox.put(message)
    seen: list[Any] = []
    while outbox.waiting:
        seen += decoder.feed(outbox.take())
        outbox.grant(decoder.take_consumed())
    assert sorted(map(json.dumps, seen)) == sorted(map(json.dumps, messages))
    assert outbox._credit == 300_000


def test_a_window_may_be_agreed_on_later():
    outbox = Outbox(1000)
    outbox.put(large("a", 1500))
    outbox.take()
    outbox.resize(500)
    outbox.grant(1)
    outbox.put(SMALL)
    assert outbox.take() == b""


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x02{}",
        b"\x00\x00\x00\x03[1]",
        b"\x00\x00\x00\x04[{}]",
        b"\x00\x00\x00\x02[,",
        b"\x00\x00\x00\x02\xff\xfe",
        encode_frame([{"t": "CHUNK", "id": 1, "n": 1, "last": True, "data": "{}"}]),
        encode_frame([{"t": "CHUNK", "id": "1", "n": 0, "last": True, "data": "{}"}]),
        encode_frame([{"t": "CHUNK", "id": 1, "n": 0, "last": True, "data": "{"}]),
        encode_frame([{"t": "CHUNK", "id": 1, "n": 0, "last": True, "data": '{"t":"A"},{"t":"B"}'}]),
    ],
)
def test_what_breaks_the_format_is_refused(data: bytes):
    with pytest.raises(WireError):
        FrameDecoder().feed(data)


def test_a_lone_surrogate_does_not_take_the_link_down():
    (message,) = FrameDecoder().feed(encode_frame([{"t": "LOG", "text": "\udcff"}]))
    assert message["text"] == "\udcff"


@pytest.mark.parametrize("offered", [[1], [1, 2], [9, 1, 4]])
def test_the_highest_common_version_wins(offered: list[int]):
    assert agree(offered) == 1


def test_no_common_version_is_refused():
    with pytest.raises(WireError, match=r"offered \[2, 3\]"):
        agree([2, 3])
