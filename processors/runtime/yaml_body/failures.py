"""What went wrong, as the log records it."""

from schemas.errors import AutomationError, Refused
from schemas.records import ErrorInfo
from schemas.redacted_text import without_secrets


def error_of(exc: AutomationError) -> ErrorInfo:
    """A refusal is permanent: the same attempt would be refused again. All else is worth another try."""
    message = without_secrets(exc.message)
    return ErrorInfo(exc.code, type(exc).__name__, message, retryable=not isinstance(exc, Refused))


def internal(exc: BaseException) -> ErrorInfo:
    """A defect of ours. Its message may hold anything, so only its class is told; the log has the rest."""
    message = f"a defect of the service ({type(exc).__name__}); its log tells more"
    return ErrorInfo("E_INTERNAL", type(exc).__name__, message)


def cancelled(cause: str) -> ErrorInfo:
    return ErrorInfo("E_CANCELLED", "Cancelled", cause, retryable=False)


def timed_out(seconds: float) -> ErrorInfo:
    return ErrorInfo("E_STEP_TIMEOUT", "StepTimeout", f"the step ran past its timeout of {seconds:g} s")


def diverged(expected: str, seen: str) -> ErrorInfo:
    message = f"the log holds {expected}, but the definition asks for {seen}"
    return ErrorInfo("E_NONDETERMINISTIC_REPLAY", "NondeterministicReplay", message, retryable=False)
