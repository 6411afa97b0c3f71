"""`Retry-After`, RFC 9110 10.2.3, as seconds to wait."""

from datetime import UTC, datetime

import pytest

from processors.adapters.http.answers import MAX_RETRY_AFTER, retry_after

NOW = datetime(2026, 8, 20, 8, 0, 0, tzinfo=UTC)
SENT = "Thu, 20 Aug 2026 08:59:30 GMT"


@pytest.mark.parametrize(
    ("value", "date", "expected"),
    [
        (None, None, None),
        ("120", None, 120.0),
        (" 0 ", SENT, 0.0),
        ("99999999999999999999", None, MAX_RETRY_AFTER),
        ("172800", None, MAX_RETRY_AFTER),
        ("-5", None, None),
        ("1.5", None, None),
        ("soon", None, None),
        ("", None, None),
        ("Thu, 20 Aug 2026 09:00:00 GMT", SENT, 30.0),
        ("Thursday, 20-Aug-26 09:00:00 GMT", SENT, 30.0),
        ("Thu Aug 20 09:00:00 2026", SENT, 30.0),
        ("Thu, 20 Aug 2026 09:00:00 GMT", None, 3600.0),
        ("Thu, 20 Aug 2026 09:00:00 GMT", "yesterday", 3600.0),
        ("Thu, 20 Aug 2026 08:00:00 GMT", SENT, 0.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", SENT, 0.0),
        ("Thu, 20 Aug 2096 09:00:00 GMT", SENT, MAX_RETRY_AFTER),
        ("Thu, 99 Aug 2026 09:00:00 GMT", SENT, None),
        ("Thu, 20 Aug 99999999999 09:00:00 GMT", SENT, None),
    ],
)
def test_seconds_to_wait(value: str | None, date: str | None, expected: float | None):
    assert retry_after(value, date, NOW) == expected
