"""Lane values: the key that keeps runs in order, taken from data by a template.

A key that is empty, or null, or far too long would silently put unrelated runs into one lane: refused.
"""

from collections.abc import Mapping
from typing import Any

from schemas.errors import Refused
from topology.templates import Template, text_of

MAX_LANE = 255


def lane_value(template: Template, scope: Mapping[str, Any]) -> str:
    """The lane's value as text. Raises Refused E_EXPRESSION."""
    try:
        text = text_of(template.render(scope))
    except Refused as error:
        raise Refused(
            error.code, f"the partition key cannot be told: {error.message}", error.place, error.details
        ) from error
    if not text.strip():
        raise Refused("E_EXPRESSION", "the partition key is empty; it must name the lane of the run")
    if len(text) > MAX_LANE:
        raise Refused("E_EXPRESSION", f"the partition key has {len(text)} characters; at most {MAX_LANE} are kept")
    if not text.isprintable():
        raise Refused("E_EXPRESSION", "the partition key holds characters that cannot be printed")
    return text
