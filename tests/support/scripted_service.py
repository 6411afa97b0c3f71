"""A real HTTP server that answers as a test tells it, one answer after the other, and keeps what it was sent."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Scripted:
    """One answer; a document of bytes is sent as it is. `is_lost`: the request is taken, the connection closed."""

    status: int = 200
    document: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    is_lost: bool = False
    is_chunked: bool = False


@dataclass(frozen=True)
class Sent:
    """A request as it arrived; names of headers in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    connection: tuple[str, int]


LOST = Scripted(is_lost=True)


def problem(status: int, code: str, detail: str = "why, and what to do", **members: Any) -> Scripted:
    document = {"type": f"/errors/{code}", "title": code, "status": status, "detail": detail, "code": code, **members}
    return Scripted(status, document)


@dataclass
class ScriptedService:
    url: str
    answers: list[Scripted] = field(default_factory=list)
    seen: list[Sent] = field(default_factory=list)

    def script(self, *answers: Scripted) -> None:
        self.answers[:] = answers
        self.seen.clear()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    service: ScriptedService

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name is the library's
        """Quiet."""

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.service.seen.append(Sent(self.command, self.path, headers, body, self.client_address))
        answer = self.service.answers.pop(0)
        if answer.is_lost:
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        told = b"" if answer.document is None else answer.document
        text = told if isinstance(told, bytes) else json.dumps(told).encode()
        self._send_chunked(text) if answer.is_chunked else self._send_whole(text)
        if "close" in answer.headers.get("Connection", ""):
            self.close_connection = True

    def _send_whole(self, body: bytes) -> None:
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _send_chunked(self, body: bytes) -> None:
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        half = len(body) // 2
        for piece in (body[:half], body[half:], b""):
            self.wfile.write(f"{len(piece):x};size=told\r\n".encode() + piece + b"\r\n")

    do_GET = do_POST = _answer  # noqa: N815  names of the library


@contextmanager
def scripted_service() -> Iterator[ScriptedService]:
    handler = type("BoundHandler", (_Handler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    service = ScriptedService(f"http://127.0.0.1:{server.server_port}")
    handler.service = service  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
