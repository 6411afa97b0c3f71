-- History: {attempts} attempts, four of each run that has ended.
insert into automation.step_attempts (
    run_id, generation, seq, project_id, kind, step_id, attempt, status, after, final, idempotency_key, result, cost,
    started_at, finished_at, recorded_at
)
select 'run_' || automation.ulid_time(now()) || lpad((r / 4)::text, 16, '0'), 1, r % 4 + 1, 'dev', 'step',
       'step-' || r % 4, 1, 'succeeded', r % 4, true, 'run-' || r, 'null', 0.001, now(), now(), now()
  from generate_series(0, {attempts} - 1) r;

insert into automation.runs_ended (
    run_id, project_id, workflow_id, definition_id, version, state, fence, generation, queue_id, lane, lane_seq,
    event_id, event_type, trigger_id, idempotency_key, partition_key, operation_version, redrive_count, occurred_at,
    accepted_at, created_at, started_at, input, result
)
select 'run_' || automation.ulid_time(now()) || lpad(r::text, 16, '0'), 'dev', 'wf_bench', 1, '1', 'succeeded', 1, 1,
       'q_bench', 'lane-' || r % 100000, r, 'evt_' || r, 'bench.grant', 'trg_bench', 'bench-' || r, 'lane', 1, 0, now(),
       now(), now(), now(), '{{}}', 'null'
  from generate_series(0, {attempts} / 4 - 1) r;
