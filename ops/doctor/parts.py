"""The servers that the service stands on: its database with the schema and the clock, and the brokers."""

from collections.abc import Sequence
from dataclasses import dataclass

from ops.doctor.findings import FAILED, OK, SKIPPED, WARNING, Finding, clock_finding
from processors.adapters.kafka.checkup import look_at_brokers
from processors.adapters.postgres.checkup import DatabaseFacts, look_at_database
from schemas.errors import AutomationError
from topology.topics import Topics

_OLDEST_POSTGRES = 170_000
_PATIENCE = 5.0


@dataclass(frozen=True, slots=True)
class DatabaseReport:
    findings: Sequence[Finding]
    data_directory: str | None = None


async def check_database(dsn: str) -> DatabaseReport:
    """Without an answer the schema and the clock cannot be told."""
    if not dsn:
        way_out = "set A44_POSTGRES_DSN, where the service itself is to be examined"
        return DatabaseReport([Finding("database", SKIPPED, "postgres_dsn is not set", way_out)])
    try:
        facts = await look_at_database(dsn)
    except AutomationError as error:
        way_out = "start Postgres, or mend A44_POSTGRES_DSN (host, port, user, password, database)"
        unknown = [
            Finding(check, SKIPPED, "the database does not answer") for check in ("migrations", "clock of database")
        ]
        return DatabaseReport([Finding("database", FAILED, error.message, way_out), *unknown])
    findings = [_server(facts), _migrations(facts), clock_finding("database", facts.clock_ahead)]
    return DatabaseReport(findings, facts.data_directory)


def _server(facts: DatabaseFacts) -> Finding:
    seen = f"PostgreSQL {facts.version}"
    if facts.version_number < _OLDEST_POSTGRES:
        return Finding("database", FAILED, seen, "the log needs PostgreSQL 17 or newer: move it with pg_upgrade")
    if facts.durability_off:
        names = ", ".join(facts.durability_off)
        way_out = f"set {names} to on in postgresql.conf: with it off, a crash of the server loses what was accepted"
        return Finding("database", FAILED, f"{seen}, {names} off", way_out)
    return Finding("database", OK, seen)


def _migrations(facts: DatabaseFacts) -> Finding:
    if facts.changed:
        way_out = "install the version that this database was made with, or a newer one; the ledger is left alone"
        return Finding("migrations", FAILED, f"not as this version has them: {', '.join(facts.changed)}", way_out)
    if facts.missing:
        way_out = "run a44 migrate with the same A44_POSTGRES_DSN; roles start after it"
        return Finding("migrations", FAILED, f"missing: {', '.join(facts.missing)}", way_out)
    if facts.newer:
        way_out = "this is an older version than the database was migrated for: install that version here as well"
        return Finding("migrations", WARNING, f"newer than this version: {', '.join(facts.newer)}", way_out)
    return Finding("migrations", OK, "the schema of this version")


async def check_brokers(bootstrap: str, topic_prefix: str) -> Finding:
    if not bootstrap:
        way_out = "set A44_KAFKA_BOOTSTRAP, where relay, ingest or executor are to be examined"
        return Finding("broker", SKIPPED, "kafka_bootstrap is not set", way_out)
    try:
        facts = await look_at_brokers(bootstrap, _PATIENCE)
    except AutomationError as error:
        return Finding("broker", FAILED, error.message, "start the broker, or mend A44_KAFKA_BOOTSTRAP (host:port,...)")
    missing = [topic.name for topic in Topics(topic_prefix).all() if topic.name not in facts.topics]
    answering = f"{facts.brokers} broker{'' if facts.brokers == 1 else 's'}"
    if missing:
        way_out = (
            "nothing, where no relay ran yet: it makes them; else compare A44_TOPIC_PREFIX with the other processes"
        )
        return Finding("broker", WARNING, f"{answering}, without the topics {', '.join(missing)}", way_out)
    return Finding("broker", OK, f"{answering}, all topics of {topic_prefix}")
