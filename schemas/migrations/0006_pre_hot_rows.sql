-- Rows that change all the time lie where they cost least.
-- Why: a renewal of a lease wrote every index of sessions anew, since `lease_until` was in one of them, and the table
-- grew; without it a renewal stays in its page. No change of a run's state can stay in its page, because partial indexes
-- name the state, so that room kept free there only spread its versions over more pages than a claim has to read.
-- Locks: ACCESS EXCLUSIVE on sessions, which is small, and SHARE UPDATE EXCLUSIVE on live_runs; nothing is rewritten.

drop index automation.sessions_alive;
create index sessions_alive on automation.sessions (session_id) where alive;
alter table automation.live_runs set (fillfactor = 100);
