-- name: read_progress
-- Where each partition of a topic goes on.
select partition, topic_id, next_offset, seq, seen from automation.ingest_progress where topic = %(topic)s;

-- name: read_seal_key
-- The key by which the relay's records are known.
select seal_key from automation.installation;

-- name: is_unread
-- Whether the relay has sent anything to these topics that was not read.
select exists (
    select from automation.relay_partitions n
      left join automation.ingest_progress p on p.topic = n.topic and p.partition = n.partition
     where n.topic = any(%(topics)s::text[]) and n.seq > coalesce(p.seq, 0)
);

-- name: hold_progress
-- One writer a partition at a time: the row is locked before anything is looked at.
select partition, next_offset, seq, topic_id from automation.ingest_progress
 where topic = %(topic)s and partition = any(%(partitions)s::integer[])
 order by partition
   for update;

-- name: advance
-- The offsets, in the transaction that made the runs.
insert into automation.ingest_progress as p (topic, partition, topic_id, next_offset, seq, seen)
select %(topic)s, u.partition, u.topic_id, u.next_offset, u.seq, u.seen
  from unnest(%(partitions)s::integer[], %(topic_ids)s::text[], %(next_offsets)s::bigint[], %(seqs)s::bigint[],
              %(seen)s::bigint[]) as u (partition, topic_id, next_offset, seq, seen)
 order by u.partition
    on conflict (topic, partition) do update
   set topic_id = excluded.topic_id, updated_at = clock_timestamp(),
       next_offset = case when p.topic_id = excluded.topic_id then greatest(p.next_offset, excluded.next_offset)
                          else excluded.next_offset end,
       seq = greatest(p.seq, excluded.seq), seen = excluded.seen;

-- name: ask_again
-- The relay is to go back; it answers by removing the request.
insert into automation.relay_requests (topic, partition, seq)
select %(topic)s, u.partition, u.seq
  from unnest(%(partitions)s::integer[], %(seqs)s::bigint[]) as u (partition, seq)
 order by u.partition
    on conflict (topic, partition) do nothing;

-- name: note_events
-- Marks events as seen, and tells what became of direct records whose key or event was there before; the others were the
-- first. What a door accepted is in force, whosever its key is by now; of direct records those are left out whose key
-- belongs to another event. The same key with another body is a dead letter, never a silent drop. Producers choose ids
-- of their own: one is known within its project only. What only a letter needs is looked up in the arrays for it, and
-- `not in` is a table of hashes whatever the planner believes, where a join may be a loop over loops.
with told as materialized (
    select u.project_id || '/' || u.event_id as event, u.direct, u.place::integer as place, k.event_id as first_event_id,
           k.event_id = u.event_id as is_own, k.body_hash as first_body_hash, k.body_hash <> u.body_hash as is_conflict
      from unnest(
               %(key_hash)s::bytea[], %(project_id)s::text[], %(event_id)s::text[], %(direct)s::boolean[],
               %(body_hash)s::bytea[]
           ) with ordinality as u (key_hash, project_id, event_id, direct, body_hash, place)
      left join automation.idempotency_keys k
        on u.direct and k.key_hash = u.key_hash and k.key_hash = any(%(key_hash)s::bytea[])
), noted as (
    insert into automation.inbox (consumer, event_id)
    select 'ingest', t.event
      from told t
     where not t.direct or (t.is_own and not t.is_conflict)
     order by 2
        on conflict do nothing
    returning event_id
), buried as (
    insert into automation.dead_letters (
        dead_letter_id, project_id, queue_id, reason, error_code, summary, raw, source_topic, source_partition,
        source_offset, record_key, record_headers, record_left_out
    )
    select (%(dead_letter_id)s::text[])[t.place], (%(project_id)s::text[])[t.place], 'ingest', 'permanent_error',
           'E_IDEMPOTENCY_CONFLICT', 'the key was first used by ' || t.first_event_id || ' with another body',
           (%(raw)s::bytea[])[t.place], (%(topic)s::text[])[t.place], (%(partition)s::integer[])[t.place],
           (%(record_offset)s::bigint[])[t.place], (%(key)s::bytea[])[t.place], (%(headers)s::text[])[t.place],
           (%(left_out)s::integer[])[t.place]
      from told t
     where t.is_conflict
     order by t.place
        on conflict do nothing
    returning dead_letter_id, error_code, raw
), announced as (
    insert into automation.outbox (topic, partition_key, headers, value)
    select %(dead_letters_topic)s, b.dead_letter_id,
           json_build_object('a44-dead-letter-id', b.dead_letter_id, 'a44-error-code', b.error_code)::text, b.raw
      from buried b
)
select t.place, t.is_conflict, t.first_body_hash
  from told t
 where t.is_conflict or not t.is_own or (t.is_own and t.event not in (select n.event_id from noted n));

-- name: keep_bodies
-- What letters of this harvest refer to in storage stays there: a redrive needs it.
insert into automation.stored_bodies (reference)
select u.reference from unnest(%(references)s::text[]) as u (reference) order by 1
    on conflict do nothing;

-- name: bury
-- Records that no run could be made of, and the announcement of each. What an event came to is told once: not where it
-- comes again after it was decided.
with buried as (
    insert into automation.dead_letters (
        dead_letter_id, project_id, queue_id, workflow_id, trigger_id, reason, error_code, summary, envelope, raw,
        source_topic, source_partition, source_offset, record_key, record_headers, record_left_out
    )
    select u.dead_letter_id, u.project_id, 'ingest', u.workflow_id, u.trigger_id, u.reason, u.error_code, u.summary,
           u.envelope, u.raw, u.topic, u.partition, u.record_offset, u.key, u.headers, u.left_out
      from unnest(
               %(dead_letter_id)s::text[], %(project_id)s::text[], %(workflow_id)s::text[], %(trigger_id)s::text[],
               %(reason)s::text[], %(error_code)s::text[], %(summary)s::text[], %(envelope)s::text[], %(raw)s::bytea[],
               %(topic)s::text[], %(partition)s::integer[], %(record_offset)s::bigint[], %(key)s::bytea[],
               %(headers)s::text[], %(left_out)s::integer[], %(event)s::text[]
           ) as u (
               dead_letter_id, project_id, workflow_id, trigger_id, reason, error_code, summary, envelope, raw, topic,
               partition, record_offset, key, headers, left_out, event
           )
     where u.event is null
        or exists (
           select from automation.inbox i
            where i.consumer = 'ingest' and i.event_id = (u.project_id || '/' || u.event) collate "C"
              and i.xid = pg_current_xact_id()
           offset 0
           )
     order by u.dead_letter_id
        on conflict do nothing
    returning dead_letter_id, error_code, raw
), announced as (
    insert into automation.outbox (topic, partition_key, headers, value)
    select %(dead_letters_topic)s, b.dead_letter_id,
           json_build_object('a44-dead-letter-id', b.dead_letter_id, 'a44-error-code', b.error_code)::text,
           coalesce(b.raw, '\x'::bytea)
      from buried b
)
select dead_letter_id from buried;

-- name: postpone
-- Records that wait on a retry topic: each once in its turn, however often it is read meanwhile.
with fresh as (
    insert into automation.inbox (consumer, event_id)
    select 'ingest.retries', u.letter_id
      from unnest(%(letter_id)s::text[]) as u (letter_id)
     order by 2
        on conflict do nothing
    returning event_id
)
insert into automation.outbox (topic, partition_key, headers, value)
select u.topic, u.partition_key, u.headers, u.value
  from unnest(%(letter_id)s::text[], %(topic)s::text[], %(partition_key)s::text[], %(headers)s::text[],
              %(value)s::bytea[]) with ordinality as u (letter_id, topic, partition_key, headers, value, place)
  join fresh f on f.event_id = u.letter_id
 order by u.place;
