"""What authors of workflows import, and what programs talk to the service with. Standard library only.

from anthares44.automation import workflow, step
from anthares44.automation import Client
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from anthares44.automation.context import Context
from anthares44.automation.errors import (
    MisuseError,
    PermanentError,
    ResultError,
    RetryableError,
    StepError,
    StepTimeout,
)
from anthares44.automation.inbox import Inbox
from anthares44.automation.steps import step
from anthares44.automation.workflow import workflow

if TYPE_CHECKING:
    from anthares44.automation.client import (
        AsyncClient,
        AsyncWebhookSender,
        Client,
        Retries,
        RunDidNotSucceed,
        RunNotEnded,
        ServiceError,
        ServiceRefused,
        ServiceUnavailable,
        WebhookSender,
        exact_json,
        webhook_headers,
    )

__version__ = "0.1.0"

_CLIENTS = "anthares44.automation.client"

__all__ = [
    "AsyncClient",
    "AsyncWebhookSender",
    "Client",
    "Context",
    "Inbox",
    "MisuseError",
    "PermanentError",
    "ResultError",
    "Retries",
    "RetryableError",
    "RunDidNotSucceed",
    "RunNotEnded",
    "ServiceError",
    "ServiceRefused",
    "ServiceUnavailable",
    "StepError",
    "StepTimeout",
    "WebhookSender",
    "exact_json",
    "step",
    "webhook_headers",
    "workflow",
]


def __getattr__(name: str) -> Any:
    """The clients are loaded when asked for: every step host imports this package, and none of them needs HTTP."""
    if name in __all__:
        return getattr(import_module(_CLIENTS), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
