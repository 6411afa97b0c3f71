"""Text for people: values behind the names of secrets are hidden in any style, and everything else stays."""

import pytest

from schemas.redacted_text import told_without_secrets, without_secrets

NAMES = ["csrf-token", "webhook-secret", "clientSecret", "X-Api-Key", "access_token", "DB_PASSWORD", "Authorization"]
FORMS = [
    "GET https://partner.example/cb?a=1&{}=hunter2&b=2 failed",
    "at https://partner.example/cb?{}=hunter2",
    "header {}: hunter2; next",
    '{{"{}": "hunter2", "b": 1}}',
    "'{}': 'hunter2'",
    "{}=hunter2",
    "{} = 'hunter2 and more'",
    "{}: Bearer hunter2",
    r'said "{{\"{}\": \"hunter2\"}}"',
    "the filter `data.{} == 'hunter2'` failed",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", FORMS)
def test_h05_the_value_behind_the_name_of_a_secret_is_hidden_in_any_style(name: str, form: str) -> None:
    told = without_secrets(form.format(name))
    assert "hunter2" not in told
    assert "[redacted]" in told
    assert name in told


def test_what_stands_beside_a_secret_stays() -> None:
    told = without_secrets("https://p.example/cb?a=1&csrf-token=x&b=2#top and {\"clientSecret\": \"y\", 'n': 'z'}")
    assert (
        told
        == "https://p.example/cb?a=1&csrf-token=[redacted]&b=2#top and {\"clientSecret\": \"[redacted]\", 'n': 'z'}"
    )


def test_user_and_password_of_an_address_are_hidden() -> None:
    told = without_secrets("cannot reach postgresql://maria:pw:x@db.example:5432/a44?sslmode=require")
    assert told == "cannot reach postgresql://[redacted]@db.example:5432/a44?sslmode=require"


@pytest.mark.parametrize(
    "text",
    [
        "the token 'dashboard' has automation:read; this needs automation:write",
        "step charge failed with E_TOKEN: see its page",
        "E_TOKEN: the token is not known",
        "tokenCount=3 and maxOutputTokens: 400",
        "idempotency_key=order:7:paid and monkey=1",
        "write to ops@shop.example",
        "no secret here, and no password either",
    ],
)
def test_words_that_are_no_name_of_a_secret_hide_nothing(text: str) -> None:
    assert without_secrets(text) == text


def test_a_log_line_is_judged_by_names_at_any_depth_and_by_its_texts() -> None:
    line = {"headers": [{"X-Api-Key": "a"}, {"n": 1}], "text": "?csrf-token=b", "token": 7, "secret": ["c", "d"]}
    assert told_without_secrets("event", line) == {
        "headers": [{"X-Api-Key": "[redacted]"}, {"n": 1}],
        "text": "?csrf-token=[redacted]",
        "token": 7,
        "secret": ["[redacted]", "[redacted]"],
    }


LONG = ["token" * 40_000, "a.b-" * 50_000 + "token", 'token="' * 30_000, "token" + " " * 200_000, "x://" * 50_000 + "@"]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("text", LONG, ids=range(len(LONG)))
def test_a_long_text_costs_no_more_than_its_length(text: str) -> None:
    without_secrets(text)  # with a cost that grows with the square this takes minutes
