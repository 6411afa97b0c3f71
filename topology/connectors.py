"""Connectors of type `http`: where a partner is, how it is asked, which answers are worth another try.

An operation renders a request in which inserted data can change neither the path nor the headers' shape.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self
from urllib.parse import quote, urlencode, urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, StrictInt, StrictStr, model_validator

from schemas.errors import Refused
from topology.expressions import STEP_VARIABLES
from topology.shapes import ConnectorId, Line, SecretId, Spec, Timeout, fault, templates_with
from topology.templates import Template, compile_template, has_template, text_of

RETRY_ON = (408, 429, 500, 502, 503, 504)
DEFAULT_TIMEOUT = 20.0

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_LITERAL_PATH = re.compile(r"[A-Za-z0-9/._~!$&'()*+,;=:@%-]*")
_TEMPLATE = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_CONTROL = re.compile("[\x00-\x1f\x7f]")
_OWN_HEADERS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer", "idempotency-key"}
)


@dataclass(frozen=True, slots=True)
class Request:
    """A rendered request. `target` is the encoded path with its query; `body` is JSON data, if `has_body`."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: Any
    has_body: bool


class SecretUrl(Spec):
    """A base URL that is kept with the secrets, because it differs from place to place."""

    secret_ref: SecretId


def check_base_url(url: str) -> str:
    """The URL without its closing slash. Raises ValueError where it is not a plain http(s) address."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"it cannot be read as a URL: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError("a base URL looks like `https://partner.example/api`")
    if parts.username is not None or parts.password is not None:
        raise ValueError("a base URL carries no credentials; use `auth` with `secretRef`")
    if parts.query or parts.fragment or "?" in url or "#" in url:
        raise ValueError("a base URL has no query and no fragment; use `query` of the operation")
    if _CONTROL.search(url) or any(character.isspace() or character == "\\" for character in url):
        raise ValueError("a base URL holds no spaces, backslashes or control characters")
    return url.rstrip("/")


def _base_url(value: object) -> object:
    if isinstance(value, str):
        if has_template(value):
            raise fault("a base URL takes no templates; keep what differs in a secret: {secretRef: sec_...}")
        try:
            return check_base_url(value)
        except ValueError as error:
            raise fault(str(error)) from error
    return value if isinstance(value, SecretUrl) else SecretUrl.model_validate(value)


class Auth(Spec):
    """How a request proves who sends it; the secret itself is named only."""

    kind: Literal["bearer", "basic", "header"]
    secret_ref: SecretId
    header: Line | None = None
    username: Line | None = None

    @model_validator(mode="before")
    @classmethod
    def _later_kinds(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and value.get("kind") == "oauth2-client-credentials":
            found = "`oauth2-client-credentials` is not available in this version; bearer, basic and header are"
            raise fault(found, path=("kind",))
        return value

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if (self.kind == "header") != (self.header is not None):
            raise fault("`header` names the header of kind `header`, and of no other")
        if (self.kind == "basic") != (self.username is not None):
            raise fault("`username` belongs to kind `basic`, and to no other")
        if self.header is not None:
            check_header_name(self.header, may_authorize=True)
        return self


def check_header_name(name: str, *, may_authorize: bool = False) -> None:
    """Raises a validator's fault for a name that is no header, or that the platform sets itself."""
    if not _HEADER_NAME.fullmatch(name):
        raise fault(f"`{name[:80]}` is not a header's name")
    if name.lower() in _OWN_HEADERS:
        raise fault(f"the header `{name}` is set by the platform; remove it")
    if name.lower() == "authorization" and not may_authorize:
        raise fault("credentials do not stand in a definition; use `auth` with `secretRef`")


def _check_headers(headers: dict[str, str]) -> dict[str, str]:
    seen: set[str] = set()
    for name, value in headers.items():
        check_header_name(name)
        if name.lower() in seen:
            raise fault(f"the header `{name}` stands twice", path=(name,))
        seen.add(name.lower())
        if _CONTROL.search(value):
            raise fault("control characters cannot stand in a header", path=(name,))
    return headers


def _check_path(path: str) -> str:
    literal = _TEMPLATE.sub("x", path)
    if not path.startswith("/") or path.startswith("//"):
        raise fault("a path begins with one `/`")
    if not _LITERAL_PATH.fullmatch(literal):
        raise fault("a path holds only characters of URLs, percent-encoded where needed; `?` belongs in `query`")
    if _has_dot_segment(literal):
        raise fault("`.` and `..` cannot be segments of a path")
    return path


def _has_dot_segment(path: str) -> bool:
    return any(segment in (".", "..") for segment in path.lower().replace("%2e", ".").split("/"))


def _encode_segment(text: str) -> str:
    if not text:
        raise Refused("E_EXPRESSION", "an empty value in a path would ask for something else")
    return quote(text, safe="")


StepTemplates = templates_with(STEP_VARIABLES)
Headers = Annotated[dict[str, StrictStr], AfterValidator(_check_headers), StepTemplates]
QueryValue = StrictStr | StrictInt | bool | float | list[Any] | None


class OperationSpec(Spec):
    """One call that the connector offers. Templates see `input`: what the step gives it."""

    later: ClassVar[frozenset[str]] = frozenset({"retryOn", "expect", "result"})

    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] = "POST"
    path: Annotated[StrictStr, AfterValidator(_check_path), StepTemplates]
    headers: Headers = Field(default_factory=dict)
    query: Annotated[dict[str, QueryValue], StepTemplates] = Field(default_factory=dict)
    body: Annotated[Any, StepTemplates] = None
    timeout: Timeout | None = None

    @model_validator(mode="after")
    def _check_body(self) -> Self:
        if self.body is not None and self.method in ("GET", "HEAD"):
            raise fault(f"a {self.method} request carries no body", path=("body",))
        return self

    @cached_property
    def _path(self) -> Template:
        return compile_template(self.path, STEP_VARIABLES, encode=_encode_segment)

    @cached_property
    def _headers(self) -> Template:
        return compile_template(self.headers, STEP_VARIABLES)

    @cached_property
    def _query(self) -> Template:
        return compile_template(self.query, STEP_VARIABLES)

    @cached_property
    def _body(self) -> Template:
        return compile_template(self.body, STEP_VARIABLES)

    def render(self, scope: Mapping[str, Any]) -> Request:
        """The request for a scope. Raises Refused E_EXPRESSION."""
        path = self._path.render(scope)
        if _has_dot_segment(path) or path.startswith("//"):
            raise Refused("E_EXPRESSION", "a value would turn the path into another one (`.`, `..` or `//`)")
        query = _encode_query(self._query.render(scope)) if self.query else ""
        headers = {name: _header_text(name, value) for name, value in self._headers.render(scope).items()}
        has_body = self.body is not None
        body = self._body.render(scope) if has_body else None
        return Request(self.method, f"{path}?{query}" if query else path, headers, body, has_body)


def _encode_query(values: Mapping[str, Any]) -> str:
    """Null leaves a parameter out; a list repeats it."""
    pairs: list[tuple[str, str]] = []
    for name, value in values.items():
        items = value if isinstance(value, list) else [value]
        pairs.extend((name, text_of(item)) for item in items if item is not None)
    return urlencode(pairs, quote_via=quote, safe="")


def _header_text(name: str, value: Any) -> str:
    text = text_of(value)
    if _CONTROL.search(text):
        raise Refused("E_EXPRESSION", f"the value of the header `{name}` would hold control characters")
    return text


class ConnectorSpec(Spec):
    """A partner. `retry_on` are the statuses that another try may change."""

    later: ClassVar[frozenset[str]] = frozenset({"circuitBreaker", "network", "rateLimit", "allow", "proxy"})

    id: ConnectorId
    type: Literal["http"]
    base_url: Annotated[str | SecretUrl, BeforeValidator(_base_url)]
    operations: Annotated[dict[str, OperationSpec], Field(min_length=1, max_length=500)]
    retry_on: list[Annotated[StrictInt, Field(ge=400, le=599)]] = Field(default_factory=lambda: list(RETRY_ON))
    timeout: Timeout = DEFAULT_TIMEOUT
    auth: Auth | None = None

    @model_validator(mode="before")
    @classmethod
    def _later_types(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and value.get("type") == "vpn/http":
            raise fault("`vpn/http` is not available in this version; `http` is", path=("type",))
        return value

    def timeout_of(self, operation: str) -> float:
        """Seconds that one request may take."""
        return self.operations[operation].timeout or self.timeout
