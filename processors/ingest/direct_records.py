"""What records straight on Kafka came to, as doors tell of theirs: counted by outcome, conflicts with both hashes."""

from collections.abc import Mapping

import structlog

from processors.ports.door import Outcome
from processors.ports.ingest import Arrival, Harvest, Known, event_of
from processors.ports.measures import Measures

_log = structlog.get_logger("ingest")


def tell_direct(harvest: Harvest, known: Mapping[int, Known], measures: Measures) -> None:
    """After the commit. Each direct record of which an event could be read has exactly one outcome."""
    seen, outcomes = set[tuple[str, str]](), list[Outcome]()
    for place, one in enumerate(harvest.arrivals):
        event = event_of(one)
        if one.accepted_at is None:
            met = known.get(place)
            outcomes.append(_outcome(one, met, is_repeated=event in seen))
            if met is not None and met.is_conflict:
                _tell_conflict(one, met, measures)
        seen.add(event)
    for outcome in set(outcomes):
        measures.count("direct_records_total", outcomes.count(outcome), outcome.value)


def _outcome(one: Arrival, met: Known | None, *, is_repeated: bool) -> Outcome:
    if met is not None and met.is_conflict:
        return Outcome.CONFLICT
    if met is not None or is_repeated:
        return Outcome.DUPLICATE
    return Outcome.FILTERED if one.is_filtered else Outcome.CREATED


def _tell_conflict(one: Arrival, met: Known, measures: Measures) -> None:
    measures.count("records_refused_total", 1, "E_IDEMPOTENCY_CONFLICT")
    _log.warning(
        "idempotency_conflict",
        project_id=one.project_id,
        idempotency_key=one.idempotency_key,
        dead_letter_id=one.dead_letter_id,
        first_body=met.first_body_hash.hex(),
        this_body=one.body_hash.hex(),
    )
