"""Log lines as JSON on stderr, one a line and without secrets, from structlog and from libraries that use `logging`."""

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

from schemas.redacted_text import told_without_secrets


def _redacted(_logger: object, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """By the names of its values, and in texts whoever wrote them: a step's print, an error of a library."""
    for name in line:
        line[name] = told_without_secrets(name, line[name])
    return line


_LAST: tuple[Any, ...] = (structlog.processors.format_exc_info, _redacted, structlog.processors.JSONRenderer())


def configure_logging(level: str) -> None:
    """Once per process, before anything logs."""
    threshold = logging.getLevelNamesMapping()[level.upper()]
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, *_LAST],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_LAST,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(threshold)
    for chatty in ("aiokafka", "faust", "mode", "asyncio"):
        logging.getLogger(chatty).setLevel(max(threshold, logging.WARNING))
    # Each try of each connection while Postgres is away; what that means for a role, the role says.
    logging.getLogger("psycopg").setLevel(max(threshold, logging.ERROR))
