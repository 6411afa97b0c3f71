-- The scheduling plane: making runs, giving them their place, granting. Whoever holds a transaction may call
-- these, in this order, and nothing else grants. Lock order: sessions, queues, keys, inbox, lanes, live_runs,
-- stored_bodies, outbox.

-- name: lock_queues
-- Takes the queues of a batch, sorted; the fold and the grants below look in later statements.
select q.queue_id
  from (select distinct project_id, queue_id
          from unnest(%(projects)s::text[], %(queues)s::text[]) as u (project_id, queue_id)
         order by 1, 2) w
 cross join lateral (
       select queues.queue_id from automation.queues
        where queues.project_id = w.project_id and queues.queue_id = w.queue_id
          for update
       ) q;

-- name: fold_deltas
-- Brings the counters of locked queues up to date with what ends and parks have appended.
with found as (
    select d.delta_id
      from (select distinct project_id, queue_id
              from unnest(%(projects)s::text[], %(queues)s::text[]) as u (project_id, queue_id)) w
     cross join lateral (
           select delta_id from automation.queue_deltas d
            where d.project_id = w.project_id and d.queue_id = w.queue_id
           offset 0
           ) d
), gone as (
    delete from automation.queue_deltas
     where delta_id = any(array(select delta_id from found))
    returning project_id, queue_id, delta
), total as (
    select project_id, queue_id, sum(delta) as delta from gone group by project_id, queue_id
)
update automation.queues q
   set running = q.running + t.delta
  from total t
 where q.project_id = t.project_id and q.queue_id = t.queue_id
   and q.project_id = any(%(projects)s::text[]) and q.queue_id = any(%(queues)s::text[]);

-- name: create_runs
-- Makes the runs whose event this transaction was the first to see and whose key is their own. Runs of ordered
-- lanes take dense numbers under the lane's lock; the first in a free lane takes the turn.
with item as materialized (
    select u.*, coalesce(u.accepted_at, clock_timestamp()) as taken_at
      from unnest(
               %(run_id)s::text[], %(project_id)s::text[], %(workflow_id)s::text[], %(definition_id)s::bigint[],
               %(version)s::text[], %(queue_id)s::text[], %(lane)s::text[], %(ordered)s::boolean[],
               %(event_id)s::text[], %(event_type)s::text[], %(trigger_id)s::text[], %(idempotency_key)s::text[],
               %(partition_key)s::text[], %(correlation_id)s::text[], %(operation_version)s::integer[],
               %(redrive_count)s::integer[], %(occurred_at)s::timestamptz[], %(accepted_at)s::timestamptz[],
               %(input)s::text[], %(deadline)s::double precision[], %(stale_at)s::timestamptz[], %(input_ref)s::text[],
               %(attempt)s::integer[], %(occurred_digits)s::smallint[], %(names_trigger)s::boolean[],
               %(sent_partition_key)s::text[]
           ) with ordinality as u (
               run_id, project_id, workflow_id, definition_id, version, queue_id, lane, ordered, event_id, event_type,
               trigger_id, idempotency_key, partition_key, correlation_id, operation_version, redrive_count,
               occurred_at, accepted_at, input, deadline, stale_at, input_ref, attempt, occurred_digits, names_trigger,
               sent_partition_key, place
           )
     cross join lateral (
           select from automation.inbox i
            where i.consumer = 'ingest' and i.event_id = (u.project_id || '/' || u.event_id) collate "C"
              and i.xid = pg_current_xact_id()
           offset 0
           ) seen
), place as (
    insert into automation.lanes as l (project_id, queue_id, lane, tail_seq, vt)
    select i.project_id, i.queue_id, i.lane, count(*), min(q.vt) + count(*)
      from item i
      join automation.queues q on q.project_id = i.project_id and q.queue_id = i.queue_id
     where i.ordered
     group by i.project_id, i.queue_id, i.lane
     order by i.project_id, i.queue_id, i.lane
        on conflict (project_id, queue_id, lane) do update
       set tail_seq = l.tail_seq + excluded.tail_seq,
           vt = greatest(l.vt, excluded.vt - excluded.tail_seq) + excluded.tail_seq
    returning l.project_id, l.queue_id, l.lane, l.tail_seq, l.vt, l.head_seq
), seated as (
    select i.*,
           p.tail_seq - count(*) over w + row_number() over (w order by i.place) as lane_seq,
           p.vt - count(*) over w + row_number() over (w order by i.place) as seat_vt,
           p.head_seq
      from item i
      join place p on p.project_id = i.project_id and p.queue_id = i.queue_id and p.lane = i.lane
     where i.ordered
    window w as (partition by i.project_id, i.queue_id, i.lane)
    union all
    select i.*, null, null, null
      from item i
     where not i.ordered
)
insert into automation.live_runs (
    run_id, project_id, workflow_id, definition_id, version, state, ready, vt, queue_id, lane, lane_seq, event_id,
    event_type, trigger_id, idempotency_key, partition_key, correlation_id, operation_version, redrive_count,
    occurred_at, accepted_at, deadline_at, stale_at, input, input_ref, attempt, occurred_digits, names_trigger,
    sent_partition_key
)
select run_id, project_id, workflow_id, definition_id, version, 'pending',
       lane_seq is null or lane_seq = head_seq + 1, coalesce(seat_vt, 0), queue_id, lane, lane_seq, event_id,
       event_type, trigger_id, idempotency_key, partition_key, correlation_id, operation_version, redrive_count,
       occurred_at, taken_at, taken_at + make_interval(secs => deadline), stale_at, input, input_ref, attempt,
       occurred_digits, names_trigger, sent_partition_key
  from seated
 order by run_id;

-- name: note_bodies
-- What the runs that were made refer to in storage stays there.
insert into automation.stored_bodies (reference)
select distinct r.input_ref
  from automation.live_runs r
 where r.run_id = any(%(runs)s::text[]) and r.input_ref is not null
 order by r.input_ref
    on conflict do nothing;

-- name: grant_ready
-- Gives the free slots of locked queues to the runs that are ready, in order of class, priority and virtual time.
with free as (
    select q.project_id, q.queue_id, least(greatest(q.max_concurrency - q.running, 0), %(most)s) as slots
      from automation.queues q
      join (select distinct project_id, queue_id
              from unnest(%(projects)s::text[], %(queues)s::text[]) as u (project_id, queue_id)) w
     using (project_id, queue_id)
     where q.project_id = any(%(projects)s::text[]) and q.queue_id = any(%(queues)s::text[])
), chosen as (
    select r.run_id, r.project_id, r.queue_id, r.vt
      from free f
     cross join lateral (
           select l.run_id, l.project_id, l.queue_id, l.vt
             from automation.live_runs l
            where l.project_id = f.project_id and l.queue_id = f.queue_id and l.state = 'pending' and l.ready
            order by l.grant_class, l.prio, l.vt, l.run_id
            limit f.slots
              for no key update skip locked
           ) r
), counted as (
    update automation.queues q
       set running = q.running + c.n, vt = greatest(q.vt, c.vt)
      from (select project_id, queue_id, count(*) as n, max(vt) as vt from chosen group by 1, 2) c
     where q.project_id = c.project_id and q.queue_id = c.queue_id
       and q.project_id = any(%(projects)s::text[]) and q.queue_id = any(%(queues)s::text[])
)
update automation.live_runs r
   set state = 'granted', fence = r.fence + 1, granted_at = clock_timestamp()
 where r.run_id = any(array(select run_id from chosen))  -- a join would be planned for a tenth of the table
returning r.run_id, r.fence, r.lane;

-- name: recount
-- What a locked queue's counter must be: the runs that hold a slot, granted or owned. Repairs any drift. Counts and
-- deltas come from one snapshot: a run that ended in between would be subtracted twice.
with gone as (
    delete from automation.queue_deltas where project_id = %(project)s and queue_id = %(queue)s
)
update automation.queues q
   set running = (select count(*) from automation.live_runs r
                   where r.state = 'granted' and r.project_id = %(project)s and r.queue_id = %(queue)s)
               + (select count(*) from automation.live_runs r
                   where r.session_id is not null and r.project_id = %(project)s and r.queue_id = %(queue)s)
 where q.project_id = %(project)s and q.queue_id = %(queue)s;
