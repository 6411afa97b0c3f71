"""All checks at once, so that what does not answer delays nothing else; findings come in a fixed order."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from ops.doctor.findings import Finding
from ops.doctor.gateway import check_gateway
from ops.doctor.machine import MB, check_disks, check_step_python, check_versions
from ops.doctor.parts import check_brokers, check_database


@dataclass(frozen=True, slots=True)
class Patient:
    """What is examined, and how much room is too little. `is_default_url`: nobody named a gateway."""

    postgres_dsn: str
    kafka_bootstrap: str
    topic_prefix: str
    python: str
    url: str
    token: str
    is_default_url: bool
    least_free: int = 500 * MB
    good_free: int = 2_000 * MB


async def examine(patient: Patient) -> Sequence[Finding]:
    """Nothing is changed anywhere, and no check waits longer than about ten seconds."""
    database, brokers, gateway, python = await asyncio.gather(
        check_database(patient.postgres_dsn),
        check_brokers(patient.kafka_bootstrap, patient.topic_prefix),
        asyncio.to_thread(check_gateway, patient.url, patient.token, is_default=patient.is_default_url),
        check_step_python(patient.python),
    )
    disks = check_disks(database.data_directory, least=patient.least_free, good=patient.good_free)
    return [*database.findings, brokers, *gateway, check_versions(), python, *disks]
