-- name: create_ledger
-- Which migrations this database has.
create table if not exists public.automation_migrations (
    number integer primary key,
    name text not null,
    checksum text not null,
    applied_at timestamptz not null default clock_timestamp()
);

-- name: lock_ledger
-- One migrating process at a time.
lock table public.automation_migrations in share row exclusive mode;

-- name: find_migration
-- The checksum of a migration that was applied.
select checksum from public.automation_migrations where number = %(number)s;

-- name: record_migration
-- Remembers an applied migration.
insert into public.automation_migrations (number, name, checksum)
values (%(number)s, %(name)s, %(checksum)s);

-- name: applied
-- The numbers of all applied migrations; there is no such table where nothing was ever migrated.
select number from public.automation_migrations;
