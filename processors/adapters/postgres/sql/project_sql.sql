-- Statements that surround a user's statement in the project's own database.

-- name: bound_transaction
-- The first in the transaction: how long the user's statement may run, and one way to print times.
select set_config('statement_timeout', %(statement_timeout)s, true),
       set_config('idle_in_transaction_session_timeout', %(idle_timeout)s, true),
       set_config('timezone', 'UTC', true),
       set_config('datestyle', 'ISO, YMD', true),
       set_config('intervalstyle', 'iso_8601', true),
       set_config('bytea_output', 'hex', true);

-- name: let_go
-- Locks of a session that a statement has taken and never gave back.
select pg_advisory_unlock_all();

-- name: forget_role
-- A role that a statement has taken on.
set session authorization default;

-- name: forget_settings
-- Settings of the session, back to those of its start.
reset all;

-- name: forget_tables
-- Temporary tables stand before all others in every later statement's search path.
discard temporary;

-- name: forget_channels
-- Channels that a statement listens on.
unlisten *;

-- name: forget_cursors
-- Cursors that were held open over a commit.
close all;
