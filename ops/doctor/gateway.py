"""The gateway as clients meet it: does it answer, is it ready, does the token fit, what does its clock say."""

import time
from collections.abc import Sequence
from email.utils import parsedate_to_datetime

from ops.client import Client, Exchange
from ops.doctor.findings import FAILED, OK, SKIPPED, Finding, clock_finding
from schemas.errors import AutomationError

_PATIENCE = 5.0
_OK = 200


def check_gateway(url: str, token: str, *, is_default: bool) -> Sequence[Finding]:
    """`is_default`: nobody named the address, so that nothing need be there."""
    try:
        exchange = Exchange(url, _PATIENCE)
        sent = time.time()
        connection, response = exchange.open("/readyz", {}, _PATIENCE)
        here = (sent + time.time()) / 2
        status, told = response.status, response.getheader("Date")
        connection.close()
    except AutomationError as error:
        if is_default:
            way_out = "set A44_URL, or use a44 auth login, where a gateway is to be examined"
            return [Finding("gateway", SKIPPED, f"none at {url}, and no other is named", way_out)]
        return [Finding("gateway", FAILED, error.message, "start it (a44 up --roles gateway), or mend A44_URL")]
    if status != _OK:
        way_out = "look at its log: it waits for Postgres, or for a44 migrate"
        return [Finding("gateway", FAILED, f"{url} answers, and is not ready ({status})", way_out)]
    return [Finding("gateway", OK, f"{url} is ready"), _token(url, token), *_clock(told, here)]


def _token(url: str, token: str) -> Finding:
    if not token:
        return Finding("token", SKIPPED, "none is set", "use a44 auth login, or set A44_TOKEN")
    client = Client(url, token, _PATIENCE)
    try:
        told = client.whoami()
    except AutomationError as error:
        way_out = "have an operator make one (a44 auth token create), then a44 auth login"
        return Finding("token", FAILED, f"{error.code}: {error.message}", way_out)
    finally:
        client.close()
    return Finding("token", OK, f"of {told.get('project_id')}, for {', '.join(told.get('scopes', []))}")


def _clock(told: str | None, here: float) -> Sequence[Finding]:
    try:
        there = parsedate_to_datetime(told or "").timestamp() + 0.5  # the header has whole seconds
    except ValueError:
        return []
    return [clock_finding("gateway", there - here)]
