-- A record's dead letter keeps its key and its headers beside its value.
-- Why: a CloudEvent in binary mode has its attributes in headers: its value alone is no event. Headers are a JSON list of
-- [name, value in base64, or null], as many as fit a bound; `record_left_out` counts what did not fit, the key among it.
-- Locks: ACCESS EXCLUSIVE on dead_letters for new columns without a rewrite.

alter table automation.dead_letters
    add column record_key bytea,
    add column record_headers text,
    add column record_left_out integer not null default 0;
