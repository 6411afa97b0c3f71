"""What a client raises: a stable code, what was seen and the way out; the class says what to do about it."""

from collections.abc import Mapping
from typing import Any


class ServiceError(Exception):
    """Base of all that a call may raise but `RunNotEnded`.

    `code` is stable (`E_...`), `status` the answer's HTTP status (None where no answer came), `details` what else the
    service told.
    """

    def __init__(
        self, code: str, message: str, *, status: int | None = None, details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status
        self.details: Mapping[str, Any] = details or {}


class ServiceRefused(ServiceError):
    """The call is at fault: sent again as it is, it is refused again."""


class ServiceUnavailable(ServiceError):
    """Not answered, or not now, in every try. Whether it was kept is not known: call again later with the same key.

    `retry_after` is how many seconds the service asked for, None where it did not say.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        status: int | None = None,
        details: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(code, message, status=status, details=details)
        self.retry_after = retry_after


class RunDidNotSucceed(ServiceError):
    """The run ended otherwise, or stands where only a person can move it (`state` is then `blocked`)."""

    def __init__(self, run_id: str, state: str, code: str, message: str, details: Mapping[str, Any]) -> None:
        super().__init__(code, f"{run_id} is {state}: {message}", details=details)
        self.run_id = run_id
        self.state = state


class RunNotEnded(TimeoutError):
    """The time of `result` is over and the run goes on; ask again, or cancel it."""

    def __init__(self, run_id: str, state: str, seconds: float) -> None:
        super().__init__(f"{run_id} is {state} after {seconds:g} s; ask for its result again, or cancel it")
        self.run_id = run_id
        self.state = state
