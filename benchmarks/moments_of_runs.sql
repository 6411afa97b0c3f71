-- When each run of one key prefix came to its stations, in seconds since 1970, by its idempotency key.
select r.idempotency_key,
       extract(epoch from r.created_at)::float8, extract(epoch from r.started_at)::float8,
       extract(epoch from s.first_begun)::float8, extract(epoch from s.last_finished)::float8,
       extract(epoch from r.ended_at)::float8
  from automation.runs_ended r
 cross join lateral (
       select min(a.started_at) as first_begun, max(a.finished_at) as last_finished
         from automation.step_attempts a
        where a.run_id = r.run_id and a.step_id in ('one', 'two', 'three')
       ) s
 where r.idempotency_key like 'budget-%';
