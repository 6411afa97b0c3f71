-- Partitions of the log: what lacks, what is over. Names in braces are put in by the caller, from this catalogue only.

-- name: missing
-- Partitions that are not there, from the month and day before this one up to so many ahead.
select parent, at from automation.missing_partitions(%(months)s, %(days)s);

-- name: make
-- Makes the partition of an instant; says whether it was missing. Gives up where a lock is not to be had quickly.
select automation.make_partition(%(parent)s, %(at)s);

-- name: days_ahead
-- For how long nothing will be missing.
select t.parent, automation.partition_days_ahead(t.parent)
  from (values ('outbox'), ('runs_ended'), ('step_attempts')) t (parent);

-- name: days_that_are_over
-- Days of the outbox that no consumer could tell from new ones any more, the oldest first, and those that a process
-- died over while it dropped them. The clock is the rewind's: time in which nobody works here does not count.
with last as (
    select coalesce(max(lease_until) filter (where isfinite(lease_until)), clock_timestamp()) as at
      from automation.sessions
), edge as (
    select ((least(at, clock_timestamp()) - make_interval(days => %(keep)s)) at time zone 'UTC')::date as day from last
)
select c.relname::text, i.inhrelid is not null, coalesce(i.inhdetachpending, false)
  from pg_class c
  left join pg_inherits i on i.inhrelid = c.oid
 where c.relnamespace = 'automation'::regnamespace and c.relkind = 'r' and c.relname ~ '^outbox_[0-9]{8}$'
   and c.relname < 'outbox_' || to_char((select day from edge), 'YYYYMMDD')
   and (i.inhrelid is not null or obj_description(c.oid, 'pg_class') = 'wholly sent')
 order by coalesce(i.inhdetachpending, false) desc, c.relname
 limit %(most)s;

-- name: holds_unsent
-- Whether a day holds a row that its shard's relay has not sent, or may have to send again: ingest has not passed the
-- oldest checkpoint that is kept. Reads one row a shard and position, by the key.
select exists (
    select
      from (select shard, cursor_xid, cursor_id from automation.relay_shards
            union all
           (select distinct on (shard) shard, cursor_xid, cursor_id from automation.relay_checkpoints
             order by shard, cursor_xid, cursor_id)) sent
     cross join lateral (
           select from automation.{day} o
            where o.shard = sent.shard and (o.xid, o.id) > (sent.cursor_xid, sent.cursor_id)
            limit 1
           ) unsent
);

-- name: mark
-- So that whoever finds it detached knows that it may be dropped.
comment on table automation.{day} is 'wholly sent';

-- name: detach
-- Stops nobody: it waits for those who have the table open without being in their way.
alter table automation.outbox detach partition automation.{day} concurrently;

-- name: finish_detaching
-- A detaching that was given up half-way.
alter table automation.outbox detach partition automation.{day} finalize;

-- name: drop
-- Nobody reads it any more.
drop table automation.{day};
