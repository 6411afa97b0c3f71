"""Log lines as JSON on stderr, one a line, from structlog and from libraries that use `logging` alike."""

import logging
import sys
from typing import Any

import structlog


def configure_logging(level: str) -> None:
    """Once per process, before anything logs."""
    threshold = logging.getLevelNamesMapping()[level.upper()]
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.processors.format_exc_info, structlog.processors.JSONRenderer()],
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
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(),
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
