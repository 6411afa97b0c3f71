-- Deadlines of runs: kept in history beside the other times, and found where they pass before the run was granted.
-- Why: `live_runs.deadline_at` is there since 0001 and nothing read it. Locks: ACCESS EXCLUSIVE on runs_ended for a new
-- column without a rewrite; SHARE on live_runs while an index is made of rows that do not exist yet.

alter table automation.runs_ended add column deadline_at timestamptz;

create or replace view automation.runs as
select run_id, project_id, workflow_id, version, state, fence, generation, queue_id, lane, lane_seq, event_id,
       event_type, trigger_id, idempotency_key, partition_key, correlation_id, operation_version, redrive_count,
       occurred_at, accepted_at, created_at, started_at, visible_at, null::timestamptz as ended_at, input,
       null::text as result, null::text as error_code, null::text as error, deadline_at
  from automation.live_runs
union all
select run_id, project_id, workflow_id, version, state, fence, generation, queue_id, lane, lane_seq, event_id,
       event_type, trigger_id, idempotency_key, partition_key, correlation_id, operation_version, redrive_count,
       occurred_at, accepted_at, created_at, started_at, null::timestamptz, ended_at, input, result, error_code, error,
       deadline_at
  from automation.runs_ended;

-- Runs that parked wake by `visible_at`, which is never behind their deadline. These are the ones that wait for a slot.
create index live_runs_overdue on automation.live_runs (deadline_at)
    where state = 'pending' and ready and deadline_at is not null;
