-- From when on the event of a run is too old for its trigger.
-- Why: a dammed queue that flows again must not act on a world that has changed; whoever claims the run first sees it,
-- so no grant looks at the column and no index holds it. Locks: ACCESS EXCLUSIVE on live_runs for a new column without a
-- rewrite.

alter table automation.live_runs add column stale_at timestamptz;
