-- How many runs sleep, and how many are in a step.
select count(*) filter (where state = 'sleeping'), count(*) filter (where state = 'running')
  from automation.live_runs
 where queue_id = 'q_held';
