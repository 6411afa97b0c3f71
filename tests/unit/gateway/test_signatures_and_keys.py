"""Secrets, signatures, timestamps, idempotency keys and parameters: pure rules of the doors."""

import base64
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp.test_utils import make_mocked_request
from structlog.testing import capture_logs

from processors.gateway.fields import since_parameter, whole_parameter
from processors.gateway.keys import check_key
from processors.gateway.senders import OURS, SENDERS, Claim, Draft, Sender
from processors.gateway.signatures import HookSecrets, MasterKey, NoSecrets, seconds_off
from processors.ports.catalog import Trigger, WebhookSecret
from schemas.errors import Refused
from tests.unit.gateway.catalogs import snapshot_of

MASTER = MasterKey(bytes(32))
SECRETS = HookSecrets(MASTER, NoSecrets())
NOW = datetime(2026, 7, 19, 14, 0, tzinfo=UTC)


def test_a_secret_is_a_function_of_key_project_trigger_and_number() -> None:
    secret = MASTER.secret("pj_shop", "trg_x", 1)
    expected = hmac.new(bytes(32), b"a44.webhook.v1\0pj_shop\0trg_x\x001", hashlib.sha256).hexdigest()
    assert secret == expected
    others = [
        MASTER.secret("pj_shop", "trg_x", 2),
        MASTER.secret("pj_shop", "trg_y", 1),
        MASTER.secret("pj_shoq", "trg_x", 1),
        MasterKey(b"\x01" * 32).secret("pj_shop", "trg_x", 1),
    ]
    assert len({secret, *others}) == 5


def hook(verify: str = "a44", numbers: Sequence[int] = (1,)) -> Trigger:
    flow = "name: flow\nversion: 1\ntrigger: {webhook: {id: trg_x, verify: %s}}\n" % verify  # noqa: UP031  braces
    snapshot = snapshot_of({"flow.yaml": flow + "steps: [{id: pause, uses: sleep, duration: 1s}]\n"})
    trigger = snapshot.triggers["pj_shop", "trg_x"]
    trigger.secrets = [WebhookSecret(number, NOW if place else None) for place, number in enumerate(numbers)]
    return trigger


def claim_of(sender: Sender, headers: Mapping[str, str]) -> Claim:
    return sender.claim(lambda name: headers.get(name, ""))


def signed(number: int, body: bytes = b"{}") -> Claim:
    secret = MASTER.secret("pj_shop", "trg_x", number)
    return claim_of(OURS, OURS.headers(secret, Draft(body, "1784500860", "")))


def test_the_signature_is_what_the_guides_sender_computes() -> None:
    secret = MASTER.secret("pj_shop", "trg_x", 1)
    body = '{"invoiceId":"inv_8812","n":"\u00e9"}'.encode()
    theirs = hmac.new(secret.encode(), b"1784500860." + body, "sha256").hexdigest()
    for told, fits in ((theirs, True), (theirs.upper(), False), ("sha256=\udce9", False), ("", False)):
        claim = claim_of(OURS, {"A44-Signature": told, "A44-Timestamp": "1784500860"})
        assert OURS.fits(secret, claim, body) is fits


@pytest.mark.parametrize(
    ("numbers", "age"), [([2], "newest"), ([3, 2], "old"), ([2, 1], "newest"), ([3], None), ([], None)]
)
def test_any_secret_that_lives_may_have_signed_and_no_other(numbers: list[int], age: str | None) -> None:
    before = NOW - timedelta(seconds=1)
    assert SECRETS.fitting(hook(numbers=numbers), OURS, signed(2), b"{}", before) == age


def test_case_A16_the_old_secret_dies_at_the_second() -> None:
    both = hook(numbers=[3, 2])
    assert SECRETS.fitting(both, OURS, signed(2), b"{}", NOW - timedelta(microseconds=1)) == "old"
    assert SECRETS.fitting(both, OURS, signed(2), b"{}", NOW) is None


@pytest.mark.parametrize("numbers", [None, [], [1], [2, 1]])
def test_a_refusal_costs_the_same_number_of_signatures_whatever_lives(
    numbers: list[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    monkeypatch.setattr(type(OURS), "sign", lambda _, secret, __: made.append(secret) or "0" * 64)
    trigger = None if numbers is None else hook(numbers=numbers)
    before = NOW - timedelta(seconds=1)
    assert SECRETS.fitting(trigger, OURS, Claim(["wrong"]), b"{}", before) is None
    assert len(made) == 2


def test_a_handed_out_secret_that_is_not_set_takes_nothing_and_is_told_once() -> None:
    trigger, sender = hook("{preset: stripe, secretRef: sec_hook, oldSecretRef: sec_before}"), SENDERS["stripe"]
    kept = Kept()
    secrets = HookSecrets(MASTER, kept)
    claim = claim_of(sender, sender.headers("whsec_x", Draft(b"{}", "1784500860", "")))
    with capture_logs() as logs:
        assert [secrets.fitting(trigger, sender, claim, b"{}", NOW) for _ in range(2)] == [None, None]
    assert [entry["event"] for entry in logs] == ["webhook_secret_missing"] * 2  # one a name
    with pytest.raises(Refused, match="E_SECRET_UNKNOWN"):
        secrets.newest(trigger, NOW)
    kept["pj_shop", "sec_before"] = "whsec_x"
    assert secrets.fitting(trigger, sender, claim, b"{}", NOW) == "old"
    kept["pj_shop", "sec_hook"] = "whsec_x\n"
    assert secrets.fitting(trigger, sender, claim, b"{}", NOW) == "newest"
    assert secrets.newest(trigger, NOW) == "whsec_x"


@pytest.mark.parametrize("secret", ["whsec_", "whsec_not base64!", "", "whsec_\u00e9"])
def test_a_standard_secret_that_holds_no_key_opens_nothing(secret: str) -> None:
    sender = SENDERS["standard-webhooks"]
    forged = base64.b64encode(hmac.digest(b"", b"m.1.{}", "sha256")).decode()
    told = {"webhook-id": "m", "webhook-timestamp": "1", "webhook-signature": f"v1,{forged}"}
    assert not sender.fits(secret, claim_of(sender, told), b"{}")


class Kept(dict[tuple[str, str], str]):
    """The port `Secrets`, in memory."""

    def get(self, project: str, name: str) -> str:  # type: ignore[override]
        if (project, name) not in self:
            raise Refused("E_SECRET_UNKNOWN", f"{name} is not set")
        return self[project, name]


def test_a_short_master_key_is_refused() -> None:
    with pytest.raises(Refused, match="E_CONFIG"):
        MasterKey(bytes(31))


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
