"""The platform and the SDK hide the same in a text: an error of a step reads alike from either side."""

from hypothesis import given
from hypothesis import strategies as st

from anthares44.automation import redacted_text
from schemas.redacted_text import without_secrets

WORDS = st.sampled_from(
    [
        "password",
        "X-Api-Key",
        "clientSecret",
        "E_TOKEN",
        "monkey",
        "token_1",
        "Bearer",
        "postgresql://a:b@c/d",
        "n",
        "ç",
    ]
)
MARKS = st.sampled_from([" ", ": ", "=", " => ", "==", '"', "'", "\\", '\\"', "{", "}", ",", "?", "&", "\n", "\0"])


@given(st.lists(WORDS | MARKS | st.text(max_size=3), max_size=30).map("".join))
def test_any_text_is_redacted_alike(text: str) -> None:
    assert redacted_text.without_secrets(text) == without_secrets(text)
