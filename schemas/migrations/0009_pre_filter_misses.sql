-- What the filters of triggers let pass by, where a trigger asks for it (`dropOnFilterMiss: false`).
-- Why: a miss is a counter and no row, so a filter that is wrong shows nothing. Locks: none, the table is new.

-- Names and times only: the event itself is where its sender keeps it, or still on its topic.
create table automation.filter_misses (
    project_id text not null,
    trigger_id text not null,
    event_id text collate "C" not null,
    event_type text not null,
    idempotency_key text not null,
    occurred_at timestamptz not null,
    missed_at timestamptz not null default clock_timestamp(),
    primary key (project_id, trigger_id, event_id)
);
create index filter_misses_newest on automation.filter_misses (project_id, trigger_id, missed_at);
create index filter_misses_age on automation.filter_misses (missed_at);
