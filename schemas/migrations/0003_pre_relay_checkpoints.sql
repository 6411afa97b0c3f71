-- What the relay needs to go back to a gap: checkpoints of its numbers, requests from ingest, and topics as it knew them.
-- Why: a gap in the relay's numbers was only logged; a shard is part of what a number belongs to. written_at tells how
-- long a row has waited. Locks: ACCESS EXCLUSIVE on outbox, relay_partitions and ingest_progress for the time of
-- catalogue changes; no table that grows is rewritten (rows of before have no written_at).

alter table automation.outbox add column written_at timestamptz;
alter table automation.outbox alter column written_at set default clock_timestamp();

-- highest: the greatest number ever given. Going back lowers seq; a number above both was made up by somebody else.
alter table automation.relay_partitions
    add column shard smallint not null default 0,
    add column highest bigint not null default 0,
    drop constraint relay_partitions_pkey,
    add primary key (shard, topic, partition);
update automation.relay_partitions set highest = seq;

-- The topics that were published to: one with another id has lost its records, one with more partitions has grown.
create table automation.relay_topics (
    shard smallint not null,
    topic text not null,
    topic_id text not null,
    partitions integer,
    primary key (shard, topic)
);
insert into automation.relay_topics (shard, topic, topic_id)
select distinct on (topic) 0, topic, topic_id from automation.ingest_progress order by topic, updated_at desc;

-- The numbers of every partition where a cursor stood. Kept from the newest one that ingest has passed.
create table automation.relay_checkpoints (
    shard smallint not null,
    cursor_xid xid8 not null,
    cursor_id bigint not null,
    topic text not null,
    partition integer not null,
    seq bigint not null,
    primary key (shard, cursor_xid, cursor_id, topic, partition)
);

-- Ingest misses the number seq: the relay is to go back to before it.
create table automation.relay_requests (
    topic text not null,
    partition integer not null,
    seq bigint not null,
    asked_at timestamptz not null default clock_timestamp(),
    primary key (topic, partition)
);

-- seq is contiguous; seen is the number that was read last, so that each gap is asked for once.
alter table automation.ingest_progress add column seen bigint not null default 0;
update automation.ingest_progress set seen = seq;
