-- Growing a topic: it is held, so that ingest reads up to its end, and let go.

-- name: hold_topic
-- The relay publishes nothing more to it once it has heard of this, at the latest a third of its lease later.
update automation.relay_topics
   set held_until = clock_timestamp() + make_interval(secs => %(seconds)s)
 where topic = %(topic)s;

-- name: let_go
-- The relay may go on.
update automation.relay_topics set held_until = null where topic = %(topic)s;

-- name: unread_numbers
-- How many of the relay's records ingest has not read; none of a topic that it does not read.
select coalesce(sum(greatest(n.seq - coalesce(p.seq, 0), 0)), 0)::bigint
  from automation.relay_partitions n
  left join automation.ingest_progress p on p.topic = n.topic and p.partition = n.partition
 where n.topic = %(topic)s
   and exists (select from automation.ingest_progress r where r.topic = %(topic)s);
