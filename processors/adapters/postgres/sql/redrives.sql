-- Redrives. An order takes its letters by their key, so that a letter is in one redrive whoever asks. Each step of the
-- scheduler is one transaction, that is one only where its first statement says so. Lock order: the redrive, then as
-- everywhere (queues, inbox, lanes, live_runs).

-- name: find_candidates
-- Letters of a queue that are in no redrive, the oldest first; the envelope where the filter looks into it.
select d.dead_letter_id, d.run_id, d.workflow_id, d.trigger_id, d.reason, d.error_code, d.redrive_count, d.created_at,
       case when %(whole)s then d.envelope end as envelope
  from automation.dead_letters d
 where d.project_id = %(project_id)s and d.queue_id = %(queue_id)s
   and (%(after)s::text is null
        or (d.created_at, d.dead_letter_id) > (select a.created_at, a.dead_letter_id from automation.dead_letters a
                                                where a.dead_letter_id = %(after)s))
   and not exists (select from automation.redrive_letters l where l.dead_letter_id = d.dead_letter_id)
 order by d.created_at, d.dead_letter_id
 limit %(limit)s;

-- name: lock_rates
-- Orders of one project begin one after the other: each sees what the others have left of the cap.
select pg_advisory_xact_lock(hashtextextended('automation.redrives ' || %(project_id)s::text, 0));

-- name: find_rate_in_use
-- What the redrives of a project that are under way take, in letters a second, and its own cap.
select coalesce(sum(rate), 0)::double precision,
       (select p.redrive_rate from automation.projects p where p.project_id = %(project_id)s::text)
  from automation.redrives
 where project_id = %(project_id)s and ended_at is null;

-- name: start_redrive
-- The letters that nobody else has, the order with their number, and who gave it. No letters: no order.
with taken as (
    insert into automation.redrive_letters (dead_letter_id, redrive_id)
    select u.dead_letter_id, %(redrive_id)s
      from unnest(%(letters)s::text[]) with ordinality as u (dead_letter_id, place)
     order by u.place
        on conflict do nothing
    returning dead_letter_id
), made as (
    insert into automation.redrives (redrive_id, project_id, queue_id, operator, reason, filter, allow_stale, rate, letters)
    select %(redrive_id)s, %(project_id)s, %(queue_id)s, %(operator)s, %(reason)s, %(filter)s, %(allow_stale)s, %(rate)s,
           count(*)
      from taken
    having count(*) > 0
    returning letters
), written as (
    insert into automation.audit_log (project_id, actor, action, subject, details)
    select %(project_id)s, %(operator)s, 'redrive.start', %(redrive_id)s,
           json_build_object('queue', %(queue_id)s::text, 'filter', %(filter)s::text, 'reason', %(reason)s::text,
                             'rate', %(rate)s::double precision, 'letters', letters)::text
      from made
)
select letters from made;

-- name: list_redrives
-- A page of a project's orders, the newest first.
select redrive_id, queue_id,
       case when ended_at is null then 'under_way' when stopped_by is null then 'done' else 'stopped' end as state,
       letters, redriven, refused, case when ended_at is null then letters - redriven - refused else 0 end as waiting,
       rate, operator, reason, filter, allow_stale, created_at, ended_at, stopped_by, stop_reason
  from automation.redrives
 where project_id = %(project_id)s and (ended_at is null or not %(under_way)s)
   and (%(after)s::text is null or redrive_id < %(after)s::text collate "C")
 order by redrive_id desc
 limit %(limit)s;

-- name: find_redrive
-- One of them.
select redrive_id, queue_id,
       case when ended_at is null then 'under_way' when stopped_by is null then 'done' else 'stopped' end as state,
       letters, redriven, refused, case when ended_at is null then letters - redriven - refused else 0 end as waiting,
       rate, operator, reason, filter, allow_stale, created_at, ended_at, stopped_by, stop_reason
  from automation.redrives
 where project_id = %(project_id)s and redrive_id = %(redrive_id)s;

-- name: lock_redrive
-- Whoever takes a step of it now has committed when this returns.
select redrive_id from automation.redrives
 where project_id = %(project_id)s and redrive_id = %(redrive_id)s
   for update;

-- name: stop_redrive
-- The order ends, its letters that were not redriven are free, and the audit log says who wanted that.
with stopped as (
    update automation.redrives
       set ended_at = clock_timestamp(), stopped_by = %(actor)s, stop_reason = %(reason)s
     where project_id = %(project_id)s and redrive_id = %(redrive_id)s and ended_at is null
    returning redrive_id, project_id, redriven, refused
), freed as (
    delete from automation.redrive_letters
     where redrive_id in (select redrive_id from stopped) and done_at is null
    returning dead_letter_id
)
insert into automation.audit_log (project_id, actor, action, subject, details)
select project_id, %(actor)s, 'redrive.stop', redrive_id,
       json_build_object('reason', %(reason)s::text, 'redriven', redriven, 'refused', refused,
                         'freed', (select count(*) from freed))::text
  from stopped;

-- name: find_due
-- Orders under way, and how many letters of each are due: what its rate gave since its pace, of a second at most (or of
-- one letter's time), so that a pause is not made up for.
select *
  from (select redrive_id, project_id, operator, reason, allow_stale, rate, redriven + refused as done,
               least(floor(least(extract(epoch from clock_timestamp() - paced_at)::double precision,
                                 greatest(1, 1 / rate)) * rate + 1e-6),
                     letters - redriven - refused, %(most)s)::integer as allowed,
               created_at
          from automation.redrives
         where ended_at is null) r
 where r.allowed > 0
 order by r.redrive_id;

-- name: find_waiting
-- The next letters of an order, in its order.
select l.dead_letter_id, d.run_id, d.workflow_id, d.trigger_id, d.error_code, d.envelope
  from (select dead_letter_id, place from automation.redrive_letters
         where redrive_id = %(redrive_id)s and done_at is null
         order by place
         limit %(limit)s) l
  left join automation.dead_letters d on d.dead_letter_id = l.dead_letter_id
 order by l.place;

-- name: take_step
-- The step is ours if nobody took it: the counts are those that it was made from.
update automation.redrives
   set redriven = redriven + %(redriven)s, refused = refused + %(refused)s, xid = pg_current_xact_id(),
       paced_at = greatest(paced_at, clock_timestamp() - make_interval(secs => greatest(1, 1 / rate)))
                  + make_interval(secs => (%(redriven)s + %(refused)s) / rate),
       ended_at = case when redriven + refused + %(redriven)s + %(refused)s >= letters then clock_timestamp() end
 where redrive_id = %(redrive_id)s and redriven + refused = %(done)s and ended_at is null;

-- name: note_events
-- The events of the runs are this transaction's, whoever saw them first: a redrive is no repetition.
insert into automation.inbox (consumer, event_id)
select distinct 'ingest', %(project_id)s::text || '/' || u.event_id
  from unnest(%(event_ids)s::text[]) as u (event_id)
 where exists (select from automation.redrives where redrive_id = %(redrive_id)s and xid = pg_current_xact_id())
 order by 2
    on conflict (consumer, event_id) do update set xid = excluded.xid, received_at = excluded.received_at;

-- name: mark_redriven
-- Which run each letter has become, and the audit row that ties the old one to it.
with done as (
    update automation.redrive_letters l
       set run_id = u.run_id, done_at = clock_timestamp()
      from unnest(%(letters)s::text[], %(run_ids)s::text[], %(old_run_ids)s::text[])
           as u (dead_letter_id, run_id, old_run_id)
     where l.dead_letter_id = u.dead_letter_id and l.redrive_id = %(redrive_id)s and l.done_at is null
       and exists (select from automation.redrives where redrive_id = %(redrive_id)s and xid = pg_current_xact_id())
    returning l.dead_letter_id, u.run_id, u.old_run_id, l.place
)
insert into automation.audit_log (project_id, actor, action, subject, details)
select %(project_id)s, %(operator)s, 'dead_letter.redrive', dead_letter_id,
       json_build_object('redrive', %(redrive_id)s::text, 'reason', %(reason)s::text, 'old_run', old_run_id,
                         'new_run', run_id)::text
  from done
 order by place;

-- name: free_letters
-- Letters that could not be run are in no redrive any more, and the audit log says why.
with gone as (
    delete from automation.redrive_letters l
     using unnest(%(letters)s::text[], %(error_codes)s::text[]) as u (dead_letter_id, error_code)
     where l.dead_letter_id = u.dead_letter_id and l.redrive_id = %(redrive_id)s and l.done_at is null
       and exists (select from automation.redrives where redrive_id = %(redrive_id)s and xid = pg_current_xact_id())
    returning l.dead_letter_id, u.error_code
)
insert into automation.audit_log (project_id, actor, action, subject, details)
select %(project_id)s, %(operator)s, 'dead_letter.not_redriven', dead_letter_id,
       json_build_object('redrive', %(redrive_id)s::text, 'reason', %(reason)s::text, 'error_code', error_code)::text
  from gone;
