-- The secrets of webhook triggers by number: which of them live, and until when. The secrets themselves stay derived.
-- Why: `triggers.secret_number` goes with its trigger, so that a trigger published again had its old secret again; and a
-- rotation needs two numbers at a time. What was ever published keeps its number here, and is dead unless in force now.
-- A trigger that a process of before this table publishes gets its row at the next publication, under the same number.
-- Locks: none that matter, the table is new.

create table automation.webhook_secrets (
    project_id text not null,
    trigger_id text not null,
    number integer not null check (number >= 1),
    created_at timestamptz not null default clock_timestamp(),
    expires_at timestamptz,
    primary key (project_id, trigger_id, number)
);
insert into automation.webhook_secrets (project_id, trigger_id, number, created_at)
select project_id, trigger_id, secret_number, updated_at from automation.triggers where type = 'webhook';
insert into automation.webhook_secrets (project_id, trigger_id, number, created_at, expires_at)
select a.project_id, split_part(s.item, ' ', 2), 1, min(a.at), clock_timestamp()
  from automation.audit_log a cross join lateral jsonb_array_elements_text(a.details::jsonb) as s (item)
 where a.action = 'publish' and s.item like 'trigger trg%'
 group by a.project_id, split_part(s.item, ' ', 2)
    on conflict do nothing;
