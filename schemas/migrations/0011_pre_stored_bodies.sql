-- Runs whose input is too large to travel: it lies in storage, and the row says where.
-- Why: a body over 256 KB goes through Kafka and Postgres as a reference. stored_bodies remembers what runs refer to, so
-- that the sweep of the storage asks one small table and not the history. Locks: ACCESS EXCLUSIVE on live_runs and
-- runs_ended for a new column without a rewrite.

alter table automation.live_runs add column input_ref text;
alter table automation.runs_ended add column input_ref text;

create table automation.stored_bodies (
    reference text collate "C" primary key,
    noted_at timestamptz not null default clock_timestamp()
);
