-- Events are known within their project, and projects have settings of their own.
-- Why: producers choose the ids of what they write straight to Kafka, and two projects that chose the same id were taken
-- for one: the second lost its event. `inbox.event_id` is the project and the id, with a stroke between; no project has
-- one in its name. What was seen before is named anew, so that it stays seen when it comes again. A row of `projects` is
-- optional: what it leaves open, the installation's settings say.
-- Locks: rows of inbox, one after the other, which only ingest touches, and only when the same event comes again.

update automation.inbox i
   set event_id = k.project_id || '/' || i.event_id
  from automation.idempotency_keys k
 where i.consumer = 'ingest' and k.event_id = i.event_id;

create table automation.projects (
    project_id text collate "C" primary key,
    dedup_window_hours double precision check (dedup_window_hours > 0 and dedup_window_hours <= 72),
    events_per_second double precision check (events_per_second > 0 and events_per_second <= 1000000),
    updated_at timestamptz not null default clock_timestamp()
);
