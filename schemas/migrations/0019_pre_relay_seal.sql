-- The key by which ingest knows the records that the relay has written.
-- Why: whoever may write to the events topic may write the relay's headers; by them ingest takes a record for one that a
-- door has accepted. A relay of before this migration writes no seal: its records count as direct ones, which take the
-- key that their door took for them. Locks: ACCESS EXCLUSIVE on installation, which has one row, for a new column.

alter table automation.installation
    add column seal_key bytea not null
        default sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8'));
