"""The tenants' control plane over HTTP, as a team's own client module looks. Standard library only."""

import json
import os
import urllib.error
import urllib.request

from anthares44.automation import PermanentError, RetryableError

TIMEOUT_SECONDS = 10
RETRYABLE = {408, 429, 500, 502, 503, 504}


def _call(method, path, body=None, key=None):
    headers = {"content-type": "application/json"}
    if key is not None:
        headers["Idempotency-Key"] = key
    request = urllib.request.Request(
        os.environ["PARTNER_URL"] + path,
        method=method,
        headers=headers,
        data=None if body is None else json.dumps(body).encode(),
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
            return json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as refused:
        kind = RetryableError if refused.code in RETRYABLE else PermanentError
        raise kind(f"{method} {path} answered {refused.code}") from refused


class tenants:
    @staticmethod
    def create(name, request_id):
        return _call("POST", "/tenants", {"name": name}, key=request_id)


class databases:
    @staticmethod
    def create(tenant_id):
        return _call("POST", "/databases", {"tenant_id": tenant_id}, key=f"db:{tenant_id}")

    @staticmethod
    def drop(db_id):
        return _call("DELETE", f"/databases/{db_id}")
