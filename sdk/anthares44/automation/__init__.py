"""What authors of workflows import. Standard library only.

from anthares44.automation import workflow, step
"""

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

__version__ = "0.1.0"

__all__ = [
    "Context",
    "Inbox",
    "MisuseError",
    "PermanentError",
    "ResultError",
    "RetryableError",
    "StepError",
    "StepTimeout",
    "step",
    "workflow",
]
