-- What filters let pass by, of triggers that ask for it.

-- name: keep_misses
-- An event that is read again is kept once.
insert into automation.filter_misses (project_id, trigger_id, event_id, event_type, idempotency_key, occurred_at)
select u.project_id, u.trigger_id, u.event_id, u.event_type, u.idempotency_key, u.occurred_at
  from unnest(
           %(project_id)s::text[], %(trigger_id)s::text[], %(event_id)s::text[], %(event_type)s::text[],
           %(idempotency_key)s::text[], %(occurred_at)s::timestamptz[]
       ) as u (project_id, trigger_id, event_id, event_type, idempotency_key, occurred_at)
 order by u.project_id, u.trigger_id, u.event_id
    on conflict do nothing;

-- name: find_misses
-- A trigger's misses, the newest first.
select project_id, trigger_id, event_id, event_type, idempotency_key, occurred_at, missed_at
  from automation.filter_misses
 where project_id = %(project_id)s and trigger_id = %(trigger_id)s
 order by missed_at desc, event_id desc
 limit %(limit)s;
