-- Dead letters that can be run again: the envelope as it came, what its run was, and who has sent it again.
-- Why: the envelope of a run's letter was put together from the run's row, which did not hold all of it.
-- Locks: ACCESS EXCLUSIVE on live_runs and dead_letters for new columns without a rewrite.

-- What an envelope says and no other column tells: its attempt, how many digits of a second its moment has, whether it
-- named its trigger or was matched by its type, and its own partition key where the trigger gave the run another one. Rows
-- of before say what was written then.
alter table automation.live_runs
    add column attempt integer not null default 1,
    add column occurred_digits smallint not null default 6,
    add column names_trigger boolean not null default true,
    add column sent_partition_key text;

-- What the run of a letter was; letters of before do not say.
alter table automation.dead_letters
    add column workflow_id text,
    add column trigger_id text;

-- One row an order to redrive. paced_at: up to when its letters are spoken for at its rate. xid: the transaction that took
-- the last step, so that its later statements know that they belong to it.
create table automation.redrives (
    redrive_id text collate "C" primary key,
    project_id text not null,
    queue_id text not null,
    operator text not null,
    reason text not null,
    filter text not null,
    allow_stale boolean not null,
    rate double precision not null check (rate > 0),
    letters integer not null,
    redriven integer not null default 0,
    refused integer not null default 0,
    xid xid8,
    paced_at timestamptz not null default clock_timestamp(),
    created_at timestamptz not null default clock_timestamp(),
    ended_at timestamptz
);
create index redrives_under_way on automation.redrives (project_id) where ended_at is null;

-- A letter is in one redrive, whoever asks: the key says so. run_id and done_at once it was redriven.
create table automation.redrive_letters (
    dead_letter_id text collate "C" primary key,
    redrive_id text collate "C" not null,
    place bigint generated always as identity,
    run_id text collate "C",
    done_at timestamptz
);
create index redrive_letters_waiting on automation.redrive_letters (redrive_id, place) where done_at is null;
