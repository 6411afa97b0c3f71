"""A small real HTTP server that keeps to the REST surface, for tests of the command line.

It signs, verifies, deduplicates and streams as the service does; a test can make it fail on purpose.
"""

import hashlib
import hmac
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from schemas.errors import CODES

TOKEN = "a44_known-token"
SECRET = b"\x07" * 32
PROJECT = "pj_shop"
RUN = "run_01J9XQ7M4K00000000000000AA"
EVENT_TYPE = {"event_type": "order.paid", "version": 2, "words": "json-schema", "compatibility": "backward"}


@dataclass
class Seen:
    """One request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


@dataclass
class State:
    """What the service holds, and how it is told to misbehave."""

    seen: list[Seen] = field(default_factory=list)
    keys: dict[str, tuple[str, float]] = field(default_factory=dict)
    runs: list[dict[str, Any]] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    late: list[dict[str, Any]] = field(default_factory=list)
    end_state: str | None = "succeeded"
    live_state: str = "running"
    result_text: str = '{"ok":true}'
    cut_stream_after: int | None = None
    error_event_once: bool = False
    answers: dict[str, tuple[int, bytes, str]] = field(default_factory=dict)
    answers_after: dict[str, tuple[int, tuple[int, bytes, str]]] = field(default_factory=dict)
    close_after_next: bool = False
    page: int = 2
    busy: dict[str, int] = field(default_factory=dict)
    rotations: int = 0

    def paths(self, method: str = "POST") -> list[str]:
        return [seen.path for seen in self.seen if seen.method == method]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: State

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name is the library's
        """Quiet: tests read what the command prints."""

    def do_GET(self) -> None:
        self._route("GET")

    def do_POST(self) -> None:
        self._route("POST")

    def _route(self, method: str) -> None:
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        request = Seen(method, parts.path, query, {k.lower(): v for k, v in self.headers.items()}, body)
        self.state.seen.append(request)
        after, late = self.state.answers_after.get(parts.path, (0, None))
        is_late = late is not None and [seen.path for seen in self.state.seen].count(parts.path) > after
        prepared = late if is_late else self.state.answers.get(parts.path)
        if prepared is not None:
            self._raw(*prepared)
        elif parts.path.startswith("/v1/automation/"):
            self._api(request)
        else:
            self._hook(request)
        if self.state.close_after_next:
            self.state.close_after_next = False
            self.close_connection = True

    def _api(self, request: Seen) -> None:
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            self._problem("E_TOKEN", "the token is not known")
            return
        name = request.path.removeprefix("/v1/automation/")
        handlers: dict[str, Callable[[Seen], None]] = {
            "whoami": lambda _: self._json(
                200, {"project_id": PROJECT, "token_id": "tok_1", "scopes": ["automation:write"]}
            ),
            "publish": self._publish,
            "events": self._event,
            "workflows": lambda _: self._json(
                200,
                [{"workflow_id": "wf_x", "version": "3", "kind": "yaml", "published_at": "2026-07-19T14:02:11Z"}],
            ),
            "triggers": lambda _: self._json(
                200, [{"trigger_id": "trg_x", "type": "webhook", "workflow_id": "wf_x", "version": "latest"}]
            ),
            "triggers/trg_x/misses": lambda _: self._json(
                200, [{"event_id": "evt_1", "event_type": "a.b", "idempotency_key": "k"}]
            ),
            "triggers/test": self._test,
            "event-types": lambda _: self._json(200, [EVENT_TYPE]),
            "event-types/order.paid": lambda _: self._json(200, {**EVENT_TYPE, "schema": {"type": "object"}}),
            "runs": self._runs,
        }
        handler = handlers.get(name) or self._nested(name)
        if handler is None:
            self._problem("E_NOT_FOUND", f"there is nothing at {request.path}")
            return
        handler(request)

    def _nested(self, name: str) -> Callable[[Seen], None] | None:
        kind, _, rest = name.partition("/")
        match kind, rest.rpartition("/")[2], rest:
            case "triggers", ("sign" | "rotate") as wish, _:
                do = self._sign if wish == "sign" else self._rotate
                return lambda request: do(request, rest.removesuffix(f"/{wish}"))
            case "workflows", "runs", _:
                return self._start
            case "runs", "log", _:
                return self._log
            case "runs", "cancel", _:
                return lambda _: self._json(202, {"run_id": RUN, "status": "cancelling"})
        return self._one_run(rest) if kind == "runs" else None

    def _one_run(self, run_id: str) -> Callable[[Seen], None]:
        if run_id == RUN:
            return lambda _: self._document()
        return lambda _: self._problem("E_RUN_NOT_FOUND", f"{run_id} is no run of this project")

    def _test(self, request: Seen) -> None:
        told = {"trigger_id": "trg_x", "workflow_id": "wf_x", "fires": True, "why": "it starts a run", "version": "3"}
        other = {
            "trigger_id": "trg_y",
            "workflow_id": "wf_x",
            "fires": False,
            "why": "too old",
            "code": "E_EVENT_TOO_OLD",
        }
        schema = {"version": 2, "fits": False, "code": "E_EVENT_SCHEMA", "why": "too small", "path": "/n"}
        event_type = json.loads(request.body)["type"]
        self._json(200, {"event_type": event_type, "schema": schema, "triggers": [told, other]})

    def _publish(self, request: Seen) -> None:
        files = json.loads(request.body)["files"]
        published = [{"kind": "workflow", "id": "wf_x", "version": "1", "change": "created"}]
        hooks = [{"trigger_id": "trg_x", "path": f"/v1/{PROJECT}/trg_x", "secret": SECRET.hex()}]
        self._json(200, {"published": published, "warnings": [f"{len(files)} files"], "webhooks": hooks})

    def _runs(self, request: Seen) -> None:
        state = request.query.get("state")
        found = [run for run in self.state.runs if state in (None, run["state"])]
        ids = [run["run_id"] for run in found]
        start = ids.index(request.query["after"]) + 1 if "after" in request.query else 0
        page = found[start : start + min(int(request.query["limit"]), self.state.page)]
        more = bool(page) and ids.index(page[-1]["run_id"]) + 1 < len(found)
        self._json(200, {"total": len(found), "runs": page, "next": page[-1]["run_id"] if more else None})

    def _sign(self, request: Seen, trigger: str) -> None:
        if trigger != "trg_x":
            self._problem("E_TRIGGER_NOT_FOUND", f"{trigger} is no webhook trigger of this project")
            return
        timestamp = request.query.get("timestamp") or str(int(time.time()))
        signature = hmac.new(SECRET, timestamp.encode() + b"." + request.body, hashlib.sha256).hexdigest()
        path = f"/v1/{PROJECT}/{trigger}"
        key = {"A44-Idempotency-Key": request.query["key"]} if "key" in request.query else {}
        self._json(200, {"A44-Timestamp": timestamp, "A44-Signature": signature, **key, "path": path})

    def _rotate(self, request: Seen, trigger: str) -> None:
        end = json.loads(request.body).get("end")
        number, self.state.rotations = self.state.rotations + 2, self.state.rotations + 1
        if number > 2 and end is None:
            self._problem("E_ROTATION_UNDERWAY", f"{trigger} has two secrets")
            return
        until = None if end == "old" else "2026-12-02T08:04:11.123456Z"
        told = {"secret_number": number, "secret": f"{number:064x}", "old_secret_ends_at": until}
        self._json(200, {"trigger_id": trigger, "path": f"/v1/{PROJECT}/{trigger}", **told})

    def _hook(self, request: Seen) -> None:
        timestamp = request.headers.get("a44-timestamp", "")
        expected = hmac.new(SECRET, timestamp.encode() + b"." + request.body, hashlib.sha256).hexdigest()
        if not hmac.compare_digest(expected, request.headers.get("a44-signature", "")):
            self._problem("E_SIGNATURE", "the signature does not fit")
        elif abs(time.time() - int(timestamp)) > 300:
            self._problem("E_TIMESTAMP_SKEW", "sign again")
        else:
            self._accept(request.headers.get("a44-idempotency-key") or hashlib.sha256(request.body).hexdigest())

    def _event(self, request: Seen) -> None:
        if request.headers.get("content-type") != "application/x-ndjson":
            status, document = self._decided(request.body)
            self._raw(*prepared(document, status))
            return
        results = []
        for line in request.body.split(b"\n"):
            status, document = self._decided(line)
            is_taken = status < 300
            results.append(document if is_taken else {"status": "refused", "error": {**document, "status": status}})
        self._json(207, {"results": results})

    def _decided(self, body: bytes) -> tuple[int, dict[str, Any]]:
        event = json.loads(body)
        key = event.get("idempotency_key") or hashlib.sha256(body).hexdigest()
        if not event["type"]:
            return 422, {"code": "E_ENVELOPE_INVALID", "detail": "type is empty"}
        if self.state.busy.get(key):
            self.state.busy[key] -= 1
            return 429, {"code": "E_OVERLOADED", "detail": "much to do", "retry_after": 7}
        if key in self.state.keys:
            return 200, {"event_id": "evt_1", "status": "deduplicated", "key_age_seconds": 0.1}
        self.state.keys[key] = ("", time.monotonic())
        return 202, {"event_id": "evt_1", "status": "created", "key_source": "body"}

    def _start(self, request: Seen) -> None:
        key = request.headers.get("a44-idempotency-key")
        if key is None:
            self._problem("E_IDEMPOTENCY_KEY_REQUIRED", "a run by hand needs a key")
        elif "wait" in request.query and self.state.end_state is not None and not self.state.records:
            self._document()
        else:
            self._accept(key)

    def _accept(self, key: str) -> None:
        if key in self.state.keys:
            run_id, first = self.state.keys[key]
            age = round(time.monotonic() - first, 3)
            answer = {"run_id": run_id, "status": "deduplicated", "state": "running", "key_age_seconds": age}
            self._json(200, answer)
            return
        self.state.keys[key] = (RUN, time.monotonic())
        self._json(202, {"run_id": RUN, "status": "created", "key_source": "header"})

    def _document(self) -> None:
        state = self.state.end_state or self.state.live_state
        head = {"run_id": RUN, "workflow_id": "wf_x", "version": "3", "state": state, "where": "Where it is.",
                "started_at": "2026-07-19T14:02:11.884000Z"}  # fmt: skip
        error = {"error_code": "E_UPSTREAM_503"} if state == "failed" else {}
        text = json.dumps(
            {**head, **error, "attempts": self.state.records, "late_attempts": self.state.late, "input": {}}
        )
        body = text.removesuffix("}") + f',"result":{self.state.result_text}}}'
        self._raw(200, body.encode(), "application/json")

    def _log(self, request: Seen) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        last = request.headers.get("last-event-id")
        for number, piece in enumerate(self._pieces(int(last.partition(".")[2]) if last else 0)):
            if number == self.state.cut_stream_after:
                self.state.cut_stream_after = None
                self._chunk(piece[:20])  # cut in the middle of an event
                self.close_connection = True
                return
            self._chunk(piece)
        if self.state.end_state is not None:
            self._chunk(f'event: end\ndata: {{"state":"{self.state.end_state}","ended":true}}\n\n')
        self.wfile.write(b"0\r\n\r\n")

    def _pieces(self, after: int) -> Iterator[str]:
        yield ": ping\n\n"
        for record in self.state.records[after:]:
            if self.state.error_event_once and record["seq"] == 2:
                self.state.error_event_once = False
                yield 'event: error\ndata: {"code":"E_UNAVAILABLE","detail":"Postgres is away"}\n\n'
            yield f"id: 1.{record['seq']}\nevent: record\ndata: {json.dumps(record)}\n\n"

    def _chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _problem(self, code: str, detail: str) -> None:
        document = {"type": f"/errors/{code}", "title": CODES[code].title, "status": CODES[code].status}
        body = json.dumps({**document, "detail": detail, "code": code, "request_id": "req_1"}).encode()
        self._raw(CODES[code].status, body, "application/problem+json")

    def _json(self, status: int, document: object) -> None:
        self._raw(status, json.dumps(document).encode(), "application/json")

    def _raw(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@dataclass(frozen=True)
class RestService:
    url: str
    state: State


class Server(ThreadingHTTPServer):
    """A caller that leaves in the middle is nobody's fault; any other failure is kept for the end of the test."""

    daemon_threads = True

    def __init__(self, state: State) -> None:
        super().__init__(("127.0.0.1", 0), type("BoundHandler", (Handler,), {"state": state}))
        self.failures: list[BaseException] = []

    def handle_error(self, request: object, client_address: object) -> None:
        error = sys.exception()
        if error is not None and not isinstance(error, ConnectionError):
            self.failures.append(error)


@contextmanager
def running_rest_service() -> Iterator[RestService]:
    state = State()
    server = Server(state)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield RestService(f"http://127.0.0.1:{server.server_port}", state)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert not server.failures


def prepared(document: object, status: int = 200) -> tuple[int, bytes, str]:
    """An answer of `State.answers`."""
    return status, json.dumps(document).encode(), "application/json"


def record(seq: int, step: str, status: str = "succeeded", **more: Any) -> dict[str, Any]:
    """One attempt as the log tells it."""
    times = {"started_at": "2026-07-19T14:02:11.884000Z", "finished_at": "2026-07-19T14:02:12.284000Z"}
    return {
        "seq": seq,
        "generation": 1,
        "kind": "step",
        "step_id": step,
        "attempt": 1,
        "status": status,
        **times,
        **more,
    }
