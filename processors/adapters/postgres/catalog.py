"""The catalog in Postgres: publications in one transaction each, snapshots of one moment.

In this order: read the files; lock the catalog; look at what is in force; decide; write; raise the version.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from psycopg import AsyncConnection, IsolationLevel
from psycopg.rows import TupleRow, class_row, dict_row, tuple_row

from processors.adapters.postgres.misses import keep_misses
from processors.adapters.postgres.pooled import Pool, ask, borrowed, read
from processors.adapters.postgres.secrets import rotate_secret
from processors.adapters.postgres.statements import statements
from processors.ports.catalog import (
    CatalogSnapshot,
    Definition,
    EventType,
    PublishResult,
    Queue,
    Rotation,
    StoredDefinition,
    Trigger,
    WebhookSecret,
)
from processors.ports.misses import FilterMiss, KeptMiss
from processors.runtime.publishing import (
    EventTypeInForce,
    InForce,
    Plan,
    SecretsInForce,
    TriggerInForce,
    VersionInForce,
    declared_by,
    plan,
)
from schemas.errors import Refused
from topology.connectors import ConnectorSpec
from topology.publication import read_files
from topology.queues import QueueSpec
from topology.triggers import TriggerSpec


class PostgresCatalog:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._sql = {**statements("catalog"), **statements("secrets")}
        self._definitions: dict[int, Definition] = {}
        self._event_types: dict[tuple[str, str], EventType] = {}
        self._last_schema = 0
        self._loading = asyncio.Lock()

    async def version(self) -> int:
        rows = await ask(self._pool, self._sql["find_version"], {}, tuple_row)
        return int(rows[0][0])

    async def snapshot(self) -> CatalogSnapshot:
        """Definitions never change, so only those that are new are read."""
        async with self._loading:
            return await read(self._pool, self._load)

    async def _load(self, conn: AsyncConnection[TupleRow]) -> CatalogSnapshot:
        async with _one_moment(conn):
            version = int((await _rows(conn, self._sql["find_version"]))[0]["catalog_version"])
            secrets = _by_trigger(await _rows(conn, self._sql["find_live_secrets"]))
            triggers = [
                Trigger(**row, secrets=secrets.get((row["project_id"], row["trigger_id"]), ()))
                for row in await _rows(conn, self._sql["find_triggers"])
            ]
            queues = await _rows(conn, self._sql["find_queues"])
            last = max(self._definitions, default=0)
            for row in await _rows(conn, self._sql["find_definitions_after"], {"after": last}):
                self._definitions[row["definition_id"]] = Definition(**row)
            for row in await _rows(conn, self._sql["find_event_types_after"], {"after": self._last_schema}):
                self._event_types[row["project_id"], row["event_type"]] = EventType(**row)
                self._last_schema = row["schema_id"]
            made = _snapshot(version, triggers, queues, list(self._definitions.values()))
            return replace(made, event_types=dict(self._event_types))

    async def publish(self, project_id: str, files: Mapping[str, str], *, dev: bool, actor: str) -> PublishResult:
        publication = await asyncio.to_thread(read_files, files, dev=dev)
        project = {"project_id": project_id, "actor": actor}
        async with borrowed(self._pool) as conn, conn.transaction():
            await conn.execute(self._sql["lock_catalog"])
            decided = plan(publication, await self._in_force(conn, project), dev=dev)
            if decided.changes_anything:
                await self._write(conn, project, decided)
        return decided.result()

    async def rotate(self, project_id: str, trigger_id: str, *, end: str | None, actor: str) -> Rotation:
        async with borrowed(self._pool) as conn, conn.transaction():
            await conn.execute(self._sql["lock_catalog"])
            made = await rotate_secret(conn, project_id, trigger_id, end, actor)
            await conn.execute(self._sql["raise_version"])
        return made

    async def keep_misses(self, misses: Sequence[FilterMiss]) -> None:
        async with borrowed(self._pool) as conn:
            await conn.execute(*keep_misses(misses))

    async def misses(self, project_id: str, trigger_id: str, limit: int) -> Sequence[KeptMiss]:
        wanted = {"project_id": project_id, "trigger_id": trigger_id, "limit": limit}
        return [KeptMiss(*row) for row in await ask(self._pool, statements("misses")["find_misses"], wanted, tuple_row)]

    async def definition(self, definition_id: int) -> StoredDefinition:
        known = self._definitions.get(definition_id)
        if known is not None:
            return StoredDefinition(known.spec_text, known.kind, known.bundle_digest)
        rows = await ask(self._pool, self._sql["find_definition"], {"definition_id": definition_id}, tuple_row)
        if not rows:
            raise Refused("E_VERSION_UNKNOWN", f"the definition {definition_id} is not published here")
        return StoredDefinition(*rows[0])

    async def bundle(self, project_id: str, digest: str) -> dict[str, str]:
        found = {"project_id": project_id, "digest": digest}
        rows = await ask(self._pool, self._sql["find_bundle"], found, tuple_row)
        if not rows:
            raise Refused("E_BUNDLE_INVALID", f"the bundle {digest[:12]} is not stored; publish the workflow again")
        return dict(json.loads(rows[0][0]))

    async def connector(self, project_id: str, connector_id: str) -> ConnectorSpec:
        wanted = {"project_id": project_id, "connector_id": connector_id}
        rows = await ask(self._pool, self._sql["find_connector"], wanted, tuple_row)
        if not rows:
            raise Refused("E_CONNECTOR_UNKNOWN", f"the connector {connector_id} is not published in {project_id}")
        return ConnectorSpec.from_json(rows[0][0])

    async def _in_force(self, conn: AsyncConnection[TupleRow], project: Mapping[str, str]) -> InForce:
        async with conn.cursor(row_factory=class_row(VersionInForce)) as cursor:
            versions = await (await cursor.execute(self._sql["find_project_versions"], project)).fetchall()
        async with conn.cursor(row_factory=class_row(TriggerInForce)) as triggers:
            rows = await (await triggers.execute(self._sql["find_project_triggers"], project)).fetchall()
        connectors = await _rows(conn, self._sql["find_project_connectors"], project)
        queues = await _rows(conn, self._sql["find_project_queues"], project)
        secrets = await _rows(conn, self._sql["find_project_secrets"], project)
        event_types = await _rows(conn, self._sql["find_project_event_types"], project)
        return InForce(
            versions,
            {row.trigger_id: row for row in rows},
            {row["connector_id"]: row["spec"] for row in connectors},
            {row["queue_id"]: (row["max_concurrency"], row["ordering"], row["max_attempts"]) for row in queues},
            {row["trigger_id"]: SecretsInForce(row["last"], row["newest"]) for row in secrets},
            {row["event_type"]: EventTypeInForce(row["version"], row["spec"]) for row in event_types},
        )

    async def _write(self, conn: AsyncConnection[TupleRow], project: Mapping[str, str], decided: Plan) -> None:
        for name, parameters in _statements(decided):
            await conn.execute(self._sql[name], {**project, **parameters})
        await conn.execute(self._sql["raise_version"])
        said = [f"{item.kind} {item.id} {item.version or ''} {item.change}" for item in decided.published]
        await conn.execute(self._sql["record_publication"], {**project, "details": json.dumps(said)})


@asynccontextmanager
async def _one_moment(conn: AsyncConnection[TupleRow]) -> AsyncIterator[None]:
    """All questions of the block see one state of the catalog."""
    await conn.set_isolation_level(IsolationLevel.REPEATABLE_READ)
    try:
        async with conn.transaction():
            yield
    finally:
        if not conn.closed:
            await conn.set_isolation_level(None)


async def _rows(
    conn: AsyncConnection[TupleRow], statement: str, parameters: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(statement, parameters)
        return await cursor.fetchall()


def _statements(decided: Plan) -> list[tuple[str, dict[str, Any]]]:
    """What to execute, in order, without the statements that would write nothing."""
    new = decided.definitions
    steps: list[tuple[Sequence[object], str, dict[str, Any]]] = [
        (decided.bundles, "insert_bundles", _bundle_columns(decided)),
        (new, "insert_definitions", _definition_columns(decided)),
        (decided.removed, "delete_triggers", {"trigger_ids": decided.removed}),
        (decided.triggers, "upsert_triggers", _trigger_columns(decided.triggers)),
        (decided.without_secret, "end_secrets", {"trigger_ids": decided.without_secret}),
        (
            decided.new_secrets,
            "insert_secrets",
            {
                "trigger_ids": [hook.trigger_id for hook in decided.new_secrets],
                "numbers": [hook.secret_number for hook in decided.new_secrets],
            },
        ),
        (
            decided.connectors,
            "upsert_connectors",
            {
                "connector_ids": [spec.id for spec in decided.connectors],
                "specs": [spec.to_json() for spec in decided.connectors],
            },
        ),
        (decided.queues, "upsert_queues", _queue_columns(decided.queues)),
        (
            decided.event_types,
            "insert_event_types",
            {
                "event_types": [one.spec.type for one in decided.event_types],
                "versions": [one.version for one in decided.event_types],
                "specs": [one.spec.to_json() for one in decided.event_types],
            },
        ),
    ]
    return [(name, parameters) for rows, name, parameters in steps if rows]


def _by_trigger(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], list[WebhookSecret]]:
    found: dict[tuple[str, str], list[WebhookSecret]] = {}
    for row in rows:
        secret = WebhookSecret(row["number"], row["expires_at"])
        found.setdefault((row["project_id"], row["trigger_id"]), []).append(secret)
    return found


def _bundle_columns(decided: Plan) -> dict[str, Any]:
    return {
        "digests": [bundle.digest for bundle in decided.bundles],
        "files": [json.dumps(bundle.files, ensure_ascii=False) for bundle in decided.bundles],
    }


def _definition_columns(decided: Plan) -> dict[str, Any]:
    new = decided.definitions
    return {
        "workflow_ids": [one.spec.workflow_id for one in new],
        "versions": [one.spec.version for one in new],
        "revisions": [one.revision for one in new],
        "labels": [one.spec.label for one in new],
        "kinds": [one.spec.kind for one in new],
        "specs": [one.spec.to_json() for one in new],
        "checksums": [one.checksum for one in new],
        "digests": [one.spec.bundle_digest for one in new],
    }


def _trigger_columns(triggers: Sequence[TriggerSpec]) -> dict[str, Any]:
    return {
        "trigger_ids": [spec.id for spec in triggers],
        "types": [spec.type for spec in triggers],
        "event_types": [spec.event for spec in triggers],
        "workflow_ids": [spec.workflow for spec in triggers],
        "pinned_versions": [spec.version for spec in triggers],
        "specs": [spec.to_json() for spec in triggers],
        "declared_by": [declared_by(spec) for spec in triggers],
    }


def _queue_columns(queues: Sequence[QueueSpec]) -> dict[str, Any]:
    return {
        "queue_ids": [spec.id for spec in queues],
        "limits": [spec.max_concurrency for spec in queues],
        "orderings": [spec.ordering for spec in queues],
        "attempts": [spec.max_attempts for spec in queues],
    }


def _snapshot(
    version: int, triggers: Sequence[Trigger], queues: Sequence[Mapping[str, Any]], definitions: Sequence[Definition]
) -> CatalogSnapshot:
    """`definitions` are in order of publication: of one version the last is in force, of all the highest."""
    by_event: dict[tuple[str, str], list[Trigger]] = {}
    for trigger in triggers:
        if trigger.type == "event" and trigger.event_type is not None:
            by_event.setdefault((trigger.project_id, trigger.event_type), []).append(trigger)
    latest: dict[tuple[str, str], Definition] = {}
    for one in definitions:
        key = (one.project_id, one.workflow_id)
        if key not in latest or latest[key].version <= one.version:
            latest[key] = one
    return CatalogSnapshot(
        version=version,
        triggers={(one.project_id, one.trigger_id): one for one in triggers},
        by_event=by_event,
        queues={
            (row["project_id"], row["queue_id"]): Queue(
                row["queue_id"], row["max_concurrency"], row["ordering"] == "by-partition", row["max_attempts"]
            )
            for row in queues
        },
        latest=latest,
        by_version={(one.project_id, one.workflow_id, one.version): one for one in definitions},
        by_label={(one.project_id, one.workflow_id, one.label): one for one in definitions},
    )
