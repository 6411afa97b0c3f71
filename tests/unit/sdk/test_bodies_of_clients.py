"""What clients write: one body, signed for each try, with every digit; and what they refuse to write or to read."""

import hashlib
import hmac
import json
from datetime import UTC, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from anthares44.automation import (
    ServiceError,
    ServiceRefused,
    exact_json,
)
from tests.support.scripted_service import LOST, Scripted, ScriptedService, problem
from tests.unit.sdk.conftest import CREATED, KEY, SECRET, Do, run_told


def signature_fits(service: ScriptedService, at: int = 0) -> bool:
    sent = service.seen[at]
    signed = sent.headers["a44-timestamp"].encode() + b"." + sent.body
    return sent.headers["a44-signature"] == hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()


def test_a05_the_bytes_that_are_signed_are_the_bytes_that_are_sent(service: ScriptedService, send: Do) -> None:
    written: list[Any] = []

    def with_spaces(value: Any) -> str:
        written.append(value)
        return json.dumps(value, indent=2)

    service.script(LOST, Scripted(202, {"run_id": "run_1", "event_id": "evt_1", "status": "created"}))
    assert send({"b": 1, "a": [1, 2]}, dumps=with_spaces).run_id == "run_1"
    assert len(written) == 1
    assert [sent.body for sent in service.seen] == [json.dumps({"b": 1, "a": [1, 2]}, indent=2).encode()] * 2
    assert signature_fits(service, 0)
    assert signature_fits(service, 1)


@pytest.mark.parametrize(
    "dumps",
    [
        json.dumps,
        lambda value: json.dumps(value, separators=(",", ":")),
        lambda value: json.dumps(value, sort_keys=True, ensure_ascii=False).encode(),
        lambda value: json.dumps(value, indent="\t") + "\n",
    ],
)
def test_a06_whatever_writes_the_body_the_signature_fits(service: ScriptedService, send: Do, dumps: Any) -> None:
    service.script(Scripted(202, {"status": "filtered"}))
    told = send({"name": "Ana ☃ é", "n": 2**53 + 1, "f": 1.0}, dumps=dumps)
    assert (told.status, told.run_id) == ("filtered", None)
    assert signature_fits(service)


def test_a13_each_try_is_signed_at_its_own_time(
    service: ScriptedService, send: Do, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = iter([1_700_000_000.9, 1_700_000_400.2])
    monkeypatch.setattr("anthares44.automation.client.signing.time", SimpleNamespace(time=lambda: next(moments)))
    late = problem(408, "E_TIMESTAMP_SKEW", "set the clock, and sign again for every try")
    service.script(late, Scripted(202, {"run_id": "run_1", "event_id": "evt_1", "status": "created"}))
    send({"occurred": "long ago"})
    assert [sent.headers["a44-timestamp"] for sent in service.seen] == ["1700000000", "1700000400"]
    assert [sent.headers["a44-idempotency-key"] for sent in service.seen] == [KEY, KEY]
    assert signature_fits(service, 0)
    assert signature_fits(service, 1)


def test_a13_a_wrong_clock_is_refused_with_the_way_out(service: ScriptedService, send: Do) -> None:
    service.script(*[problem(408, "E_TIMESTAMP_SKEW", "set the clock, and sign again for every try")] * 4)
    with pytest.raises(ServiceRefused, match="set the clock"):
        send({})


def test_a18_numbers_keep_their_digits(service: ScriptedService, ask: Do) -> None:
    digits = 123456789012345678901234567890
    service.script(CREATED)
    ask("send_event", "a.b", {"id": 2**53 + 1, "long": digits, "one": 1.0}, key=KEY)
    assert service.seen[0].body.endswith(
        b'"data":{"id":9007199254740993,"long":123456789012345678901234567890,"one":1.0}}'
    )
    service.script(run_told("succeeded", result={"id": 2**53 + 1, "long": digits, "one": 1.0}))
    told = ask("result", "run_1")
    assert told == {"id": 9007199254740993, "long": digits, "one": 1.0}
    assert isinstance(told["one"], float)
    service.script(run_told("succeeded", result=0.1))
    assert ask("result", "run_1", _of={"loads": exact_json}) == Decimal("0.1")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1.5, 2}, "\ud800", {"at": datetime.now(UTC)}])
def test_a19_what_is_no_json_is_refused_before_anything_is_sent(service: ScriptedService, ask: Do, value: Any) -> None:
    with pytest.raises(ServiceRefused, match=r"E_JSON_INVALID.*expected"):
        ask("send_event", "a.b", {"value": value}, key=KEY)
    assert service.seen == []


def test_a19_a_number_beyond_a_float_is_never_read_as_infinity(ask: Do, service: ScriptedService) -> None:
    huge = Scripted(200, b'{"run_id":"run_1","state":"succeeded","result":1e400}')
    service.script(huge, huge)
    with pytest.raises(ServiceError, match="loads=exact_json"):
        ask("result", "run_1")
    assert ask("result", "run_1", _of={"loads": exact_json}) == Decimal("1e400")
