-- Very much that waits in one queue: a hot lane of 50,000 runs, 5,000 lanes with one ready run each, runs that are
-- granted, owned, asleep and due; and 300 queues with nothing to do.
insert into automation.sessions (owner, lease_until)
values ('executor-1', now() + interval '1 hour'), ('executor-2', now() + interval '1 hour');

insert into automation.live_runs (
    run_id, project_id, workflow_id, definition_id, version, state, ready, vt, queue_id, lane, lane_seq, event_id,
    event_type, trigger_id, idempotency_key, partition_key, operation_version, occurred_at, accepted_at, input,
    granted_at, visible_at, session_id
)
select 'run_' || lpad(n::text, 26, '0'), 'shop', 'wf_orders', 1, '1', state, ready, n, 'q_orders', lane, lane_seq,
       'evt_' || n, 'order.paid', 'trg_orders', n::text, lane, 1, now(), now(), '{"n":1}',
       case when state in ('granted', 'running') then now() end, due, session
  from (
        select n, 'hot', n, 'pending', n = 1, null::timestamptz, null::bigint from generate_series(1, 50000) n
        union all
        select n, 'lane-' || n, 1, 'pending', true, null, null from generate_series(50001, 55000) n
        union all
        select n, 'granted-' || n, 1, 'granted', true, null, null from generate_series(60001, 60300) n
        union all
        select n, 'running-' || n, 1, 'running', true, null, 1 from generate_series(61001, 61100) n
        union all
        select n, 'sleeping-' || n, 1, 'sleeping', true, now() + make_interval(secs => n - 62500), null
          from generate_series(62001, 67000) n
       ) as made (n, lane, lane_seq, state, ready, due, session);

insert into automation.lanes (project_id, queue_id, lane, head_seq, tail_seq)
select project_id, queue_id, lane, 0, max(lane_seq) from automation.live_runs group by project_id, queue_id, lane;

insert into automation.queues (project_id, queue_id, max_concurrency, running) values ('shop', 'q_orders', 1000, 400);
insert into automation.queues (project_id, queue_id) select 'shop', 'q_' || n from generate_series(1, 300) n;

select automation.attach_partition('runs_ended', 'made_up', 'run_0', 'run_01');

-- What was seen and accepted before.
insert into automation.inbox (consumer, event_id) select 'ingest', 'shop/evt_' || n from generate_series(1, 60000) n;
insert into automation.idempotency_keys
select substring(sha256(n::text::bytea) for 16), 'shop', n::text, 'header', '', 'evt_' || n, null, now(),
       now() + interval '1 day'
  from generate_series(1, 60000) n;
