"""Errors that reach a user: a stable code, what was seen, what was expected, the way out.

Every code stands once in `CODES` with its HTTP status and title; `docs/errors/` has a page for each
(a test holds the two together). The class tells the caller what to do: `Refused` means the input is
at fault and a repeat changes nothing, `Unavailable` means try again, `Broken` is a defect of ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Code:
    """What a code stands for. `status` is the HTTP status of an answer that carries it."""

    status: int
    title: str


CODES: Mapping[str, Code] = {
    "E_BATCH_TOO_LARGE": Code(413, "The batch holds more events than allowed"),
    "E_BODY_TIMEOUT": Code(408, "The body took too long to arrive"),
    "E_BODY_TOO_LARGE": Code(413, "The body is larger than allowed"),
    "E_BODY_UNSTORABLE": Code(422, "The body holds text that cannot be stored"),
    "E_BODY_SPINS": Code(409, "The workflow polls instead of waiting"),
    "E_BODY_STUCK": Code(409, "The workflow waits for something that nothing can bring"),
    "E_BUNDLE_IMPORT": Code(422, "The workflow's code cannot be imported"),
    "E_BUNDLE_INVALID": Code(422, "The workflow's code cannot be bundled"),
    "E_CANCELLED": Code(409, "The run was cancelled"),
    "E_CLOUDEVENT_INVALID": Code(422, "The event is not a CloudEvent"),
    "E_CONFIG": Code(400, "A setting is missing or wrong"),
    "E_CONNECTOR_UNKNOWN": Code(422, "The connector or its operation does not exist"),
    "E_CREDENTIALS": Code(401, "No usable credentials"),
    "E_DEADLINE": Code(409, "The run's deadline passed"),
    "E_DEAD_LETTER_NOT_FOUND": Code(404, "The dead letter does not exist"),
    "E_DUPLICATE_KEY": Code(422, "The same key stands twice in one object"),
    "E_DUPLICATE_STEP_ID": Code(422, "Two steps share one id"),
    "E_EGRESS_DENIED": Code(422, "A connector may not connect to this address"),
    "E_EMBEDDED_STACK": Code(503, "A part of the embedded stack did not start"),
    "E_ENVELOPE_INVALID": Code(422, "The record is not an event envelope"),
    "E_EVENT_NOT_FOUND": Code(404, "The event is not known"),
    "E_EVENT_SCHEMA": Code(422, "The event does not fit the schema of its type"),
    "E_EVENT_TOO_OLD": Code(409, "The event is too old for its trigger"),
    "E_EXPRESSION": Code(422, "An expression cannot be compiled or evaluated"),
    "E_FILTER_ERROR": Code(422, "The trigger's filter cannot be evaluated"),
    "E_IDEMPOTENCY_CONFLICT": Code(422, "The key was used with another body"),
    "E_IDEMPOTENCY_KEY_INVALID": Code(400, "The idempotency key is not usable"),
    "E_IDEMPOTENCY_KEY_REQUIRED": Code(400, "A manual run needs an idempotency key"),
    "E_INTERNAL": Code(500, "A defect of the service"),
    "E_INVALID_PARAMETER": Code(400, "A parameter is not usable"),
    "E_IO_OUTSIDE_STEP": Code(422, "Input or output outside a step"),
    "E_ITEM_LIMIT": Code(422, "The run has more steps than allowed"),
    "E_JSON_INVALID": Code(422, "The body is not valid JSON"),
    "E_METHOD_NOT_ALLOWED": Code(405, "The method is not allowed here"),
    "E_MIGRATION": Code(503, "The database schema does not fit this version"),
    "E_NONDETERMINISTIC_REPLAY": Code(409, "The body took another way than the recorded one"),
    "E_NOT_FOUND": Code(404, "There is nothing at this address"),
    "E_OVERLOADED": Code(429, "The service has too much to do now"),
    "E_PROJECT_NOT_FOUND": Code(404, "The project does not exist"),
    "E_RATE_LIMITED": Code(429, "The project sends more than it may"),
    "E_RECORD_TOO_LARGE": Code(413, "The broker refuses a record for its size"),
    "E_REDRIVE_EMPTY": Code(409, "Nothing can be redriven"),
    "E_REDRIVE_NOT_FOUND": Code(404, "No such redrive"),
    "E_REDRIVE_RATE": Code(429, "The project redrives as fast as it may"),
    "E_REDRIVE_UNCONFIRMED": Code(409, "The redrive would take every dead letter"),
    "E_RESULT_NOT_JSON": Code(422, "The result cannot be stored as JSON without change"),
    "E_RESULT_TOO_LARGE": Code(413, "The result is larger than allowed"),
    "E_ROTATION_UNDERWAY": Code(409, "The secret is being rotated already"),
    "E_RUN_ENDED": Code(409, "The run has ended"),
    "E_RUN_NOT_FOUND": Code(404, "The run does not exist"),
    "E_SCHEMA_INCOMPATIBLE": Code(409, "The schema takes less than the version before"),
    "E_SCHEMA_REGISTRY_UNAVAILABLE": Code(503, "The schema registry cannot be reached"),
    "E_SCHEMA_UNKNOWN": Code(422, "The record's schema cannot be used"),
    "E_SCOPE": Code(403, "The token does not allow this"),
    "E_SECRET_UNKNOWN": Code(422, "The referenced secret is not set"),
    "E_SHUTTING_DOWN": Code(503, "The process is stopping"),
    "E_SIGNATURE": Code(401, "The signature does not match"),
    "E_SPEC_INVALID": Code(422, "The definition is not valid"),
    "E_SQL": Code(422, "The SQL statement failed"),
    "E_SQL_UNAVAILABLE": Code(503, "The project's database cannot be reached"),
    "E_STEP_FAILED": Code(422, "The step raised an error"),
    "E_STEP_INSIDE_STEP": Code(422, "A step was started inside a step"),
    "E_STEP_MEMORY": Code(507, "The step asked for more memory than its host may take"),
    "E_STEP_TIMEOUT": Code(504, "The step ran past its timeout"),
    "E_STEP_TIMEOUT_MISSING": Code(422, "A step declares no timeout"),
    "E_STORAGE_UNAVAILABLE": Code(503, "The storage for large bodies cannot be reached"),
    "E_STORED_BODY_MISSING": Code(422, "The stored body is not there"),
    "E_TIMESTAMP_SKEW": Code(408, "The timestamp is too far from the server's clock"),
    "E_TOKEN": Code(401, "The token is missing or not valid"),
    "E_TOKEN_ADDRESS": Code(403, "The token may not be used from this address"),
    "E_TOMBSTONE": Code(422, "The record has no value"),
    "E_TRIGGER_NOT_FOUND": Code(404, "The trigger does not exist"),
    "E_UNAVAILABLE": Code(503, "A part of the service cannot be reached now"),
    "E_UNSUPPORTED_MEDIA_TYPE": Code(415, "The content type is not supported"),
    "E_UPSTREAM": Code(502, "The upstream answered with an error"),
    "E_UPSTREAM_TIMEOUT": Code(504, "The upstream did not answer in time"),
    "E_UPSTREAM_UNREACHABLE": Code(502, "The upstream cannot be reached"),
    "E_VERSION_EXISTS": Code(409, "The version was published with other content"),
    "E_VERSION_UNKNOWN": Code(409, "The workflow version is not published"),
    "E_WORKFLOW_FAILED": Code(422, "The workflow's code raised an error"),
    "E_WORKFLOW_NOT_FOUND": Code(404, "The workflow does not exist"),
    "E_WORKER_CRASH_LOOP": Code(422, "The run keeps ending the process that runs it"),
    "E_YAML": Code(422, "The YAML file cannot be read"),
}

UPSTREAM_PREFIX = "E_UPSTREAM_"


def code_of(name: str) -> Code:
    """Look a code up; `E_UPSTREAM_<status>` is a family of one meaning."""
    found = CODES.get(name)
    if found is not None:
        return found
    if name.startswith(UPSTREAM_PREFIX):
        return CODES["E_UPSTREAM"]
    raise KeyError(name)


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a user's file: line and column count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(eq=False)
class AutomationError(Exception):
    """Base of everything a user may see. `details` holds extra JSON members of the problem document."""

    code: str
    message: str
    place: Place | None = None
    details: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__(self.message)

    def __str__(self) -> str:
        where = f"{self.place}: " if self.place else ""
        return f"{where}{self.message} [{self.code}]"

    @property
    def status(self) -> int:
        return code_of(self.code).status


class Refused(AutomationError):
    """The input is at fault: a repeat with the same input gets the same answer."""


class Unavailable(AutomationError):
    """Something needed is away: the same call may succeed later."""


class Broken(AutomationError):
    """A defect of ours, never of the input."""
