-- The invoices that the demo's events and webhooks are about.
insert into invoices (id)
select 'inv_' || lpad(n::text, 3, '0') from generate_series(0, 19) as n
union all
select 'hook_' || lpad(n::text, 3, '0') from generate_series(0, 49) as n;
