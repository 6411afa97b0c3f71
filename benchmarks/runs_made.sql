-- How many runs in ordered lanes wait for their turn or for an executor.
select count(*) from automation.live_runs where queue_id = 'q_bench_lanes' and state in ('pending', 'granted');
