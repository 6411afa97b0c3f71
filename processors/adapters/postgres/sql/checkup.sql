-- name: describe_server
-- What a checkup tells of the server; where its data lies only where that is this machine, and to those who may know.
select current_setting('server_version_num')::integer as version_number,
       current_setting('server_version') as version,
       extract(epoch from clock_timestamp())::float8 as seconds,
       array(select name from unnest(array['fsync', 'full_page_writes', 'synchronous_commit']) as name
              where current_setting(name) = 'off') as durability_off,
       case when (inet_server_addr() is null or inet_server_addr() = inet_client_addr())
                 and pg_has_role('pg_read_all_settings', 'usage')
            then current_setting('data_directory') end as data_directory;

-- name: has_ledger
-- Whether anything was ever migrated here.
select to_regclass('public.automation_migrations') is not null;

-- name: read_ledger
-- The migrations that were applied.
select number, name, checksum from public.automation_migrations order by number;
