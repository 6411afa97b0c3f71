-- New runs, granted at once: numbers, lanes and inputs side by side.
insert into bare.runs (run, lane, state, fence, input)
select e.run, e.lane, 1, 1, e.input::jsonb
  from unnest(%s::bigint[], %s::text[], %s::text[]) e (run, lane, input)
    on conflict do nothing
