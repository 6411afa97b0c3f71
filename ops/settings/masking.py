"""Values as they may be shown: secrets and the passwords inside addresses are masked."""

import re

from pydantic import SecretStr

MASK = "********"
_URL_PASSWORD = re.compile(r"(?P<before>://[^:/@\s]*:)[^\s]*(?P<after>@)")
_PARAMETER = re.compile(
    r"(?P<before>\b(?:password|sslpassword|passfile)\s*=\s*)(?:'(?:[^'\\]|\\.)*'|[^\s&]+)", re.IGNORECASE
)


def masked(value: object) -> object:
    """The value itself, or what may be shown of it."""
    if isinstance(value, SecretStr):
        return MASK if value.get_secret_value() else ""
    if isinstance(value, str):
        text = _URL_PASSWORD.sub(rf"\g<before>{MASK}\g<after>", value)
        return _PARAMETER.sub(rf"\g<before>{MASK}", text)
    return value if isinstance(value, int | float | None) else str(value)
