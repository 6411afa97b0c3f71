-- How many runs have ended.
select count(*) from automation.runs_ended;
