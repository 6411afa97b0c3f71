-- What failed for good. Lists hold codes and sentences; what letters hold whole is read by one statement, which also
-- writes down who did. A project that is null asks for what belongs to none.

-- name: count_letters
-- Dead letters of a queue by code and reason, the most frequent first, and how many of them run again.
select d.error_code, d.reason, count(*) as count, count(l.done_at) as redriven, min(d.created_at) as oldest,
       max(d.created_at) as newest
  from automation.dead_letters d
  left join automation.redrive_letters l on l.dead_letter_id = d.dead_letter_id
 where (d.project_id = %(project_id)s::text or (%(project_id)s::text is null and d.project_id is null))
   and (%(queue_id)s::text is null or d.queue_id = %(queue_id)s)
   and (%(error_code)s::text is null or d.error_code = %(error_code)s)
   and (%(since)s::timestamptz is null or d.created_at >= %(since)s)
 group by d.error_code, d.reason
 order by count(*) desc, d.error_code, d.reason;

-- name: list_letters
-- One page, newest first.
select d.dead_letter_id, d.project_id, d.queue_id, d.run_id, d.workflow_id, d.trigger_id, d.reason, d.error_code,
       d.summary, d.redrive_count, d.source_topic, d.source_partition, d.source_offset, d.created_at,
       l.redrive_id, l.run_id as redriven_as, l.done_at as redriven_at
  from automation.dead_letters d
  left join automation.redrive_letters l on l.dead_letter_id = d.dead_letter_id
 where (d.project_id = %(project_id)s::text or (%(project_id)s::text is null and d.project_id is null))
   and (%(queue_id)s::text is null or d.queue_id = %(queue_id)s)
   and (%(error_code)s::text is null or d.error_code = %(error_code)s)
   and (%(since)s::timestamptz is null or d.created_at >= %(since)s)
   and (%(after)s::text is null
        or (d.created_at, d.dead_letter_id) < (select a.created_at, a.dead_letter_id from automation.dead_letters a
                                            where a.dead_letter_id = %(after)s))
 order by d.created_at desc, d.dead_letter_id desc
 limit %(limit)s;

-- name: find_letter
-- One of them, for a reader of its project; one without a project for whoever may see those.
select d.dead_letter_id, d.project_id, d.queue_id, d.run_id, d.workflow_id, d.trigger_id, d.reason, d.error_code,
       d.summary, d.redrive_count, d.source_topic, d.source_partition, d.source_offset, d.created_at,
       l.redrive_id, l.run_id as redriven_as, l.done_at as redriven_at, d.record_key, d.record_headers,
       d.record_left_out
  from automation.dead_letters d
  left join automation.redrive_letters l on l.dead_letter_id = d.dead_letter_id
 where d.dead_letter_id = %(dead_letter_id)s
   and (d.project_id = %(project_id)s or (d.project_id is null and %(sees_unowned)s));

-- name: read_whole
-- What a letter keeps, and in the same transaction the audit row that says who has read it.
with found as (
    select dead_letter_id, envelope, raw
      from automation.dead_letters
     where dead_letter_id = %(dead_letter_id)s
       and (project_id = %(project_id)s or (project_id is null and %(sees_unowned)s))
), written as (
    insert into automation.audit_log (project_id, actor, action, subject, details)
    select %(project_id)s, %(actor)s, 'dead_letter.read', dead_letter_id, '{}' from found
)
select envelope, raw from found;

-- name: count_waiting
-- Letters by queue that have not run again, and the age of the oldest in seconds; a project that is empty text: nobody's.
-- Steps from queue to queue through the index, and reads no more of one than is told.
with recursive queues as (
    (select project_id, queue_id from automation.dead_letters where project_id is not null
      order by project_id, queue_id limit 1)
    union all
    select n.project_id, n.queue_id
      from queues q
     cross join lateral (
           select d.project_id, d.queue_id from automation.dead_letters d
            where (d.project_id, d.queue_id) > (q.project_id, q.queue_id)
            order by d.project_id, d.queue_id limit 1
           ) n
), waiting as (
    select q.project_id, q.queue_id, l.created_at
      from queues q
     cross join lateral (
           select d.created_at from automation.dead_letters d
            where d.project_id = q.project_id and d.queue_id = q.queue_id
              and not exists (select from automation.redrive_letters r
                               where r.dead_letter_id = d.dead_letter_id and r.done_at is not null)
            order by d.created_at limit %(most)s
           ) l
    union all
    select '', q.queue_id, l.created_at
      from (values ('ingest'), ('relay')) as q (queue_id)
     cross join lateral (
           select d.created_at from automation.dead_letters d
            where d.project_id is null and d.queue_id = q.queue_id
            order by d.created_at limit %(most)s
           ) l
)
select project_id, queue_id, count(*), extract(epoch from clock_timestamp() - min(created_at))::double precision
  from waiting
 group by project_id, queue_id;
