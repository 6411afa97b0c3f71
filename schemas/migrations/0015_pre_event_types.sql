-- Projects declare what the data of their event types has to be.
-- Why: data that no workflow can take is refused where it comes in, and not found out step by step. Locks: none, the table
-- is new.

-- Every version stays; of a type the highest is in force. `schema_id` grows in order of publication: processes read what
-- came since they last looked. `spec` is JSON text.
create table automation.event_types (
    project_id text collate "C" not null,
    event_type text collate "C" not null,
    version integer not null check (version >= 1),
    schema_id bigint generated always as identity unique,
    spec text not null,
    declared_by text not null,
    declared_at timestamptz not null default clock_timestamp(),
    primary key (project_id, event_type, version)
);
