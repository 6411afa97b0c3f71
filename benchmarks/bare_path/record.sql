-- Results of steps: runs, steps and results side by side.
insert into bare.results (run, step, result)
select r.run, r.step, r.result::jsonb from unnest(%s::bigint[], %s::text[], %s::text[]) r (run, step, result)
