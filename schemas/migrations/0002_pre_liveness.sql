-- Death noticed in seconds, crash loops counted where they happen, late results kept.
-- Why: a lease alone tells of a dead executor after half a minute. Locks: ACCESS EXCLUSIVE on sessions and live_runs
-- for new columns without a rewrite; the indexes are on rows that are rare, but building them reads live_runs.

-- watched: the process holds the advisory lock liveness_key(session_id) on a connection of its own, so that the
-- kernel tells of its end. Sessions that could not take it are known by their lease only.
alter table automation.sessions add column watched boolean not null default false;
-- forgiven: the process said afterwards that it lives, so its runs did not end it.
alter table automation.sessions add column forgiven boolean not null default false;

create function automation.liveness_key(session_id bigint) returns bigint language sql immutable parallel safe
return 4702958889031696384 + session_id;

-- Which session's end put the run back: a process that only lost its session says so, and it is forgiven.
alter table automation.live_runs add column lost_session bigint;
create index live_runs_lost on automation.live_runs (lost_session) where lost_session is not null;

-- Suspects: runs that two lost owners had in common. An executor takes one of them at a time.
create index live_runs_suspects on automation.live_runs (granted_at) where state = 'granted' and crashes >= 2;
create index live_runs_held_suspects on automation.live_runs (session_id) where crashes >= 2;

-- Outcomes that the fence refused. They take no number in the log and change no run.
create table automation.late_attempts (
    late_id bigint generated always as identity primary key,
    run_id text collate "C" not null,
    project_id text,
    fence integer not null,
    step_id text not null,
    attempt integer not null,
    status text not null check (status in ('succeeded', 'failed')),
    idempotency_key text,
    error_code text,
    error text,
    result text,
    cost double precision,
    recorded_at timestamptz not null default clock_timestamp()
);
create index late_attempts_run on automation.late_attempts (run_id);
