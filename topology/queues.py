"""Queues: how many runs of a queue go on at once, and whether runs of one key keep their order."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StrictInt

from topology.names import id_from_name
from topology.shapes import QueueId, Spec

DEFAULT_QUEUE = "q_default"
DEFAULT_CONCURRENCY = 100
DEFAULT_ATTEMPTS = 5

Ordering = Literal["none", "by-partition"]
Concurrency = Annotated[StrictInt, Field(ge=1, le=100_000)]


class QueueSpec(Spec):
    """A queue. `max_attempts` counts step hosts that ended with a run in them, not failed tries of its steps."""

    later: ClassVar[frozenset[str]] = frozenset({"visibilityTimeout", "onBlocked", "deadLetter", "priority"})

    id: QueueId
    max_concurrency: Concurrency = DEFAULT_CONCURRENCY
    ordering: Ordering = "none"
    max_attempts: Annotated[StrictInt, Field(ge=1, le=100)] = DEFAULT_ATTEMPTS


def default_queue() -> QueueSpec:
    """The queue of every workflow that names none."""
    return QueueSpec.model_validate({"id": DEFAULT_QUEUE})


def queue_of_workflow(name: str, limit: int | None) -> QueueSpec:
    """The queue that a workflow's `concurrency` makes."""
    size = DEFAULT_CONCURRENCY if limit is None else limit
    shape = {"id": id_from_name("q_", name), "maxConcurrency": size, "ordering": "by-partition"}
    return QueueSpec.model_validate(shape)
