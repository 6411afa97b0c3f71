"""Clients of the service: send events and webhooks, start runs, wait for results, cancel. Standard library only.

from anthares44.automation import Client
"""

from anthares44.automation.client.asynchronous import AsyncClient, AsyncWebhookSender
from anthares44.automation.client.blocking import Client, WebhookSender
from anthares44.automation.client.errors import (
    RunDidNotSucceed,
    RunNotEnded,
    ServiceError,
    ServiceRefused,
    ServiceUnavailable,
)
from anthares44.automation.client.operations import CancelStatus, SentEvent, SentWebhook, StartedRun
from anthares44.automation.client.retries import Retries
from anthares44.automation.client.signing import webhook_headers
from anthares44.automation.client.texts import exact_json

__all__ = [
    "AsyncClient",
    "AsyncWebhookSender",
    "CancelStatus",
    "Client",
    "Retries",
    "RunDidNotSucceed",
    "RunNotEnded",
    "SentEvent",
    "SentWebhook",
    "ServiceError",
    "ServiceRefused",
    "ServiceUnavailable",
    "StartedRun",
    "WebhookSender",
    "exact_json",
    "webhook_headers",
]
