-- Very much that waits in one queue: a hot lane, and lanes with one ready run each, far behind one another in virtual
-- time, so that the hot lane has its turn in between. {hot} runs, {lanes} lanes.
insert into automation.queues (project_id, queue_id, max_concurrency, ordering)
values ('dev', 'q_bench', 100, 'by-partition');

insert into automation.live_runs (
    run_id, project_id, workflow_id, definition_id, version, state, ready, vt, queue_id, lane, lane_seq, event_id,
    event_type, trigger_id, idempotency_key, partition_key, operation_version, occurred_at, accepted_at, input
)
select 'run_' || automation.ulid_time(now()) || lpad(n::text, 16, '0'), 'dev', 'wf_bench', 1, '1', 'pending', ready, vt,
       'q_bench', lane, lane_seq, 'evt_' || n, 'bench.grant', 'trg_bench', 'bench-' || n, lane, 1, now(), now(),
       json_build_object('n', n, 'text', repeat('x', 100))::text
  from (
        select n, 'hot', n, n = 1, n from generate_series(1, {hot}) n
        union all
        select {hot} + n, 'lane-' || n, 1, true, 10 * n from generate_series(1, {lanes}) n
       ) as made (n, lane, lane_seq, ready, vt);

insert into automation.lanes (project_id, queue_id, lane, head_seq, tail_seq, vt)
select project_id, queue_id, lane, 0, max(lane_seq), max(vt) from automation.live_runs group by 1, 2, 3;
