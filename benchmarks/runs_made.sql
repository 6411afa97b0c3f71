-- How many runs wait for their turn or for an executor.
select count(*) from automation.live_runs where state in ('pending', 'granted');
