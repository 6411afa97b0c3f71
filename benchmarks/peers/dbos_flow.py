"""DBOS: the three steps, as its async and as its plain functions."""

import sys

from dbos import DBOS, DBOSConfig

QUEUE, POLL_SECONDS, VERSION = "w3", 0.1, "1"


@DBOS.step()
async def noop() -> dict[str, bool]:
    return {"ok": True}


@DBOS.workflow()
async def w3(_run: str) -> dict[str, bool]:
    for _ in range(3):
        await noop()
    return {"ok": True}


@DBOS.step()
def plain_noop() -> dict[str, bool]:
    return {"ok": True}


@DBOS.workflow()
def plain_w3(_run: str) -> dict[str, bool]:
    for _ in range(3):
        plain_noop()
    return {"ok": True}


def launch(database: str, executor: str) -> None:
    DBOS(
        config=DBOSConfig(
            name="bench",
            system_database_url=database.replace("postgresql://", "postgresql+psycopg://"),
            log_level="ERROR",
            application_version=VERSION,
            executor_id=executor,
        )
    )
    DBOS.launch()
    sys.stderr.write("launched\n")
