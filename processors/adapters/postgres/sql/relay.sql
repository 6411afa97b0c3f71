-- name: take_shard
-- Become the owner of a shard whose lease is over (or that was ours) in a new epoch.
update automation.relay_shards
   set owner = %(owner)s, epoch = epoch + 1, lease_until = clock_timestamp() + make_interval(secs => %(lease)s)
 where shard = %(shard)s and (lease_until < clock_timestamp() or owner = %(owner)s)
returning epoch, cursor_xid::text::bigint, cursor_id, pg_snapshot_xmax(pg_current_snapshot())::text::bigint;

-- name: renew_shard
-- Lengthen our lease and tell the upper bound of the horizon in the same round trip.
update automation.relay_shards
   set lease_until = clock_timestamp() + make_interval(secs => %(lease)s)
 where shard = %(shard)s and epoch = %(epoch)s and owner is not null
returning epoch, cursor_xid::text::bigint, cursor_id, pg_snapshot_xmax(pg_current_snapshot())::text::bigint;

-- name: upper_bound
-- First look: transactions from here on had no number yet.
select pg_snapshot_xmax(pg_current_snapshot())::text::bigint;

-- name: horizon
-- Second look: how far below the upper bound the oldest open transaction of our writers lies. backend_xid
-- has 32 bits; distances modulo 2^32 stay right over a wraparound, those from 2^31 up are newer than the bound.
select %(upper)s - coalesce(max(distance), 0)
  from (select (%(upper)s - backend_xid::text::bigint) & 4294967295 as distance
          from pg_stat_activity
         where datid = (select oid from pg_database where datname = current_database())
           and usesysid = (select writer_role from automation.installation)
           and backend_xid is not null) open
 where distance < 2147483648;

-- name: next_rows
-- Third look: rows behind the cursor and below the horizon, in order of their transactions.
-- The order names the table: a bare xid would be the answer's number, which no index holds.
select o.xid::text::bigint, o.id, o.topic, o.partition_key, o.headers, o.value
  from automation.outbox o
 where (o.xid, o.id) > (%(xid)s::text::xid8, %(id)s)
   and o.xid < %(horizon)s::text::xid8
   and o.shard = %(shard)s
 order by o.xid, o.id
 limit %(limit)s;

-- name: prefer_order
-- Estimates of a growing table mislead the planner: a sort of everything behind the cursor costs 60 ms a batch.
select set_config('enable_sort', 'off', false), set_config('enable_bitmapscan', 'off', false),
       set_config('enable_seqscan', 'off', false);

-- name: numbers
-- The last number given in each partition.
select topic, partition, seq from automation.relay_partitions;

-- name: topic_ids
-- The topics that ingest has read from: one with another id than these holds nothing of what was published.
select topic, array_agg(distinct topic_id) from automation.ingest_progress group by topic;

-- name: advance
-- Cursor, numbers and lease in one commit, if the epoch is still ours.
with moved as (
    update automation.relay_shards
       set cursor_xid = %(xid)s::text::xid8, cursor_id = %(id)s,
           lease_until = clock_timestamp() + make_interval(secs => %(lease)s)
     where shard = %(shard)s and epoch = %(epoch)s and owner is not null
    returning shard
), kept as (
    insert into automation.relay_partitions (topic, partition, seq)
    select topic, partition, seq
      from moved, unnest(%(topics)s::text[], %(partitions)s::integer[], %(seqs)s::bigint[]) as n (topic, partition, seq)
        on conflict (topic, partition) do update set seq = excluded.seq
)
select count(*) from moved;

-- name: release_shard
-- The lease ends now, if the epoch is still ours.
update automation.relay_shards
   set owner = null, lease_until = '-infinity'
 where shard = %(shard)s and epoch = %(epoch)s;

-- name: may_see_writers
-- Whether open transactions of the writing role are visible to us: without that, rows would be skipped.
select session_user::text, w.rolname::text, pg_has_role(session_user, w.oid, 'usage')
       or pg_has_role(session_user, 'pg_read_all_stats', 'usage')
  from automation.installation i join pg_roles w on w.oid = i.writer_role;

-- name: rewind
-- The broker is new and empty: what is still in the outbox goes out again, and consumers absorb repetitions. Only
-- as far back as they surely remember: eight days after ingest saw an event it may be forgotten, counted while
-- somebody works here, which the sessions tell. What was never sent stays before the cursor.
with last as (
    select coalesce(max(lease_until) filter (where isfinite(lease_until)), clock_timestamp()) as at
      from automation.sessions
), edge as (
    select ((least(at, clock_timestamp()) - interval '7 days') at time zone 'UTC')::date as day from last
), old as (
    select o.xid, o.id
      from automation.outbox o
     where o.day < (select day from edge)
     order by o.xid desc, o.id desc
     limit 1
)
update automation.relay_shards s
   set cursor_xid = b.xid, cursor_id = b.id
  from (select coalesce((select xid from old), '0'::xid8) as xid, coalesce((select id from old), 0) as id) b
 where (b.xid, b.id) < (s.cursor_xid, s.cursor_id);
