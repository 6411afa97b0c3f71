-- How many records of the events topic ingest has read.
select coalesce(sum(next_offset), 0)::bigint from automation.ingest_progress;
