-- name: take_shard
-- Become the owner of a shard whose lease is over (or that was ours) in a new epoch; tells whether this database
-- was restored from another cluster, whose transactions had other numbers.
update automation.relay_shards
   set owner = %(owner)s, epoch = epoch + 1, lease_until = clock_timestamp() + make_interval(secs => %(lease)s)
 where shard = %(shard)s and (lease_until < clock_timestamp() or owner = %(owner)s)
returning epoch, (select i.system_identifier <> c.system_identifier
                    from automation.installation i, pg_control_system() c);

-- name: renew_shard
-- Lengthens our lease, keeps a checkpoint (a few wait for ingest to pass them; those before the newest passed one go),
-- and tells in the same round trip: topics in which ingest misses numbers, those that are held, and how much waits for
-- how long.
with held as (
    update automation.relay_shards
       set lease_until = clock_timestamp() + make_interval(secs => %(lease)s)
     where shard = %(shard)s and epoch = %(epoch)s and owner is not null
    returning shard, epoch, cursor_xid, cursor_id
), read as materialized (
    select distinct topic from automation.ingest_progress
), passed as materialized (
    select c.cursor_xid, c.cursor_id
      from automation.relay_checkpoints c
      left join automation.ingest_progress p on p.topic = c.topic and p.partition = c.partition
     where c.shard = %(shard)s
     group by c.cursor_xid, c.cursor_id
    having bool_and(coalesce(p.seq, 0) >= c.seq or c.topic not in (select topic from read))
     order by c.cursor_xid desc, c.cursor_id desc
     limit 1
), pruned as (
    delete from automation.relay_checkpoints c
     using held h, passed p
     where c.shard = h.shard and (c.cursor_xid, c.cursor_id) < (p.cursor_xid, p.cursor_id)
), kept as (
    insert into automation.relay_checkpoints (shard, cursor_xid, cursor_id, topic, partition, seq)
    select h.shard, h.cursor_xid, h.cursor_id, n.topic, n.partition, n.seq
      from held h join automation.relay_partitions n on n.shard = h.shard
     where (select count(distinct (c.cursor_xid, c.cursor_id)) from automation.relay_checkpoints c
             where c.shard = %(shard)s) < %(most_checkpoints)s
        on conflict do nothing
)
select h.epoch, h.cursor_xid::text::bigint, h.cursor_id,
       array(select distinct r.topic from automation.relay_requests r),
       array(select t.topic from automation.relay_topics t
              where t.shard = h.shard and t.held_until > clock_timestamp()),
       coalesce((select extract(epoch from clock_timestamp() - min(a.xact_start))::double precision
                   from pg_stat_activity a
                  where a.datid = (select oid from pg_database where datname = current_database())
                    and a.usesysid = (select writer_role from automation.installation)
                    and a.backend_xid is not null and a.pid <> pg_backend_pid()), 0),
       case when first.id is null then 0
            else greatest((select last_value from automation.outbox_id_seq) - h.cursor_id, 1) end,
       coalesce(extract(epoch from clock_timestamp() - first.written_at)::double precision, 0)
  from held h
  left join lateral (
       select o.id, o.written_at
         from automation.outbox o
        where (o.xid, o.id) > (h.cursor_xid, h.cursor_id) and o.shard = h.shard
        order by o.xid, o.id
        limit 1
       ) first on true;

-- name: waits
-- Whether there is anything to look at: a poll of an idle system needs no looks in order.
select exists (
       select from automation.outbox o
        where (o.xid, o.id) > (%(xid)s::text::xid8, %(id)s) and o.shard = %(shard)s
       );

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

-- name: seal_key
-- The key by which ingest knows what the relay has written.
select seal_key from automation.installation;

-- name: numbers
-- The last number given in each partition.
select topic, partition, seq from automation.relay_partitions where shard = %(shard)s;

-- name: topics
-- The topics as they were when they were published to.
select topic, topic_id, partitions from automation.relay_topics where shard = %(shard)s;

-- name: is_read_up
-- Whether ingest has everything that was published to a topic; one that it does not read has nobody to wait for.
select not exists (select from automation.ingest_progress p where p.topic = %(topic)s)
    or not exists (
       select from automation.relay_partitions n
         left join automation.ingest_progress p on p.topic = n.topic and p.partition = n.partition
        where n.shard = %(shard)s and n.topic = %(topic)s and n.seq > coalesce(p.seq, 0)
       );

-- name: unread
-- Partitions in which ingest lacks numbers that were given, and how far it has read in the topic as it is now.
select n.topic, n.partition, n.seq, coalesce(p.seq, 0), coalesce(p.next_offset, 0)
  from automation.relay_partitions n
  join automation.relay_topics t on t.shard = n.shard and t.topic = n.topic
  left join automation.ingest_progress p on p.topic = n.topic and p.partition = n.partition
 where n.shard = %(shard)s and n.seq > coalesce(p.seq, 0) and coalesce(p.topic_id, t.topic_id) = t.topic_id
   and n.topic in (select topic from automation.ingest_progress);

-- name: advance
-- Cursor, numbers, topics as they were used, dead letters and lease in one commit, if the epoch is still ours.
with moved as (
    update automation.relay_shards
       set cursor_xid = %(xid)s::text::xid8, cursor_id = %(id)s,
           lease_until = clock_timestamp() + make_interval(secs => %(lease)s)
     where shard = %(shard)s and epoch = %(epoch)s and owner is not null
    returning shard
), kept as (
    insert into automation.relay_partitions as p (shard, topic, partition, seq, highest)
    select shard, topic, partition, seq, seq
      from moved, unnest(%(topics)s::text[], %(partitions)s::integer[], %(seqs)s::bigint[]) as n (topic, partition, seq)
        on conflict (shard, topic, partition) do update
       set seq = excluded.seq, highest = greatest(p.highest, excluded.seq)
), used as (
    insert into automation.relay_topics (shard, topic, topic_id, partitions)
    select shard, topic, topic_id, partitions
      from moved, unnest(%(used)s::text[], %(used_ids)s::text[], %(used_partitions)s::integer[])
                  as u (topic, topic_id, partitions)
        on conflict (shard, topic) do update set topic_id = excluded.topic_id, partitions = excluded.partitions
), buried as (
    insert into automation.dead_letters (dead_letter_id, queue_id, reason, error_code, summary, raw, source_topic)
    select dead_letter_id, 'relay', 'permanent_error', error_code, summary, raw, topic
      from moved, unnest(%(dead_letter_id)s::text[], %(error_code)s::text[], %(summary)s::text[], %(raw)s::bytea[],
                         %(dead_topic)s::text[]) as d (dead_letter_id, error_code, summary, raw, topic)
        on conflict do nothing
)
select count(*) from moved;

-- name: release_shard
-- The lease ends now, if the epoch is still ours.
update automation.relay_shards
   set owner = null, lease_until = '-infinity'
 where shard = %(shard)s and epoch = %(epoch)s;

-- name: may_see_writers
-- Whether open transactions of the writing role are visible to us: without that, rows would be skipped. In a database
-- that was restored from another cluster that role is not known before the shard is taken.
select session_user::text, w.rolname::text, i.system_identifier <> c.system_identifier
       or pg_has_role(session_user, w.oid, 'usage') or pg_has_role(session_user, 'pg_read_all_stats', 'usage')
  from automation.installation i cross join pg_control_system() c left join pg_roles w on w.oid = i.writer_role;

-- name: go_back
-- These topics (all, where none are told) miss records: what they held goes out again, and consumers absorb
-- repetitions. Where only ingest reads them, from the newest checkpoint that it has passed, with the numbers of then.
-- Else as far back as consumers surely remember: eight days after ingest saw an event it may be forgotten, counted
-- while somebody works here, which the sessions tell. Numbers of topics that ingest reads then follow what it has.
-- What was never sent stays before the cursor.
with held as materialized (
    select shard, cursor_xid, cursor_id
      from automation.relay_shards
     where shard = %(shard)s and (%(epoch)s::bigint is null or (epoch = %(epoch)s and owner is not null))
       for update
), read as materialized (
    select topic, partition, seq from automation.ingest_progress
), missing as materialized (
    select topic
      from unnest(coalesce(%(topics)s::text[], array(select distinct topic from automation.relay_partitions))) u (topic)
), passed as (
    select c.cursor_xid, c.cursor_id
      from automation.relay_checkpoints c
      left join read r on r.topic = c.topic and r.partition = c.partition
     where c.shard = %(shard)s
       and not exists (select from missing m where m.topic not in (select topic from read))
     group by c.cursor_xid, c.cursor_id
    having bool_and(coalesce(r.seq, 0) >= c.seq or c.topic not in (select topic from missing))
     order by c.cursor_xid desc, c.cursor_id desc
     limit 1
), edge as (
    select ((least(coalesce(max(lease_until) filter (where isfinite(lease_until)), clock_timestamp()),
                   clock_timestamp()) - interval '7 days') at time zone 'UTC')::date as day
      from automation.sessions
), old as (
    select o.xid, o.id
      from automation.outbox o
     where o.day < (select day from edge) and o.shard = %(shard)s
     order by o.xid desc, o.id desc
     limit 1
), goal as materialized (
    select cursor_xid as xid, cursor_id as id, true as is_checkpoint from passed
     union all
    select coalesce(o.xid, '0'), coalesce(o.id, 0), false
      from held left join old o on true
     where not exists (select from passed)
), moved as (
    update automation.relay_shards s
       set cursor_xid = g.xid, cursor_id = g.id
      from held h, goal g
     where s.shard = h.shard and (g.xid, g.id) < (h.cursor_xid, h.cursor_id)
), numbered as (
    update automation.relay_partitions n
       set seq = case when w.is_checkpoint then w.then_seq when w.is_read then least(n.seq, w.read_seq) else n.seq end
      from (select p.shard, p.topic, p.partition, g.is_checkpoint, coalesce(c.seq, 0) as then_seq,
                   coalesce(r.seq, 0) as read_seq,
                   p.topic in (select topic from missing) and p.topic in (select topic from read) as is_read
              from held h
             cross join goal g
              join automation.relay_partitions p on p.shard = h.shard
              left join read r on r.topic = p.topic and r.partition = p.partition
              left join automation.relay_checkpoints c
                on c.shard = p.shard and (c.cursor_xid, c.cursor_id) = (g.xid, g.id)
               and c.topic = p.topic and c.partition = p.partition) w
     where n.shard = w.shard and n.topic = w.topic and n.partition = w.partition
), overtaken as (
    delete from automation.relay_checkpoints c
     using held h, goal g
     where c.shard = h.shard and (c.cursor_xid, c.cursor_id) > (g.xid, g.id)
), answered as (
    delete from automation.relay_requests r using held h, missing m where r.topic = m.topic
)
select count(*) from held;

-- name: wait_as_long_as_it_takes
-- Stamping a large outbox may take longer than a transaction of ours usually may.
set local transaction_timeout = 0;

-- name: stamp_again
-- In a database that was restored from another cluster, transactions of before are counted differently. They get
-- numbers that no transaction has, below all others: what was sent the first, what was not the second. Ids keep the
-- order inside; a row with a higher id than the cursor's is sent again rather than skipped. The writing role may have
-- another number in this cluster, too: it is the one that owns the tables.
with held as materialized (
    select shard from automation.relay_shards where shard = %(shard)s and epoch = %(epoch)s for update
), stamped as (
    update automation.outbox o
       set xid = case when (o.xid, o.id) <= (s.cursor_xid, s.cursor_id) and o.id <= s.cursor_id
                      then '3'::xid8 else '4'::xid8 end
      from automation.relay_shards s
     where s.shard = o.shard and exists (select from held)
), placed as (
    update automation.relay_shards
       set cursor_xid = '3',
           lease_until = case when shard = %(shard)s then clock_timestamp() + make_interval(secs => %(lease)s)
                              else lease_until end
     where exists (select from held)
), forgotten as (
    delete from automation.relay_checkpoints where exists (select from held)
)
update automation.installation
   set system_identifier = (select system_identifier from pg_control_system()),
       writer_role = (select relowner from pg_class where oid = 'automation.outbox'::regclass)
 where exists (select from held);
