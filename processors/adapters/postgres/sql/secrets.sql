-- name: find_live_secrets
-- The secrets of all webhook triggers that live now, the newest of each first.
select project_id, trigger_id, number, expires_at
  from automation.webhook_secrets
 where expires_at is null or expires_at > clock_timestamp()
 order by project_id, trigger_id, number desc;

-- name: find_project_secrets
-- The last number that each trigger of a project ever had, those that are gone included, and the one that new senders use.
select trigger_id, max(number) as last, max(number) filter (where expires_at is null) as newest
  from automation.webhook_secrets
 where project_id = %(project_id)s
 group by trigger_id;

-- name: find_trigger_secrets
-- The secrets that one trigger ever had, the newest first, and which of them live now.
select number, expires_at, expires_at is null or expires_at > clock_timestamp() as lives
  from automation.webhook_secrets
 where project_id = %(project_id)s and trigger_id = %(trigger_id)s
 order by number desc;

-- name: insert_secrets
-- New secrets, by number.
insert into automation.webhook_secrets (project_id, trigger_id, number)
select %(project_id)s, s.trigger_id, s.number
  from unnest(%(trigger_ids)s::text[], %(numbers)s::integer[]) as s (trigger_id, number);

-- name: end_secrets
-- What triggers had dies with them, and no later trigger of that name has it again.
update automation.webhook_secrets
   set expires_at = clock_timestamp()
 where project_id = %(project_id)s and trigger_id = any(%(trigger_ids)s)
   and (expires_at is null or expires_at > clock_timestamp());

-- name: retire_secrets
-- Some secrets of one trigger end, in so many seconds from now.
update automation.webhook_secrets
   set expires_at = clock_timestamp() + make_interval(secs => %(seconds)s)
 where project_id = %(project_id)s and trigger_id = %(trigger_id)s and number = any(%(numbers)s::integer[]);

-- name: record_rotation
-- Who rotated which trigger's secret, and how.
insert into automation.audit_log (project_id, actor, action, subject, details)
values (%(project_id)s, %(actor)s, 'webhook.rotate', %(trigger_id)s, %(details)s);
