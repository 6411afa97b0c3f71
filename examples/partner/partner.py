"""A partner's service for the examples: payments, tenants and databases over HTTP, with bad minutes.

It honours `Idempotency-Key`, keeps a list of everything it was asked (`GET /log`), and answers every n-th new
key with 503 the first time. Prints its address as one JSON line.

    python partner.py --fail-every 9
"""

import argparse
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Books:
    """What the partner remembers. An effect is applied once a key, however often it is asked for."""

    def __init__(self, fail_every):
        self.fail_every = fail_every
        self.lock = threading.Lock()
        self.keys, self.answers, self.log = [], {}, []

    def ask(self, method, path, key, body):
        """Status and answer of one request."""
        with self.lock:
            key = key or f"{method} {path}"
            first = key not in self.keys
            if first:
                self.keys.append(key)
            failing = first and self.fail_every and len(self.keys) % self.fail_every == 0
            status = 503 if failing else 200
            if not failing and key not in self.answers:
                self.answers[key] = self.apply(method, path, body)
            self.log.append({"method": method, "path": path, "key": key, "status": status, "body": body})
            return status, {"error": "try again"} if failing else self.answers[key]

    def apply(self, method, path, body):
        number = len(self.answers) + 1
        if path.startswith("/authorizations/"):
            return {"id": f"auth_{number:05}", "invoiceId": path.rsplit("/", 1)[1]}
        if path == "/tenants":
            return {"id": f"ten_{number:05}", "name": body["name"], "db_id": f"db_{number:05}"}
        return {"ok": True, "id": f"thing_{number:05}"}


def handler(books):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self):
            size = int(self.headers.get("content-length") or 0)
            raw = self.rfile.read(size)
            if self.command == "GET":
                with books.lock:
                    status, told = 200, list(books.log)
            else:
                body = json.loads(raw) if raw else None
                status, told = books.ask(self.command, self.path, self.headers.get("Idempotency-Key"), body)
            data = json.dumps(told).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = answer

        def log_message(self, *arguments):
            """The log is kept in memory, for `GET /log`."""

    return Handler


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--fail-every", type=int, default=0)
    options = parser.parse_args()
    server = Server(("127.0.0.1", options.port), handler(Books(options.fail_every)))
    print(json.dumps({"url": f"http://127.0.0.1:{server.server_address[1]}"}), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
