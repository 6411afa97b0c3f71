"""The action behind `connector/...`: one attempt is one request of a connector's operation.

Redirects are off, cookies are not kept, proxies of the environment are not used. The step's idempotency
key goes out with every attempt, so a partner can tell a second try from a second order.
"""

import asyncio
import base64
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import (
    ClientConnectorCertificateError,
    ClientConnectorDNSError,
    ClientError,
    ClientPayloadError,
    ClientResponseError,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    InvalidURL,
    ServerDisconnectedError,
    TCPConnector,
    hdrs,
)
from multidict import CIMultiDict
from yarl import URL

from processors.adapters.http.answers import read_answer
from processors.adapters.http.egress import CheckedResolver, Egress
from processors.ports.actions import ActionCall, StepFailure
from processors.ports.secrets import Secrets
from schemas import strict_json
from schemas.errors import Refused
from schemas.records import ErrorInfo
from topology.connectors import ConnectorSpec, SecretUrl, check_base_url
from topology.steps import ConnectorStep

FindConnector = Callable[[str, str], Awaitable[ConnectorSpec]]

_AGENT = "anthares44-automation"
_NO_TIMEOUT = ClientTimeout(total=None, sock_connect=None)
_MIN_TLS = ssl.TLSVersion.TLSv1_2


class HttpConnector:
    """An `Action`. `find_connector` gives the connector that is in force for (project, connector id)."""

    def __init__(self, session: ClientSession, egress: Egress, find_connector: FindConnector, secrets: Secrets) -> None:
        self._session = session
        self._egress = egress
        self._find_connector = find_connector
        self._secrets = secrets

    async def __call__(self, call: ActionCall) -> str:
        if not isinstance(call.spec, ConnectorStep):
            raise TypeError(f"{call.spec.uses} is no operation of a connector")
        target = call.spec.target
        connector = await self._find_connector(call.project_id, target.connector_id)
        operation = connector.operations.get(target.operation)
        if operation is None:
            raise _unknown_operation(connector, target.operation)
        what = f"{operation.method} {target.operation} of {connector.id}"
        limit = min(call.timeout, connector.timeout_of(target.operation))
        try:
            async with asyncio.timeout(limit):
                return await self._request(call, call.spec, connector, what)
        except InvalidURL as exc:
            raise Refused("E_CONFIG", f"{what}: the base URL of {connector.id} cannot be used") from exc
        except TimeoutError as exc:
            raise StepFailure(_timeout_error(what, limit)) from exc
        except (ClientError, OSError) as exc:
            raise StepFailure(_unreachable_error(what, exc)) from exc

    async def _request(self, call: ActionCall, step: ConnectorStep, connector: ConnectorSpec, what: str) -> str:
        scope = call.scope if step.arguments is None else {**call.scope, "input": step.arguments.render(call.scope)}
        request = connector.operations[step.target.operation].render(scope)
        url = self._url(call.project_id, connector, request.target)
        headers = self._headers(call, connector, request.headers)
        data = None
        if request.has_body:
            data = _json_bytes(request.body)
            headers.setdefault(hdrs.CONTENT_TYPE, "application/json")
        async with self._session.request(
            request.method, url, data=data, headers=headers, allow_redirects=False
        ) as response:
            return await read_answer(response, what, connector.retry_on)

    def _url(self, project_id: str, connector: ConnectorSpec, target: str) -> URL:
        base = connector.base_url
        if isinstance(base, SecretUrl):
            base = _checked_secret_url(base.secret_ref, self._secrets.get(project_id, base.secret_ref))
        root = URL(base)
        self._egress.check_host(root.host or "")
        return URL(str(root).rstrip("/") + target, encoded=True)

    def _headers(self, call: ActionCall, connector: ConnectorSpec, declared: Mapping[str, str]) -> CIMultiDict[str]:
        headers = CIMultiDict({hdrs.ACCEPT: "application/json"})
        headers.update(declared)
        headers["Idempotency-Key"] = call.idempotency_key
        auth = connector.auth
        if auth is None:
            return headers
        secret = _header_secret(auth.secret_ref, self._secrets.get(call.project_id, auth.secret_ref))
        if auth.kind == "header" and auth.header is not None:
            headers[auth.header] = secret
        elif auth.kind == "basic":
            pair = f"{auth.username}:{secret}".encode()
            headers[hdrs.AUTHORIZATION] = "Basic " + base64.b64encode(pair).decode("ascii")
        else:
            headers[hdrs.AUTHORIZATION] = f"Bearer {secret}"
        return headers


@asynccontextmanager
async def open_http_connector(
    find_connector: FindConnector, secrets: Secrets, *, allow_private_egress: bool = False
) -> AsyncIterator[HttpConnector]:
    """The connector with its one session. How many requests go on at once is the executor's to bound."""
    egress = Egress(allow_private=allow_private_egress)
    context = ssl.create_default_context()
    context.minimum_version = _MIN_TLS
    async with ClientSession(
        connector=TCPConnector(limit=0, resolver=CheckedResolver(egress), ssl=context),
        cookie_jar=DummyCookieJar(),
        headers={hdrs.USER_AGENT: _AGENT, hdrs.ACCEPT_ENCODING: "identity"},
        timeout=_NO_TIMEOUT,
        trust_env=False,
    ) as session:
        yield HttpConnector(session, egress, find_connector, secrets)


def _unknown_operation(connector: ConnectorSpec, name: str) -> Refused:
    known = ", ".join(sorted(connector.operations))
    return Refused("E_CONNECTOR_UNKNOWN", f"{connector.id} has no operation {name}; it has: {known}")


def _json_bytes(value: Any) -> bytes:
    return strict_json.encode(value).encode()


def _checked_secret_url(name: str, value: str) -> str:
    """The reason is left out: it may quote the secret."""
    try:
        return check_base_url(value.strip())
    except ValueError:
        message = f"the secret {name} is no base URL such as https://partner.example/api; set it anew"
        raise Refused("E_CONFIG", message) from None


def _header_secret(name: str, value: str) -> str:
    text = value.rstrip("\r\n")
    if not text.isprintable():
        message = f"the secret {name} holds a line end or another control character; no header may carry one"
        raise Refused("E_CONFIG", message)
    return text


def _timeout_error(what: str, limit: float) -> ErrorInfo:
    return ErrorInfo("E_UPSTREAM_TIMEOUT", "UpstreamTimeout", f"{what} was not answered within {limit:g} s")


def _unreachable_error(what: str, exc: ClientError | OSError) -> ErrorInfo:
    return ErrorInfo("E_UPSTREAM_UNREACHABLE", "UpstreamUnreachable", f"{what}: {_reason(exc)}")


def _reason(exc: ClientError | OSError) -> str:
    """In our words: the library's would name the address, which may be a secret."""
    for kind, text in _REASONS:
        if isinstance(exc, kind):
            return text
    number = exc.errno if isinstance(exc, OSError) else None
    return f"no connection ({os.strerror(number) if number else type(exc).__name__})"


_REASONS: tuple[tuple[type[Exception], str], ...] = (
    (ClientConnectorDNSError, "the host's name cannot be resolved"),
    (ClientConnectorCertificateError, "the host's certificate is not valid for it"),
    (ServerDisconnectedError, "the host closed the connection without an answer"),
    (ClientPayloadError, "the connection broke while the answer was read"),
    (ClientResponseError, "the answer is not HTTP"),
)
