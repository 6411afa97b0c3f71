"""HTTP/1.1 over one asyncio stream: a request, its whole reply, and whether another may follow (RFC 9112)."""

import asyncio
import contextlib
import http.client
import io
import ssl
from typing import Self

from anthares44.automation.client.exchange import Address, Reply, Request

_LARGEST_LINE = 64 * 1024
_OK = 200
_WITHOUT_BODY = frozenset({204, 304})


class BrokenReplyError(Exception):
    """What came is no reply of HTTP."""


class Stream:
    def __init__(self, address: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._host = address.authority
        self._reader = reader
        self._writer = writer
        self.is_reusable = False

    @classmethod
    async def open(cls, address: Address, context: ssl.SSLContext | None) -> Self:
        reader, writer = await asyncio.open_connection(address.host, address.port, ssl=context, limit=_LARGEST_LINE)
        return cls(address, reader, writer)

    async def exchange(self, request: Request) -> Reply:
        """Raises ConnectionError and EOFError where the other side has gone, BrokenReplyError."""
        self.is_reusable = False
        try:
            self._writer.write(_head(request, self._host) + (request.body or b""))
            await self._writer.drain()
            return await self._reply()
        except asyncio.IncompleteReadError as exc:
            raise EOFError("the stream ended within a reply") from exc
        except asyncio.LimitOverrunError as exc:
            raise BrokenReplyError(f"a head of more than {_LARGEST_LINE} bytes") from exc

    async def _reply(self) -> Reply:
        status, version, headers = 0, "", http.client.HTTPMessage()
        while status < _OK:  # what is below announces another
            status, version, headers = _read_head(await self._reader.readuntil(b"\r\n\r\n"))
        told = {name.lower(): value for name, value in headers.items()}
        closes = "close" in told.get("connection", "").lower() or version != "HTTP/1.1"
        length = told.get("content-length")
        if status in _WITHOUT_BODY:
            body = b""
        elif "chunked" in told.get("transfer-encoding", "").lower():
            body = await self._chunks()
        elif length is not None:
            body = await self._reader.readexactly(_whole(length, 10))
        else:
            body, closes = await self._reader.read(), True
        self.is_reusable = not closes
        return Reply(status, told, body)

    async def _chunks(self) -> bytes:
        parts = []
        while size := _whole((await self._line()).partition(b";")[0].decode("ascii", "replace"), 16):
            parts.append(await self._reader.readexactly(size))
            if await self._reader.readexactly(2) != b"\r\n":
                raise BrokenReplyError("a chunk is longer than it said")
        while await self._line():  # fields after the last chunk
            pass
        return b"".join(parts)

    async def _line(self) -> bytes:
        return (await self._reader.readuntil(b"\r\n"))[:-2]

    def abort(self) -> None:
        """Close at once, whatever is on its way."""
        self._writer.transport.abort()

    async def aclose(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):  # it was closed from there
            await self._writer.wait_closed()


def _head(request: Request, host: str) -> bytes:
    headers = {"Host": host, **request.headers}
    if request.body is not None:
        headers["Content-Length"] = str(len(request.body))
    lines = [f"{request.method} {request.target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join((*lines, "", "")).encode()


def _read_head(head: bytes) -> tuple[int, str, http.client.HTTPMessage]:
    first, _, rest = head.partition(b"\r\n")
    version, _, told = first.decode("latin-1").partition(" ")
    if not version.startswith("HTTP/1.") or not told[:3].isdigit():
        raise BrokenReplyError(f"it begins with {first[:60]!r}")
    return int(told[:3]), version, http.client.parse_headers(io.BytesIO(rest))


def _whole(text: str, base: int) -> int:
    try:
        number = int(text.strip(), base)
    except ValueError:
        number = -1
    if number < 0:
        raise BrokenReplyError(f"a length of {text[:40]!r}")
    return number
