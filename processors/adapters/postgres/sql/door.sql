-- name: take_keys
-- One row a key: won when it is new or its window has passed, and when it was decided by the catalog in force. A
-- project's own window goes before the caller's. Sorted, so that doors never wait in a circle.
insert into automation.idempotency_keys as k (
    key_hash, project_id, idempotency_key, key_source, body_hash, event_id, run_id, accepted_at, expires_at
)
select u.key_hash, u.project_id, u.idempotency_key, u.key_source, u.body_hash, u.event_id, u.run_id,
       clock_timestamp(),
       clock_timestamp() + make_interval(secs => coalesce(p.dedup_window_hours * 3600, u.keep))
  from unnest(
           %(key_hash)s::bytea[], %(project_id)s::text[], %(idempotency_key)s::text[], %(key_source)s::text[],
           %(body_hash)s::bytea[], %(event_id)s::text[], %(run_id)s::text[], %(keep)s::double precision[],
           %(catalog)s::bigint[]
       ) as u (key_hash, project_id, idempotency_key, key_source, body_hash, event_id, run_id, keep, catalog)
  left join automation.projects p on p.project_id = u.project_id collate "C"
 where u.catalog is null or u.catalog = (select catalog_version from automation.installation)
 order by u.key_hash
    on conflict (key_hash) do update
   set key_source = excluded.key_source, body_hash = excluded.body_hash, event_id = excluded.event_id,
       run_id = excluded.run_id, accepted_at = excluded.accepted_at, expires_at = excluded.expires_at
 where k.expires_at <= clock_timestamp();

-- name: read_keys
-- Whose the keys are now, and how old; a statement of its own, to see what the one before waited for. With the catalog
-- in force: by another one nothing is told of keys either.
select key_hash, event_id, run_id, body_hash,
       extract(epoch from clock_timestamp() - accepted_at)::double precision as age,
       (select catalog_version from automation.installation) as catalog
  from automation.idempotency_keys
 where key_hash = any(%(key_hash)s::bytea[]);

-- name: announce_envelopes
-- The envelopes of the keys that were won, in the order in which they came.
insert into automation.outbox (topic, partition_key, value)
select %(topic)s, u.partition_key, u.value
  from unnest(%(key_hash)s::bytea[], %(event_id)s::text[], %(partition_key)s::text[], %(value)s::bytea[])
       with ordinality as u (key_hash, event_id, partition_key, value, place)
  join automation.idempotency_keys k on k.key_hash = u.key_hash and k.event_id = u.event_id
 where u.value is not null and k.key_hash = any(%(key_hash)s::bytea[])
 order by u.place;

-- name: note_events
-- Marks the events of manual runs as seen, so that create_runs makes exactly those whose key was won.
insert into automation.inbox (consumer, event_id)
select 'ingest', u.project_id || '/' || u.event_id
  from unnest(%(key_hash)s::bytea[], %(project_id)s::text[], %(event_id)s::text[])
       as u (key_hash, project_id, event_id)
  join automation.idempotency_keys k on k.key_hash = u.key_hash and k.event_id = u.event_id
 where k.key_hash = any(%(key_hash)s::bytea[])
 order by 2
    on conflict do nothing;

-- name: clock
-- The database's clock.
select clock_timestamp();
