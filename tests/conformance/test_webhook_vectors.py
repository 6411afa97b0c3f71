"""Webhooks fit as their senders' public documentation signs them, and nothing near them does."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest

from processors.gateway.senders import SENDERS, Claim, Draft, Sender
from topology.verification import Preset

VECTORS = json.loads(Path(__file__).with_name("webhook_vectors.json").read_text("utf-8"))["vectors"]


@pytest.fixture(params=VECTORS, ids=lambda vector: vector["name"])
def vector(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(request.param)


def claim_of(sender: Sender, headers: Mapping[str, str]) -> Claim:
    return sender.claim(lambda name: headers.get(name, ""))


def data_of(body: str) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None


def test_every_preset_has_a_sender_and_a_vector() -> None:
    assert set(SENDERS) == set(get_args(Preset)) == {vector["sender"] for vector in VECTORS}


def test_the_documented_request_fits(vector: dict[str, Any]) -> None:
    sender = SENDERS[vector["sender"]]
    claim = claim_of(sender, vector["headers"])
    assert sender.fits(vector["secret"], claim, vector["body"].encode())
    told = None if claim.timestamp is None else claim.timestamp.decode()
    assert told == vector["timestamp"]
    assert (told is None) == (sender.time_header is None)
    assert sender.delivery(claim, data_of(vector["body"])) == vector["delivery"]


def test_another_byte_secret_or_missing_header_does_not_fit(vector: dict[str, Any]) -> None:
    sender, body = SENDERS[vector["sender"]], vector["body"].encode()
    headers = vector["headers"]
    claim = claim_of(sender, headers)
    assert not sender.fits(vector["secret"], claim, body + b" ")
    assert not sender.fits(vector["secret"][:-4] + "AAAA", claim, body)
    unsigned = {"X-GitHub-Delivery", "X-Shopify-Webhook-Id"}  # no part of what these two sign
    for name in set(headers) - unsigned:
        without = {other: value for other, value in headers.items() if other != name}
        assert not sender.fits(vector["secret"], claim_of(sender, without), body), name
        for wrong in ("", ",", "v1,", "t=,v1=", "\udce9", "sha256=", "=", "t=1,t=2"):
            assert not sender.fits(vector["secret"], claim_of(sender, {**headers, name: wrong}), body), (name, wrong)


def test_what_is_signed_here_fits_there(vector: dict[str, Any]) -> None:
    """And is the documented signature, where the header holds one alone."""
    sender, body = SENDERS[vector["sender"]], vector["body"].encode()
    draft = Draft(body, vector["timestamp"] or "1", vector["delivery"] or "id")
    headers = sender.headers(vector["secret"], draft)
    assert sender.fits(vector["secret"], claim_of(sender, headers), body)
    documented = " ".join(vector["headers"].values())
    assert all(value in documented for name, value in headers.items() if name != "Stripe-Signature")


@pytest.mark.parametrize("name", sorted(SENDERS))
def test_a_secret_of_ours_is_32_bytes_in_the_form_that_the_sender_takes(name: str) -> None:
    sender = SENDERS[name]
    shown = sender.shown("5a" * 32)
    assert sender.key(shown) == (b"\x5a" * 32 if name == "standard-webhooks" else b"5a" * 32)


def test_only_slack_asks_whether_somebody_is_there() -> None:
    question = {"type": "url_verification", "challenge": "3eZbrw1a"}
    assert {name: one.reply(question) for name, one in SENDERS.items() if one.reply(question)} == {
        "slack": {"challenge": "3eZbrw1a"}
    }
    for other in ({"type": "url_verification", "challenge": 5}, {"type": "event_callback"}, [], "x", None):
        assert SENDERS["slack"].reply(other) is None
