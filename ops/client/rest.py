"""Speaks the REST surface and the hooks for the command line, over the standard library's HTTP alone.

Every refusal becomes a `Refused`, `Unavailable` or `Broken` with the service's own code; its details hold
the HTTP status. One connection is kept; a call on a kept connection that turns out closed is sent once
more, which every address here allows (each call is idempotent or carries a key).
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from ops.client.exchange import Exchange, Reply
from ops.client.stream import EventStream, StreamEvent, parse
from schemas.errors import AutomationError, Broken, Refused, Unavailable

_API = "/v1/automation"
_LONGEST_WAIT = 60.0
_OK = 200
TERMINAL = frozenset({"succeeded", "failed", "compensated", "compensation_failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class Answer:
    """A JSON answer with its HTTP status (200 and 202 mean different things) and its own text."""

    status: int
    document: Any
    text: str


@dataclass(frozen=True, slots=True)
class Signed:
    """What proves that a body came from a holder of the trigger's secret, for the next minutes."""

    path: str
    headers: Mapping[str, str]


class Client:
    """One service, one token. Not for use from several threads at once."""

    def __init__(self, url: str, token: str = "", timeout: float = 30.0) -> None:
        self._exchange = Exchange(url, timeout)
        self._token = token

    @property
    def url(self) -> str:
        return self._exchange.url

    def close(self) -> None:
        self._exchange.close()

    def whoami(self) -> dict[str, Any]:
        return self._object("GET", "/whoami")

    def publish(self, files: Mapping[str, str], *, dev: bool = False) -> dict[str, Any]:
        """Publish definitions: `files` holds path -> text."""
        body = json.dumps({"files": dict(files), "dev": dev}, ensure_ascii=False).encode()
        return self._object("POST", "/publish", body)

    def workflows(self) -> list[dict[str, Any]]:
        return self._list("/workflows")

    def triggers(self) -> list[dict[str, Any]]:
        return self._list("/triggers")

    def event_types(self) -> list[dict[str, Any]]:
        return self._list("/event-types")

    def event_type(self, name: str) -> dict[str, Any]:
        """With its schema."""
        return self._object("GET", f"/event-types/{quote(name, safe='')}")

    def misses(self, trigger_id: str, limit: int) -> list[dict[str, Any]]:
        """What a trigger's filter let pass by, the newest first."""
        return self._list(f"/triggers/{quote(trigger_id, safe='')}/misses?limit={limit}")

    def test_triggers(self, event: bytes) -> dict[str, Any]:
        """What each trigger would do with an event; nothing comes of it."""
        return self._object("POST", "/triggers/test", event)

    def run(
        self,
        workflow_id: str,
        input_text: str,
        key: str,
        *,
        version: str | None = None,
        trigger: str | None = None,
        wait: float | None = None,
    ) -> Answer:
        """Start a run. `input_text` is JSON and travels byte for byte; `wait` (seconds) is cut at the service's 60."""
        body = f'{{"input":{input_text}'
        for name, value in (("version", version), ("trigger", trigger)):
            if value is not None:
                body += f',"{name}":{json.dumps(value)}'
        query = {"wait": f"{min(wait, _LONGEST_WAIT):g}"} if wait else {}
        path = f"{_API}/workflows/{quote(workflow_id, safe='')}/runs"
        extra = (wait or 0.0) if query else 0.0
        return self._call("POST", path, f"{body}}}".encode(), {"A44-Idempotency-Key": key}, query, extra)

    def send_event(self, body: bytes) -> Answer:
        """Publish one event: a JSON object as the API takes it, which travels byte for byte."""
        return self._call("POST", f"{_API}/events", body)

    def send_events(self, lines: bytes) -> Answer:
        """Publish many events, one JSON object a line; `results` tells of each, in this order."""
        return self._call("POST", f"{_API}/events", lines, {"Content-Type": "application/x-ndjson"})

    def runs(self, *, limit: int, filters: Mapping[str, str]) -> dict[str, Any]:
        """Up to `limit` runs over as many pages as that takes; `total` counts all that match."""
        listed = self._pages("/runs", "runs", limit, filters)
        return {"total": listed.pop("total", len(listed["runs"])), **listed}

    def show(self, run_id: str) -> Answer:
        """The run's document; its text holds every number as it was recorded."""
        return self._call("GET", f"{_API}/runs/{quote(run_id, safe='')}")

    def dead_letter_stats(self, query: Mapping[str, str]) -> dict[str, Any]:
        return self._object("GET", "/dead-letters/stats", query=query)

    def dead_letters(self, *, limit: int, filters: Mapping[str, str]) -> dict[str, Any]:
        """Up to `limit` dead letters over as many pages as that takes."""
        return self._pages("/dead-letters", "dead_letters", limit, filters)

    def dead_letter(self, dead_letter_id: str, query: Mapping[str, str]) -> Answer:
        """The letter's document; its text holds every number as it was sent."""
        return self._call("GET", f"{_API}/dead-letters/{quote(dead_letter_id, safe='')}", query=query)

    def redrive(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Order that dead letters run again, or ask what would come of it."""
        return self._object("POST", "/dead-letters/redrive", json.dumps(dict(fields), ensure_ascii=False).encode())

    def redrives(self, *, limit: int, filters: Mapping[str, str]) -> dict[str, Any]:
        """Up to `limit` orders to redrive, with their progress."""
        return self._pages("/dead-letters/redrives", "redrives", limit, filters)

    def stop_redrive(self, redrive_id: str, reason: str) -> dict[str, Any]:
        """End an order; what it has redriven stays."""
        body = json.dumps({"reason": reason}, ensure_ascii=False).encode()
        return self._object("POST", f"/dead-letters/redrives/{quote(redrive_id, safe='')}/stop", body)

    def projects(self, *, limit: int) -> dict[str, Any]:
        """Up to `limit` known projects with the figures that are their own."""
        return self._pages("/projects", "projects", limit, {})

    def project(self, project_id: str) -> dict[str, Any]:
        return self._object("GET", f"/projects/{quote(project_id, safe='')}")

    def set_project(self, project_id: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Set figures of a project; None takes the installation's."""
        body = json.dumps(dict(fields), ensure_ascii=False).encode()
        return self._object("POST", f"/projects/{quote(project_id, safe='')}", body)

    def cancel(self, run_id: str, reason: str | None = None) -> dict[str, Any]:
        body = json.dumps({"reason": reason} if reason else {}).encode()
        return self._object("POST", f"/runs/{quote(run_id, safe='')}/cancel", body)

    def log(self, run_id: str, *, follow: bool, until: float | None = None) -> Iterator[StreamEvent]:
        """The run's records, then `end` once it has ended. A stream that is cut goes on where it stopped.

        `until` (on `time.monotonic`) ends the following without an `end`.
        """
        path = f"{_API}/runs/{quote(run_id, safe='')}/log?follow={'true' if follow else 'false'}"
        headers = self._headers({"Accept": "text/event-stream"})
        if follow:
            return EventStream(self._exchange, path, headers, refusal).events(until)
        reply = self._exchange.send("GET", path, None, headers)
        if reply.status != _OK:
            raise refusal(reply)
        return parse(line.rstrip("\r") for line in reply.body.decode("utf-8").split("\n"))

    def tail(self, filters: Mapping[str, str], last_id: str = "") -> Iterator[StreamEvent]:
        """Events as they are taken, without end: `begin`, then each as `event`; behind `last_id` where one is told."""
        path = f"{_API}/events" + (f"?{urlencode(filters)}" if filters else "")
        headers = self._headers({"Accept": "text/event-stream"})
        return EventStream(self._exchange, path, headers, refusal, last_id).events(None)

    def sign(self, trigger_id: str, body: bytes, timestamp: str | None = None, key: str | None = None) -> Signed:
        """Ask the service to sign exact bytes as the trigger's sender would; the secret stays there.

        `timestamp` (Unix seconds) signs for another moment than now; `key` is the delivery's.
        """
        query = {name: value for name, value in (("timestamp", timestamp), ("key", key)) if value is not None}
        document = self._object("POST", f"/triggers/{quote(trigger_id, safe='')}/sign", body, query=query)
        path = document.pop("path", None)
        if path is None or not document:
            raise Broken("E_INTERNAL", "the service signed the body but its answer lacks the path or the headers")
        return Signed(path, {name: str(value) for name, value in document.items()})

    def rotate(self, trigger_id: str, end: str | None = None) -> dict[str, Any]:
        """Make a webhook trigger's next secret, which the answer tells this once."""
        body = json.dumps({} if end is None else {"end": end}).encode()
        return self._object("POST", f"/triggers/{quote(trigger_id, safe='')}/rotate", body)

    def deliver(self, signed: Signed, body: bytes) -> Answer:
        """POST exact bytes to a hook; refusals raise as everywhere."""
        headers = {"Content-Type": "application/json", **signed.headers}
        return _answer(self._exchange.send("POST", signed.path, body, headers))

    def _headers(self, extra: Mapping[str, str]) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}", "Accept": "application/json", **extra}

    def _call(  # one place where a request is put together
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        wait: float = 0.0,
    ) -> Answer:
        target = f"{path}?{urlencode(query)}" if query else path
        extra = dict(headers or {})
        if body is not None:
            extra.setdefault("Content-Type", "application/json")
        return _answer(self._exchange.send(method, target, body, self._headers(extra), wait=wait))

    def _object(
        self, method: str, path: str, body: bytes | None = None, query: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        document = self._call(method, _API + path, body, query=query).document
        if not isinstance(document, dict):
            raise _unreadable(f"an object was expected at {path}, not {type(document).__name__}")
        return document

    def _pages(self, path: str, name: str, limit: int, filters: Mapping[str, str]) -> dict[str, Any]:
        """The last page's document, with the rows of all of them."""
        found: list[Any] = []
        after: str | None = None
        while True:
            query = {**filters, "limit": str(limit - len(found))} | ({"after": after} if after else {})
            page = self._object("GET", path, query=query)
            rows = page.get(name)
            if not isinstance(rows, list):
                raise _unreadable(f"a list of {name} was expected")
            found.extend(rows)
            after = page.get("next")
            if after is None or not rows or len(found) >= limit:
                return {**page, name: found[:limit], "next": after}

    def _list(self, path: str) -> list[dict[str, Any]]:
        document = self._call("GET", _API + path).document
        if not isinstance(document, list):
            raise _unreadable(f"a list was expected at {path}, not {type(document).__name__}")
        return document


def _answer(reply: Reply) -> Answer:
    if reply.status >= 300:  # noqa: PLR2004  the first status that is not a success
        raise refusal(reply)
    try:
        text = reply.body.decode("utf-8")
        return Answer(reply.status, json.loads(text), text)
    except ValueError as exc:
        raise _unreadable("the answer is not JSON") from exc


def refusal(reply: Reply) -> AutomationError:
    """The error that an answer stands for: its problem document, or what its status says."""
    try:
        problem = json.loads(reply.body)
    except ValueError:
        problem = None
    if not isinstance(problem, dict) or not isinstance(problem.get("code"), str):
        return _without_problem(reply)
    return error_of(problem, reply.status)


def error_of(problem: Mapping[str, Any], status: int) -> AutomationError:
    """The error that a problem document stands for, also where it is one of many in an answer."""
    details = {name: value for name, value in problem.items() if name not in ("code", "detail")}
    details["status"] = status
    message = str(problem.get("detail") or problem.get("title") or "the service gave no reason")
    return _class_for(status)(str(problem.get("code")), message, details=details)


def _class_for(status: int) -> type[AutomationError]:
    if status in (429, 502, 503, 504):
        return Unavailable
    return Broken if status >= 500 else Refused  # noqa: PLR2004  the first status that is the server's fault


def _without_problem(reply: Reply) -> AutomationError:
    kind = _class_for(reply.status)
    code = {Unavailable: "E_UNAVAILABLE", Broken: "E_INTERNAL"}.get(kind) or (
        "E_NOT_FOUND" if reply.status == 404 else "E_INVALID_PARAMETER"  # noqa: PLR2004  Not Found
    )
    message = f"the answer {reply.status} is not one of the automation service: is this its address?"
    return kind(code, message, details={"status": reply.status})


def _unreadable(seen: str) -> Broken:
    """A success that makes no sense; told as a bad gateway is."""
    return Broken("E_INTERNAL", f"{seen}: is this the address of the automation service?", details={"status": 502})
