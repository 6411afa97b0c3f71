"""Key and headers of a record in its dead letter: kept as bytes within a bound, shown as far as they say its kind."""

import base64

import pytest

from processors.ports.streams import Record
from schemas.framing import Headers
from schemas.kept_records import MOST_KEPT, KeptRecord, headers_of, kept, redacted
from schemas.results import REDACTED


def record_of(value: bytes, headers: Headers = (), key: bytes | None = None) -> Record:
    return Record("t", 0, 0, key, value, headers, 0)


CLOUD: Headers = (
    ("ce_specversion", b"1.0"),
    ("ce_type", b"order.paid"),
    ("ce_source", b"https://ana:pw@shop.test/orders?api_key=k"),
    ("ce_subject", b"Maria da Silva"),
    ("authorization", b"Bearer abc"),
    ("content-type", b"application/json"),
    ("empty", None),
)


def test_key_and_headers_are_kept_as_they_came() -> None:
    headers: Headers = (*CLOUD, ("bytes", b"\x00\xff"), ("ce_type", b"again"))
    found = kept(record_of(b"{}", headers, b"\xff\x00key"))
    assert (found.key, found.left_out) == (b"\xff\x00key", 0)
    told = [(name, None if value is None else base64.b64decode(value)) for name, value in headers_of(found.headers)]
    assert told == list(headers)


def test_a_record_without_key_and_headers_keeps_nothing() -> None:
    assert kept(record_of(b"{}")) == KeptRecord(None, None, 0)
    assert redacted(KeptRecord(None, None, 0)) == {"key": None, "headers": [], "left_out": 0}


def test_what_does_not_fit_is_counted_and_what_comes_after_it_is_kept() -> None:
    large, headers = b"x" * MOST_KEPT, (("large", b"y" * MOST_KEPT), ("ce_type", b"order.paid"))
    found = kept(record_of(b"{}", headers, large))
    assert (found.key, found.left_out) == (b"x" * MOST_KEPT, 2)  # the key took all the room
    found = kept(record_of(b"{}", headers, large + b"x"))
    assert (found.key, found.left_out, [name for name, _ in headers_of(found.headers)]) == (None, 2, ["ce_type"])


def test_h05_names_and_what_says_its_kind_are_shown_and_nothing_else() -> None:
    shown = redacted(kept(record_of(b"{}", CLOUD, b"a-key")))
    assert shown["key"] == REDACTED
    assert {one["name"]: one["value"] for one in shown["headers"]} == {
        "ce_specversion": "1.0",
        "ce_type": "order.paid",
        "ce_source": "https://[redacted]@shop.test/orders?api_key=[redacted]",
        "ce_subject": REDACTED,
        "authorization": REDACTED,
        "content-type": "application/json",
        "empty": None,
    }


@pytest.mark.parametrize("value", [b"\xff", "é".encode("latin-1")])
def test_a_header_that_is_no_text_is_hidden(value: bytes) -> None:
    (shown,) = redacted(kept(record_of(b"{}", (("ce_type", value),))))["headers"]
    assert shown["value"] == REDACTED
