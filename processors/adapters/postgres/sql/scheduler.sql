-- What is compared with an index is `statement_timestamp()`: a volatile clock would be asked for each row.

-- name: look
-- One statement a second: is there anything to do, and when is the next timer due (seconds from now).
with recursive ready as (
    (select r.project_id, r.queue_id from automation.live_runs r
      where r.state = 'pending' and r.ready
      order by r.project_id, r.queue_id limit 1)
    union all
    select n.project_id, n.queue_id
      from ready w
     cross join lateral (
           select r.project_id, r.queue_id from automation.live_runs r
            where r.state = 'pending' and r.ready and (r.project_id, r.queue_id) > (w.project_id, w.queue_id)
            order by r.project_id, r.queue_id limit 1
           ) n
), silent as materialized (
    select w.session_id, w.batch
      from (select session_id, batch from automation.sessions
             where alive and watched and pg_postmaster_start_time() < statement_timestamp() - make_interval(secs => %(grace)s)
            offset 0) w
     where pg_try_advisory_xact_lock_shared(automation.liveness_key(w.session_id))
)
select exists (select 1 from automation.live_runs where visible_at <= statement_timestamp()),
       exists (select 1 from automation.sessions where alive and lease_until < statement_timestamp()),
       exists (select 1
                 from ready w
                cross join lateral (
                      select * from automation.queues
                       where queues.project_id = w.project_id and queues.queue_id = w.queue_id
                      offset 0
                      ) q
                where q.running + coalesce((select sum(d.delta) from automation.queue_deltas d
                                             where d.project_id = q.project_id and d.queue_id = q.queue_id), 0)
                      < q.max_concurrency)
           or exists (select 1 from automation.live_runs
                       where state = 'pending' and ready and deadline_at <= statement_timestamp()),
       extract(epoch from least((select min(visible_at) from automation.live_runs where visible_at is not null),
                                (select min(deadline_at) from automation.live_runs
                                  where state = 'pending' and ready and deadline_at is not null))
                          - clock_timestamp())::double precision,
       array(select session_id from silent order by session_id),
       array(select batch from silent order by session_id),
       exists (select 1 from automation.redrives where ended_at is null);

-- name: wake
-- Timers that are due: the run wants its slot back. A class of its own, before runs that never ran.
with due as (
    select run_id from automation.live_runs
     where visible_at <= statement_timestamp()
     order by visible_at
     limit %(most)s
       for no key update skip locked
)
update automation.live_runs r
   set state = 'pending', ready = true, grant_class = 0, visible_at = null
 where r.run_id = any(array(select run_id from due)) and r.session_id is null
returning r.run_id;

-- name: close_dead_sessions
-- Sessions whose lease has passed, and those whose process is gone: nobody holds their lock, and nothing was committed
-- since that was first seen. A batch in flight has the row; it either renews or finds itself dead.
with late as (
    select session_id, lease_until < clock_timestamp() as is_over
      from automation.sessions
     where alive
       and (lease_until < clock_timestamp()
            or (session_id, batch) in (select * from unnest(%(dead)s::bigint[], %(batches)s::bigint[])))
     order by session_id
     limit 100
       for update skip locked
), gone as materialized (
    select session_id, is_over from late
     where is_over or pg_try_advisory_xact_lock_shared(automation.liveness_key(session_id))
)
update automation.sessions s
   set alive = false
  from gone
 where s.session_id = gone.session_id
returning s.session_id, s.owner, case when gone.is_over then 'lease' else 'probe' end;

-- name: regrant
-- The runs of dead sessions keep their slot and their lane, and are granted again with the next fence. A process that
-- gave its session up by itself did not die of them.
with orphan as (
    select r.run_id
      from automation.sessions s
     cross join lateral (
           select run_id from automation.live_runs
            where live_runs.session_id = s.session_id
              for no key update skip locked
           ) r
     where not s.alive
     limit %(most)s
)
update automation.live_runs r
   set state = 'granted', session_id = null, fence = r.fence + 1, granted_at = clock_timestamp(), owner_lost = true,
       lost_session = r.session_id,
       crashes = least(r.crashes + 1, 32000) - coalesce((select s.forgiven from automation.sessions s
                                                          where s.session_id = r.session_id), false)::integer
 where r.run_id = any(array(select run_id from orphan))
returning r.run_id, r.fence, r.lane;

-- name: hungry_queues
-- Queues that have ready runs and free slots, or ready runs whose deadline has passed. Steps from queue to queue through
-- the index of what is ready: what it reads grows with the queues that have ready runs, not with those runs and not with
-- all queues.
with recursive ready as (
    (select r.project_id, r.queue_id from automation.live_runs r
      where r.state = 'pending' and r.ready
      order by r.project_id, r.queue_id limit 1)
    union all
    select n.project_id, n.queue_id
      from ready w
     cross join lateral (
           select r.project_id, r.queue_id from automation.live_runs r
            where r.state = 'pending' and r.ready and (r.project_id, r.queue_id) > (w.project_id, w.queue_id)
            order by r.project_id, r.queue_id limit 1
           ) n
)
select q.project_id, q.queue_id
  from ready w
 cross join lateral (
       select * from automation.queues
        where queues.project_id = w.project_id and queues.queue_id = w.queue_id
       offset 0
       ) q
 where q.running + coalesce((select sum(d.delta) from automation.queue_deltas d
                              where d.project_id = q.project_id and d.queue_id = q.queue_id), 0) < q.max_concurrency
    or (q.project_id, q.queue_id) in (select r.project_id, r.queue_id from automation.live_runs r
                                       where r.state = 'pending' and r.ready and r.deadline_at <= statement_timestamp())
 order by q.project_id, q.queue_id;

-- name: all_queues
-- For the recount.
select project_id, queue_id from automation.queues order by project_id, queue_id;

-- name: sweep_keys
-- Bounded upkeep: keys whose window passed a day ago.
delete from automation.idempotency_keys
 where key_hash = any(array(select key_hash from automation.idempotency_keys
                             where expires_at < statement_timestamp() - interval '1 day' limit %(most)s))
   and expires_at < statement_timestamp() - interval '1 day';

-- name: sweep_inbox
-- Bounded upkeep: events seen longer ago than any topic keeps them.
delete from automation.inbox
 where ctid = any(array(select ctid from automation.inbox
                         where received_at < statement_timestamp() - interval '8 days' limit %(most)s));

-- name: sweep_misses
-- Bounded upkeep: what filters let pass by a week ago.
delete from automation.filter_misses
 where ctid = any(array(select ctid from automation.filter_misses
                         where missed_at < statement_timestamp() - interval '7 days' limit %(most)s));

-- name: sweep_lanes
-- Bounded upkeep: lanes that are empty. Locked rows are left alone, and each is looked at again under its lock.
with idle as (
    select project_id, queue_id, lane from automation.lanes
     where head_seq = tail_seq
     limit %(most)s
       for update skip locked
)
delete from automation.lanes l
 using idle i
 where l.project_id = i.project_id and l.queue_id = i.queue_id and l.lane = i.lane
   and l.head_seq = l.tail_seq;

-- name: sweep_sessions
-- Bounded upkeep: sessions that ended a day ago and own nothing.
delete from automation.sessions s
 where not s.alive and s.lease_until < clock_timestamp() - interval '1 day'
   and not exists (select 1 from automation.live_runs r where r.session_id = s.session_id);

-- name: oldest_snapshot
-- How long ago the oldest open transaction began that keeps dead rows from being cleaned up, in seconds. Those of other
-- roles are seen by a role that has pg_read_all_stats.
select coalesce(extract(epoch from clock_timestamp() - min(t.since)), 0)::double precision
  from (select xact_start as since from pg_stat_activity
         where datid = (select oid from pg_database where datname = current_database()) and pid <> pg_backend_pid()
           and (backend_xmin is not null or backend_xid is not null)
         union all
        select prepared from pg_prepared_xacts where database = current_database()) t;

-- name: sweep_mail
-- Bounded upkeep: mail of runs that have ended.
delete from automation.run_mail
 where mail_id = any(array(select m.mail_id from automation.run_mail m
                            where not exists (select 1 from automation.live_runs r where r.run_id = m.run_id)
                            limit %(most)s));

-- name: find_kept_bodies
-- Which bodies in storage are somebody's.
select reference from automation.stored_bodies where reference = any(%(references)s::text[]);
