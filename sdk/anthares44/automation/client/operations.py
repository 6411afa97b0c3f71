"""What can be asked of the service, as calls: requests are put together and answers read, whoever carries them out."""

import time
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from datetime import datetime
from typing import Any, Literal, TypeAlias
from urllib.parse import quote

from anthares44.automation.client.errors import RunDidNotSucceed, RunNotEnded, ServiceError, ServiceRefused
from anthares44.automation.client.exchange import Address, Call, Pause, Reply, Request
from anthares44.automation.client.retries import Retries, persist
from anthares44.automation.client.signing import KEY, checked_key, checked_secret, webhook_headers
from anthares44.automation.client.texts import Dumps, Loads, plain_json, written

_API = "/v1/automation"
_ENDED = frozenset({"failed", "compensated", "compensation_failed", "cancelled"})
_STANDING = frozenset({"blocked", "awaiting_confirmation"})
_LONGEST_WAIT = 20.0  # a run that is blocked while somebody waits is noticed after this
_POLL = 0.5

CancelStatus: TypeAlias = Literal["cancelling", "cancelled"]


@dataclass(frozen=True, slots=True)
class SentEvent:
    """`key_age_seconds` is None unless the key was used before; `event_id` is then that of the first event."""

    event_id: str
    status: Literal["created", "deduplicated"]
    key_age_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class StartedRun:
    """`state` and `key_age_seconds` are told where the key was used before; `run_id` is then that of the first run."""

    run_id: str
    event_id: str
    status: Literal["created", "deduplicated"]
    state: str | None = None
    key_age_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class SentWebhook:
    """`run_id` is None where the trigger's filter wanted no run: `status` is then `filtered`."""

    status: Literal["created", "deduplicated", "filtered"]
    run_id: str | None = None
    event_id: str | None = None
    state: str | None = None
    key_age_seconds: float | None = None


class Operations:
    """Of a project, by its token."""

    def __init__(self, address: Address, token: str, dumps: Dumps, loads: Loads, retries: Retries) -> None:
        self._address = address
        self._authorization = f"Bearer {checked_secret('the token', token)}"
        self._dumps = dumps
        self._loads = loads
        self._retries = retries

    def send_event(
        self,
        event_type: str,
        data: Any,
        *,
        key: str,
        partition_key: str | None = None,
        occurred_at: datetime | None = None,
        correlation_id: str | None = None,
    ) -> Call[SentEvent]:
        told_of_it = {
            "type": event_type,
            "idempotency_key": checked_key(key),
            "partition_key": partition_key,
            "occurred_at": None if occurred_at is None else _moment(occurred_at),
            "correlation_id": correlation_id,
        }
        body = _object(told_of_it, "data", written(data, self._dumps))
        told = yield from self._told("POST", "/events", body)
        return SentEvent(**_members(told, SentEvent, self._address))

    def start(self, workflow_id: str, run_input: Any, *, key: str, version: str | None = None) -> Call[StartedRun]:
        body = _object({"version": version}, "input", written(run_input, self._dumps))
        path = f"/workflows/{quote(workflow_id, safe='')}/runs"
        told = yield from self._told("POST", path, body, {KEY: checked_key(key)})
        return StartedRun(**_members(told, StartedRun, self._address))

    def result(self, run_id: str, *, timeout: float | None = None) -> Call[Any]:
        started = time.monotonic()
        path = f"/runs/{quote(run_id, safe='')}"
        wait = 0.0  # the first look tells at once what is over
        while True:
            asked = time.monotonic()
            told = yield from self._told("GET", f"{path}?wait={wait:.3f}" if wait else path, wait=wait)
            state = str(told.get("state"))
            if state == "succeeded":
                return told.get("result")
            if state in _ENDED or state in _STANDING:
                raise _unsuccessful(run_id, state, told)
            now = time.monotonic()
            left = _LONGEST_WAIT if timeout is None else timeout - (now - started)
            if left <= 0:
                raise RunNotEnded(run_id, state, timeout or 0.0)
            if now - asked < wait / 2:  # a gateway that stops answers before its time
                yield Pause(min(left, _POLL))
            wait = min(left, _LONGEST_WAIT)

    def cancel(self, run_id: str, *, reason: str | None = None) -> Call[CancelStatus]:
        body = written({} if reason is None else {"reason": reason}, plain_json)
        try:
            yield from self._told("POST", f"/runs/{quote(run_id, safe='')}/cancel", body)
        except ServiceRefused as refused:
            if refused.code == "E_RUN_ENDED" and refused.details.get("state") == "cancelled":
                return "cancelled"  # as it was wished, perhaps by a try whose answer was lost
            raise
        return "cancelling"

    def _told(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        extra: Mapping[str, str] | None = None,
        wait: float = 0.0,
    ) -> Call[dict[str, Any]]:
        headers = {"Authorization": self._authorization, "Accept": "application/json", **(extra or {})}
        if body is not None:
            headers["Content-Type"] = "application/json"
        request = Request(method, f"{self._address.path}{_API}{path}", headers, body, wait)
        reply = yield from persist(lambda: request, self._retries, self._address)
        return _document(reply, self._loads, self._address)


class Hook:
    """Of a webhook trigger, by its secret."""

    def __init__(self, address: Address, secret: str, dumps: Dumps, loads: Loads, retries: Retries) -> None:
        self._address = address
        self._secret = checked_secret("the webhook's secret", secret)
        self._dumps = dumps
        self._loads = loads
        self._retries = retries

    def send(self, payload: Any, *, key: str) -> Call[SentWebhook]:
        body = written(payload, self._dumps)

        def signed() -> Request:
            return Request("POST", self._address.path, webhook_headers(self._secret, body, key=key), body)

        reply = yield from persist(signed, self._retries, self._address)
        told = _document(reply, self._loads, self._address)
        return SentWebhook(**_members(told, SentWebhook, self._address))


def _object(texts: Mapping[str, str | None], name: str, value: bytes) -> bytes:
    """An object of those of these texts that are not None, and of one value that is JSON already."""
    told = {member: text for member, text in texts.items() if text is not None}
    start = written(told, plain_json).removesuffix(b"}")
    return start + (b"," if told else b"") + f'"{name}":'.encode() + value + b"}"


def _moment(at: datetime) -> str:
    if at.tzinfo is None:
        raise ServiceRefused("E_INVALID_PARAMETER", f"occurred_at is {at.isoformat()}; expected a time with its zone")
    return at.isoformat()


def _document(reply: Reply, loads: Loads, address: Address) -> dict[str, Any]:
    try:
        document = loads(reply.body.decode("utf-8"))
    except (ValueError, RecursionError) as exc:
        raise ServiceError(
            "E_JSON_INVALID", f"{address} gave an answer that cannot be read: {exc}", status=reply.status
        ) from exc
    if not isinstance(document, dict):
        raise _unreadable(address, type(document).__name__)
    return document


def _members(
    told: Mapping[str, Any], shape: type[SentEvent | StartedRun | SentWebhook], address: Address
) -> dict[str, Any]:
    """What the shape has room for; what a newer service adds is passed over."""
    if any(not isinstance(told.get(one.name), str) for one in fields(shape) if one.default is MISSING):
        raise _unreadable(address, ", ".join(told) or "an empty object")
    members = {one.name: told[one.name] for one in fields(shape) if one.name in told}
    age = members.get("key_age_seconds")
    return members if age is None else {**members, "key_age_seconds": float(age)}


def _unreadable(address: Address, seen: str) -> ServiceError:
    return ServiceError("E_INTERNAL", f"{address} answered with {seen}: is this the address of the automation service?")


def _unsuccessful(run_id: str, state: str, told: Mapping[str, Any]) -> RunDidNotSucceed:
    error = told.get("error")
    reason = error.get("message") if isinstance(error, dict) else error
    code = str(told.get("error_code") or ("E_CANCELLED" if state == "cancelled" else "E_WORKFLOW_FAILED"))
    message = str(reason or told.get("where") or "the service gave no reason")
    return RunDidNotSucceed(run_id, state, code, f"{message}; a44 automation show {run_id} tells more", told)
