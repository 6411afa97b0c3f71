"""Case B09: whatever has to be unique is so within its project, as the database itself tells of its indexes."""

from tests.integration.log.lab import Lab

INDEXES = """
select t.relname as table_name, i.relname as index_name,
       array(select a.attname::text from unnest(x.indkey) with ordinality as k (attnum, place)
               join pg_attribute a on a.attrelid = t.oid and a.attnum = k.attnum order by k.place) as columns
  from pg_index x
  join pg_class i on i.oid = x.indexrelid
  join pg_class t on t.oid = x.indrelid
  join pg_namespace n on n.oid = t.relnamespace
 where n.nspname = 'automation' and x.indisunique and not t.relispartition
 order by 1, 2
"""
# Ids that this service makes itself, from the project or at random; nobody else chooses them.
OWN_IDS = {
    "run_id", "dead_letter_id", "redrive_id", "mail_id", "late_id", "audit_id", "definition_id", "schema_id",
    "token_hash", "token_id", "session_id", "delta_id", "id",
}  # fmt: skip
# Hashes and texts that begin with the project, and what the service's own parts are told apart by.
HOLD_THE_PROJECT = {"idempotency_keys": "key_hash", "inbox": "consumer", "stored_bodies": "reference"}
OF_THE_INSTALLATION = {
    "installation", "schema_migrations", "migrations", "projects", "relay_shards", "relay_partitions", "relay_topics",
    "relay_checkpoints", "relay_requests", "ingest_progress", "outbox",
}  # fmt: skip


async def test_b09_every_unique_index_begins_with_the_project(lab: Lab) -> None:
    rows = await lab.rows(INDEXES)
    assert len(rows) > 20
    astray = {}
    for row in rows:
        table, columns = row["table_name"], row["columns"]
        allowed = {"project_id", HOLD_THE_PROJECT.get(table, "project_id")} | OWN_IDS
        if table not in OF_THE_INSTALLATION and columns[0] not in allowed:
            astray[row["index_name"]] = (table, columns)
    assert astray == {}
