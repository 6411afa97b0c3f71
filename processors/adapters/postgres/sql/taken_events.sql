-- What a project's events came to, in the order of their ids, which is that of the doors: ranges of the inbox's key, which
-- begins with the project. Events with an id of their producer's are asked for by that id, and stand in no range.

-- name: list_events
-- One page, newest first.
select substr(event_id, length(%(project_id)s::text) + 2) as event_id, received_at
  from automation.inbox
 where consumer = 'ingest' and event_id >= %(project_id)s::text || '/' || %(first)s
   and event_id < %(project_id)s::text || '/' || %(last)s
 order by inbox.event_id desc
 limit %(limit)s;

-- name: find_new_events
-- What a snapshot did not see, oldest first, and the snapshot of now: a row at least.
select s.now::text, substr(e.event_id, length(%(project_id)s::text) + 2) as event_id, e.received_at
  from (select pg_current_snapshot() as now) s
  left join lateral (
       select i.event_id, i.received_at
         from automation.inbox i
        where i.consumer = 'ingest' and i.event_id > %(project_id)s::text || '/' || %(first)s
          and i.event_id < %(project_id)s::text || '/' || %(last)s 
          and not pg_visible_in_snapshot(i.xid, %(snapshot)s::text::pg_snapshot)
        order by i.event_id
        limit %(limit)s
       ) e on true
 order by e.event_id;

-- name: find_runs_of_events
-- The runs of a page of events. Their ids share the events' times: a short range of the primary key for each.
select u.event_id, r.event_type, r.idempotency_key, r.run_id, r.trigger_id, r.workflow_id, r.version, r.state,
       r.error_code, r.accepted_at, r.ended_at
  from unnest(%(event_ids)s::text[], %(firsts)s::text[], %(lasts)s::text[]) as u (event_id, first, last)
 cross join lateral (
       select *
         from automation.runs
        where run_id >= u.first collate "C" and run_id <= u.last collate "C" and project_id = %(project_id)s
          and event_id = u.event_id
        order by trigger_id, operation_version
        limit %(limit)s
       ) r;
