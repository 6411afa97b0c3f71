-- name: find_migrations
-- Which migrations this database has, to compare with those that this version ships.
select number, checksum from public.automation_migrations order by number;

-- name: find_run
-- One run's head, live or ended, and whether its cancellation is under way.
select run_id, workflow_id, version, state, event_id, event_type, trigger_id, queue_id, lane, idempotency_key,
       partition_key, correlation_id, operation_version, redrive_count, generation, fence, occurred_at,
       accepted_at, created_at, started_at, visible_at, ended_at,
       exists (select from automation.run_mail m where m.run_id = r.run_id and m.kind = 'cancel')
           as cancel_requested,
       input, result, error_code, error, deadline_at
  from automation.runs r
 where run_id = %(run_id)s and project_id = %(project_id)s;

-- name: find_accepted
-- A run that a door has promised, by the key that stands for it.
select run_id, event_id, idempotency_key, accepted_at
  from automation.idempotency_keys
 where run_id = %(run_id)s and project_id = %(project_id)s
 limit 1;

-- name: find_event
-- When an event of a project was decided.
select received_at from automation.inbox where consumer = 'ingest' and event_id = %(project_id)s || '/' || %(event_id)s;

-- name: find_event_runs
-- The runs of an event. Their ids share its time, or lie within seconds of it: a short range of the primary key.
select run_id, trigger_id, workflow_id, version, state, error_code, accepted_at, ended_at
  from automation.runs
 where run_id between %(first)s and %(last)s and project_id = %(project_id)s and event_id = %(event_id)s
 order by trigger_id, operation_version
 limit %(limit)s;

-- name: find_attempts
-- The newest records of a run; the caller turns them round.
select run_id, generation, seq, kind, step_id, attempt, status, final, idempotency_key, error_code, error,
       result, due_at, started_at, finished_at
  from automation.step_attempts
 where run_id = %(run_id)s and project_id = %(project_id)s
 order by generation desc, seq desc
 limit %(limit)s;

-- name: find_late
-- Outcomes of a run that its fence refused.
select step_id, attempt, fence, status, idempotency_key, error_code, error, result, recorded_at
  from automation.late_attempts
 where run_id = %(run_id)s and project_id = %(project_id)s
 order by late_id desc
 limit %(limit)s;

-- name: count_runs
-- How many runs a filter matches. The run id holds the time, so it prunes months.
select count(*)
  from automation.runs r
 where project_id = %(project_id)s
   and (%(state)s::text is null or state = %(state)s)
   and (%(workflow_id)s::text is null or workflow_id = %(workflow_id)s)
   and (%(since)s::timestamptz is null
        or (accepted_at >= %(since)s
            and run_id >= 'run_' || automation.ulid_time(greatest(%(since)s::timestamptz - interval '2 days', 'epoch'))));

-- name: list_runs
-- One page, newest first: the page is cut before the steps are looked at. What blocks a run stands in its own record.
with page as materialized (
    select run_id, generation, workflow_id, version, state, error_code, event_type, trigger_id, queue_id, lane,
           idempotency_key, partition_key, occurred_at, accepted_at, started_at, visible_at, ended_at
      from automation.runs
     where project_id = %(project_id)s
       and (%(state)s::text is null or state = %(state)s)
       and (%(workflow_id)s::text is null or workflow_id = %(workflow_id)s)
       and (%(since)s::timestamptz is null
            or (accepted_at >= %(since)s
                and run_id >= 'run_' || automation.ulid_time(greatest(%(since)s::timestamptz - interval '2 days', 'epoch'))))
       and (%(after)s::text is null or run_id < %(after)s)
     order by run_id desc
     limit %(limit)s)
select p.run_id, p.workflow_id, p.version, p.state, s.step_id as current_step,
       coalesce(p.error_code, b.error_code, s.error_code) as error_code,
       p.event_type, p.trigger_id, p.queue_id, p.lane, p.idempotency_key, p.partition_key, p.occurred_at,
       p.accepted_at, p.started_at, p.visible_at, p.ended_at
  from page p
  left join lateral (
        select a.step_id, a.error_code
          from automation.step_attempts a
         where a.run_id = p.run_id and a.generation = p.generation
           and left(a.step_id, 1) <> '~' and a.status in ('failed', 'lost', 'opened')
           and p.state not in ('succeeded', 'compensated')
           and not exists (
                select from automation.step_attempts b
                 where b.run_id = p.run_id and b.generation = p.generation and b.step_id = a.step_id
                   and b.seq > a.seq and b.status in ('succeeded', 'cancelled', 'skipped'))
         order by a.seq desc
         limit 1) s on true
  left join lateral (
        select a.error_code
          from automation.step_attempts a
         where p.state = 'blocked' and a.status = 'blocked' and a.run_id = p.run_id and a.generation = p.generation
         order by a.seq desc
         limit 1) b on true
 order by p.run_id desc;

-- name: list_runs_at_step
-- One page of the runs that stand at a step, newest first, with the count of all of them in each row.
with standing as materialized (
    select p.run_id, p.workflow_id, p.version, p.state, s.step_id as current_step,
           coalesce(p.error_code, b.error_code, s.error_code) as error_code, p.event_type, p.trigger_id, p.queue_id, p.lane,
           p.idempotency_key, p.partition_key, p.occurred_at, p.accepted_at, p.started_at, p.visible_at, p.ended_at
      from automation.runs p
      cross join lateral (
            select a.step_id, a.error_code
              from automation.step_attempts a
             where a.run_id = p.run_id and a.generation = p.generation
               and left(a.step_id, 1) <> '~' and a.status in ('failed', 'lost', 'opened')
               and p.state not in ('succeeded', 'compensated')
               and not exists (
                    select from automation.step_attempts b
                     where b.run_id = p.run_id and b.generation = p.generation and b.step_id = a.step_id
                       and b.seq > a.seq and b.status in ('succeeded', 'cancelled', 'skipped'))
             order by a.seq desc
             limit 1) s
      left join lateral (
            select a.error_code
              from automation.step_attempts a
             where p.state = 'blocked' and a.status = 'blocked' and a.run_id = p.run_id and a.generation = p.generation
             order by a.seq desc
             limit 1) b on true
     where p.project_id = %(project_id)s
       and s.step_id = %(step)s
       and (%(state)s::text is null or p.state = %(state)s)
       and (%(workflow_id)s::text is null or p.workflow_id = %(workflow_id)s)
       and (%(since)s::timestamptz is null
            or (p.accepted_at >= %(since)s
                and p.run_id >= 'run_' || automation.ulid_time(greatest(%(since)s::timestamptz - interval '2 days', 'epoch')))))
select (select count(*) from standing) as total, page.*
  from (values (0)) as always
  left join lateral (
        select * from standing
         where (%(after)s::text is null or run_id < %(after)s)
         order by run_id desc
         limit %(limit)s) page on true
 order by page.run_id desc;

-- name: find_queue_place
-- Why a pending run waits: its queue's use and limit, and the runs before it in its lane (counted to 1000).
select q.running + coalesce((select sum(d.delta) from automation.queue_deltas d
                              where d.project_id = r.project_id and d.queue_id = r.queue_id), 0)::integer
           as running,
       q.max_concurrency,
       (select count(*)
          from (select from automation.live_runs o
                 where o.project_id = r.project_id and o.queue_id = r.queue_id and o.lane = r.lane
                   and o.lane_seq < r.lane_seq
                 limit 1000) before)::integer as ahead
  from automation.live_runs r
  join automation.queues q on q.project_id = r.project_id and q.queue_id = r.queue_id
 where r.run_id = %(run_id)s and r.project_id = %(project_id)s;

-- name: find_states
-- The states of many runs at once.
select run_id, state from automation.runs where run_id = any(%(run_ids)s);

-- name: find_ends
-- Which of these runs have ended, and how.
select run_id, state from automation.runs_ended where run_id = any(%(run_ids)s);

-- name: find_ended
-- The heads of those of these runs that have ended.
select run_id, workflow_id, version, state, event_id, event_type, trigger_id, queue_id, lane, idempotency_key,
       partition_key, correlation_id, operation_version, redrive_count, generation, fence, occurred_at,
       accepted_at, created_at, started_at, null::timestamptz as visible_at, ended_at,
       exists (select from automation.run_mail m where m.run_id = r.run_id and m.kind = 'cancel')
           as cancel_requested,
       input, result, error_code, error, deadline_at
  from automation.runs_ended r
 where run_id = any(%(run_ids)s::text[]);

-- name: find_ended_attempts
-- The newest records of those of these runs that have ended.
with ended as materialized (
    select run_id, project_id from automation.runs_ended where run_id = any(%(run_ids)s::text[])
)
select a.*
  from ended e
 cross join lateral (
        select run_id, generation, seq, kind, step_id, attempt, status, final, idempotency_key, error_code, error,
               result, due_at, started_at, finished_at
          from automation.step_attempts s
         where s.run_id = e.run_id and s.project_id = e.project_id
         order by s.generation desc, s.seq desc
         limit %(limit)s) a
 order by a.run_id, a.generation, a.seq;

-- name: find_ended_late
-- The newest outcomes that a fence refused, of those of these runs that have ended. Hardly a run has any: they are looked
-- for first.
select l.run_id, l.step_id, l.attempt, l.fence, l.status, l.idempotency_key, l.error_code, l.error, l.result,
       l.recorded_at
  from (select late.*, row_number() over (partition by late.run_id order by late.late_id desc) as place
          from automation.late_attempts late
         where late.run_id = any(%(run_ids)s::text[])) l
 where l.place <= %(limit)s
   and exists (select from automation.runs_ended e where e.run_id = l.run_id and e.project_id = l.project_id offset 0)
 order by l.late_id;

-- name: find_news
-- The next records behind each of many cursors; each reader gets at most 200 a round.
select w.run_id as cursor_run, w.generation as cursor_generation, w.seq as cursor_seq,
       a.run_id, a.generation, a.seq, a.kind, a.step_id, a.attempt, a.status, a.final, a.idempotency_key,
       a.error_code, a.error, a.result, a.due_at, a.started_at, a.finished_at
  from unnest(%(run_ids)s::text[], %(generations)s::integer[], %(seqs)s::integer[]) as w (run_id, generation, seq)
 cross join lateral (
        select * from automation.step_attempts s
         where s.run_id = w.run_id and (s.generation, s.seq) > (w.generation, w.seq)
         order by s.generation, s.seq
         limit 200) a
 order by a.run_id, a.generation, a.seq;

-- name: lock_run
-- The head row of a live run, held until the mail is in: parking and mail never miss each other.
select state from automation.live_runs
 where run_id = %(run_id)s and project_id = %(project_id)s
   for no key update;

-- name: find_end
-- How a run that is not live ended.
select state from automation.runs_ended where run_id = %(run_id)s and project_id = %(project_id)s;

-- name: send_cancel
-- One wish is enough: a second one is not stored.
insert into automation.run_mail (run_id, kind, body, actor)
select %(run_id)s, 'cancel', %(body)s, %(actor)s
 where not exists (select from automation.run_mail where run_id = %(run_id)s and kind = 'cancel');

-- name: wake_run
-- A run that nobody holds is granted again, before others, so that it takes its mail; a held one is told. One
-- that waits for its turn in a lane takes it in its turn: ending before its head would free the lane too early.
update automation.live_runs
   set has_mail = true,
       state = case when parked then 'pending' else state end,
       ready = ready or parked,
       grant_class = case when parked then 0 else grant_class end,
       visible_at = case when parked then null else visible_at end
  from (select session_id is null
               and (state in ('sleeping', 'retrying', 'waiting', 'blocked') or (state = 'pending' and ready))
               as parked
          from automation.live_runs where run_id = %(run_id)s) as now
 where run_id = %(run_id)s;

-- name: record_cancel
-- Who wished a run to end, and why.
insert into automation.audit_log (project_id, actor, action, subject, details)
values (%(project_id)s, %(actor)s, 'run.cancel', %(run_id)s, %(body)s);

-- name: tell_mail
-- Wakes executors for the mail and the scheduler for the grant; slow polls suffice where it is lost.
select pg_notify('a44_mail', ''), pg_notify('a44_pending', '');
