-- A topic that is about to get more partitions is held for a moment: the relay publishes nothing to it until ingest has
-- read what is there.
-- Why: under load a relay that goes on publishing is never read up, and partitions could not be added in order. The hold
-- ends by itself. Locks: ACCESS EXCLUSIVE on relay_topics, which has a few rows, for a new column without a rewrite.

alter table automation.relay_topics add column held_until timestamptz;
