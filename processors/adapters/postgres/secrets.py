"""The secrets of webhook triggers in Postgres: numbers and their times alone, never a secret.

A rotation is a part of its caller's transaction, which holds the catalog's lock: the new number, the end of the old one
and the audit row stand together or not at all.
"""

import json

from psycopg import AsyncConnection
from psycopg.rows import TupleRow, tuple_row

from processors.adapters.postgres.statements import statements
from processors.ports.catalog import Rotation, WebhookSecret
from processors.runtime.rotation import OVERLAP_SECONDS, plan_rotation
from schemas.errors import Refused


async def rotate_secret(
    conn: AsyncConnection[TupleRow], project_id: str, trigger_id: str, end: str | None, actor: str
) -> Rotation:
    """Raises Refused E_TRIGGER_NOT_FOUND, E_ROTATION_UNDERWAY, E_INVALID_PARAMETER."""
    sql = statements("secrets")
    trigger = {"project_id": project_id, "trigger_id": trigger_id}
    live, last = await _secrets(conn, trigger)
    if not live:
        raise Refused("E_TRIGGER_NOT_FOUND", f"{trigger_id[:80]!r} is no webhook trigger of this project with a secret")
    decided = plan_rotation(trigger_id, live, last, end)
    for numbers, seconds in ((decided.at_once, 0.0), (decided.later, OVERLAP_SECONDS)):
        await conn.execute(sql["retire_secrets"], {**trigger, "numbers": list(numbers), "seconds": seconds})
    await conn.execute(sql["insert_secrets"], {**trigger, "trigger_ids": [trigger_id], "numbers": [decided.number]})
    _, *older = (await _secrets(conn, trigger))[0]
    old = older[0] if older else None
    details = {
        "number": decided.number,
        "ended": list(decided.at_once),
        "old": None if old is None else {"number": old.number, "ends_at": str(old.ends_at)},
    }
    await conn.execute(sql["record_rotation"], {**trigger, "actor": actor, "details": json.dumps(details)})
    return Rotation(decided.number, old)


async def _secrets(conn: AsyncConnection[TupleRow], trigger: dict[str, str]) -> tuple[list[WebhookSecret], int]:
    """Those that live, the newest first, and the last number ever given."""
    async with conn.cursor(row_factory=tuple_row) as cursor:
        rows = await (await cursor.execute(statements("secrets")["find_trigger_secrets"], trigger)).fetchall()
    live = [WebhookSecret(number, ends_at) for number, ends_at, lives in rows if lives]
    return live, rows[0][0] if rows else 0
