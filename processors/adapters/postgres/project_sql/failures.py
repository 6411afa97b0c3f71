"""What the project's database says when a statement fails, without a row's data in it.

The server's own words are kept only where they speak of the statement (syntax, unknown names); elsewhere
they may quote values, so the condition's name and the names of constraint, table and column stand instead.
"""

import psycopg
from psycopg.errors import lookup

from schemas.records import ErrorInfo
from schemas.redacted_text import without_secrets

_WORTH_ANOTHER_TRY = frozenset({"40001", "40P01", "55P03"})
_AWAY_CLASSES = frozenset({"08", "53", "57", "58"})
_AWAY = frozenset({"25006"})  # a replica that answers while the primary moves
_PROTOCOL_VIOLATION = "08P01"
_CANCELLED = "57014"
_ABOUT_THE_STATEMENT = frozenset({"0A", "25", "26", "3D", "3F", "42"})
_LONGEST = 500


def failure_of(exc: psycopg.Error, timeout: float) -> ErrorInfo:
    """The error of the attempt. `timeout` is in seconds."""
    state = exc.sqlstate
    if state is None:
        return _without_state(exc)
    if state == _CANCELLED:
        return timed_out(timeout)
    name = _condition(state)
    message = without_secrets(f"SQLSTATE {state} ({name}){_details(exc, state)}")
    is_away = (state[:2] in _AWAY_CLASSES or state in _AWAY) and state != _PROTOCOL_VIOLATION
    if is_away:
        return ErrorInfo("E_SQL_UNAVAILABLE", name, f"the project's database gave up: {message}")
    is_retryable = state in _WORTH_ANOTHER_TRY
    return ErrorInfo("E_SQL", name, f"the statement failed: {message}", retryable=is_retryable)


def timed_out(timeout: float) -> ErrorInfo:
    message = f"the statement was not done within the step's timeout of {timeout:g} s and was cancelled"
    return ErrorInfo("E_STEP_TIMEOUT", "StepTimeout", message)


def unreachable(exc: psycopg.Error) -> ErrorInfo:
    """No connection. Only the server's own refusal is repeated: the rest would tell the address."""
    _, found, refusal = str(exc).partition("FATAL:")
    reason = refusal.strip().splitlines()[0][:_LONGEST] if found and refusal.strip() else "no connection"
    return ErrorInfo("E_SQL_UNAVAILABLE", "Unreachable", f"the project's database cannot be reached: {reason}")


def _without_state(exc: psycopg.Error) -> ErrorInfo:
    if isinstance(exc, psycopg.OperationalError | psycopg.InterfaceError):
        message = "the connection to the project's database broke while the statement ran"
        return ErrorInfo("E_SQL_UNAVAILABLE", type(exc).__name__, message)
    message = f"the statement or its parameters cannot be sent ({type(exc).__name__})"
    return ErrorInfo("E_SQL", type(exc).__name__, message, retryable=False)


def _condition(state: str) -> str:
    try:
        return lookup(state).__name__
    except KeyError:
        return "raised by the database"


def _details(exc: psycopg.Error, state: str) -> str:
    diag = exc.diag
    if state[:2] in _ABOUT_THE_STATEMENT and diag.message_primary:
        where = f", at character {diag.statement_position} of the query" if diag.statement_position else ""
        return f": {diag.message_primary[:_LONGEST]}{where}"
    named = {"constraint": diag.constraint_name, "column": diag.column_name, "table": diag.table_name}
    parts = [f"{kind} {name}" for kind, name in named.items() if name]
    return f", {', '.join(parts)}" if parts else ""
