-- Statements that surround a user's statement in the project's own database.

-- name: bound_transaction
-- The first in the transaction: how long the user's statement may run, and one way to print times.
select set_config('statement_timeout', %(statement_timeout)s, true),
       set_config('idle_in_transaction_session_timeout', %(idle_timeout)s, true),
       set_config('timezone', 'UTC', true),
       set_config('datestyle', 'ISO, YMD', true),
       set_config('intervalstyle', 'iso_8601', true),
       set_config('bytea_output', 'hex', true)
