"""Secrets, signatures, timestamps, idempotency keys and parameters: pure rules of the doors."""

import hashlib
import hmac
from datetime import UTC, datetime

import pytest
from aiohttp.test_utils import make_mocked_request

from processors.gateway.fields import since_parameter, whole_parameter
from processors.gateway.keys import check_key
from processors.gateway.signatures import Secrets, same, seconds_off
from schemas.errors import Refused

SECRETS = Secrets(bytes(32))
NOW = datetime(2026, 7, 19, 14, 0, tzinfo=UTC)


def test_a_secret_is_a_function_of_key_project_trigger_and_number() -> None:
    secret = SECRETS.secret("pj_shop", "trg_x", 1)
    expected = hmac.new(bytes(32), b"a44.webhook.v1\0pj_shop\0trg_x\x001", hashlib.sha256).hexdigest()
    assert secret == expected
    others = [
        SECRETS.secret("pj_shop", "trg_x", 2),
        SECRETS.secret("pj_shop", "trg_y", 1),
        SECRETS.secret("pj_shoq", "trg_x", 1),
        Secrets(b"\x01" * 32).secret("pj_shop", "trg_x", 1),
    ]
    assert len({secret, *others}) == 5


def test_the_signature_is_what_the_guides_sender_computes() -> None:
    secret = SECRETS.secret("pj_shop", "trg_x", 1)
    body = '{"invoiceId":"inv_8812","n":"\u00e9"}'.encode()
    theirs = hmac.new(secret.encode(), b"1784500860." + body, "sha256").hexdigest()
    ours = SECRETS.sign("pj_shop", "trg_x", 1, b"1784500860", body)
    assert same(theirs.encode(), ours)
    assert not same(theirs.upper().encode(), ours)
    assert not same(b"sha256=\xe9", ours)
    assert not same(b"", ours)


@pytest.mark.parametrize(("numbers", "fitting"), [([2], 2), ([3, 2], 2), ([2, 1], 2), ([3], None), ([], None)])
def test_any_secret_that_lives_may_have_signed_and_no_other(numbers: list[int], fitting: int | None) -> None:
    told = SECRETS.sign("pj_shop", "trg_x", 2, b"1784500860", b"{}").encode()
    assert SECRETS.fitting("pj_shop", "trg_x", numbers, b"1784500860", b"{}", told) == fitting


def test_the_secret_that_stands_in_for_a_missing_one_opens_nothing() -> None:
    told = SECRETS.sign("pj_shop", "trg_x", 0, b"1784500860", b"{}").encode()
    assert SECRETS.fitting("pj_shop", "trg_x", [], b"1784500860", b"{}", told) is None
    assert SECRETS.fitting("pj_shop", "trg_x", [1], b"1784500860", b"{}", told) is None


@pytest.mark.parametrize("numbers", [[], [1], [2, 1]])
def test_a_refusal_costs_the_same_number_of_signatures_whatever_lives(
    numbers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    monkeypatch.setattr(SECRETS, "sign", lambda _project, _trigger, number, *_: made.append(number) or "0" * 64)
    assert SECRETS.fitting("pj_shop", "trg_x", numbers, b"1", b"{}", b"wrong") is None
    assert len(made) == 2


def test_a_short_master_key_is_refused() -> None:
    with pytest.raises(Refused, match="E_CONFIG"):
        Secrets(bytes(31))


@pytest.mark.parametrize(
    ("timestamp", "off"),
    [
        (b"1000", 0.0),
        (b"700", 300.0),
        (b"1301", 301.0),
        (b"", None),
        (b"1e3", None),
        (b"-1", None),
        (b"9" * 5000, None),
    ],
)
def test_how_far_a_timestamp_is(timestamp: bytes, off: float | None) -> None:
    assert seconds_off(timestamp, 1000.0) == off


@pytest.mark.parametrize("key", ["", " ", "\u2003", "a\nb", "a\x7fb", "a\x85b", "x" * 256, "a\udce9b"])
def test_keys_that_are_not_usable(key: str) -> None:
    with pytest.raises(Refused, match="E_IDEMPOTENCY_KEY_INVALID"):
        check_key(key)


@pytest.mark.parametrize("key", ["k", "invoice:inv_8812:finalized:v1", "x" * 255, " padded ", "\u00e9\U0001f600"])
def test_keys_that_are_kept_as_they_are(key: str) -> None:
    assert check_key(key) == key


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("48h", datetime(2026, 7, 17, 14, 0, tzinfo=UTC)),
        ("90s", datetime(2026, 7, 19, 13, 58, 30, tzinfo=UTC)),
        ("7d", datetime(2026, 7, 12, 14, 0, tzinfo=UTC)),
        ("2026-07-01", datetime(2026, 7, 1, tzinfo=UTC)),
        ("2026-07-01T12:00:00%2B02:00", datetime(2026, 7, 1, 10, tzinfo=UTC)),
        ("2026-07-01T12:00:00+02:00", datetime(2026, 7, 1, 10, tzinfo=UTC)),
        ("", None),
    ],
)
def test_since_is_a_span_or_a_moment(text: str, moment: datetime | None) -> None:
    assert since_parameter(make_mocked_request("GET", f"/?since={text}"), "since", NOW) == moment


@pytest.mark.parametrize(
    "text", ["48", "h", "999999999d", "yesterday", "2026-13-01", "-5h", "0001-01-01T00:00:00%2B14:00"]
)
def test_since_that_is_neither(text: str) -> None:
    with pytest.raises(Refused, match="E_INVALID_PARAMETER"):
        since_parameter(make_mocked_request("GET", f"/?since={text}"), "since", NOW)


def test_whole_numbers_are_capped_and_checked() -> None:
    assert whole_parameter(make_mocked_request("GET", "/?limit=9999"), "limit", 50, 500) == 500
    assert whole_parameter(make_mocked_request("GET", "/"), "limit", 50, 500) == 50
    for text in ("0", "-1", "1.5", "\u0663", "1" * 30):
        with pytest.raises(Refused, match="E_INVALID_PARAMETER"):
            whole_parameter(make_mocked_request("GET", f"/?limit={text}"), "limit", 50, 500)
