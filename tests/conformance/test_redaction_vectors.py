"""The platform's codec and the SDK's record the same text for the same JSON, or refuse with the same code."""

import json
from pathlib import Path
from typing import Any

import pytest

from anthares44.automation.codec import Codec
from anthares44.automation.errors import ResultError
from schemas import results
from schemas.errors import Refused

VECTORS = json.loads(Path(__file__).with_name("redaction_vectors.json").read_text("utf-8"))["vectors"]


@pytest.fixture(params=VECTORS, ids=lambda vector: vector["name"])
def vector(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(request.param)


def test_platform_records_as_written(vector: dict[str, Any]):
    if vector["recorded"] is None:
        with pytest.raises(Refused) as refusal:
            results.seal(vector["json"], "the result")
        assert refusal.value.code == vector["code"]
    else:
        assert results.seal(vector["json"], "the result") == vector["recorded"]


def test_sdk_records_as_written(vector: dict[str, Any]):
    value = json.loads(vector["json"])
    if vector["recorded"] is None:
        with pytest.raises(ResultError) as refusal:
            Codec().encode(value)
        assert refusal.value.code == vector["code"]
    else:
        assert Codec().encode(value) == vector["recorded"]
