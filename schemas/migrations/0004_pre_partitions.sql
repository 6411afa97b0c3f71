-- Partitions three months and 21 days ahead, made one at a time, and by whoever meets the lack of one.
-- Why: days of the outbox were made three ahead, so three days without a scheduler stopped every door.
-- Locks: SHARE UPDATE EXCLUSIVE on outbox, which stops neither readers nor writers, while days are attached.

-- As before, and now it gives up after 200 ms: others must not queue behind a lock that is waited for. A table of the
-- right name that is not attached (somebody took it off) is attached again.
create or replace function automation.attach_partition(parent text, suffix text, lower_bound text, upper_bound text)
returns boolean language plpgsql set lock_timeout = '200ms' as
$$
declare
    child text := parent || '_' || suffix;
begin
    perform pg_advisory_xact_lock(hashtext('automation.ensure_partitions'));
    if exists (select from pg_inherits where inhrelid = to_regclass('automation.' || child)) then
        return false;
    end if;
    if to_regclass('automation.' || child) is null then
        execute format('create table automation.%I (like automation.%I including defaults including constraints)',
                       child, parent);
    end if;
    execute format('alter table automation.%I attach partition automation.%I for values from (%L) to (%L)',
                   parent, child, lower_bound, upper_bound);
    return true;
end $$;

-- The partition that an instant belongs to: days of the outbox, months of run ids.
create function automation.partition_span(parent text, at timestamptz)
returns table (suffix text, lower_bound text, upper_bound text, ends timestamptz) language sql immutable as
$$
    select to_char(day, 'YYYYMMDD'), day::date::text, (day + interval '1 day')::date::text,
           (day + interval '1 day') at time zone 'UTC'
      from (select date_trunc('day', at at time zone 'UTC')) d (day)
     where parent = 'outbox'
    union all
    select to_char(month, 'YYYYMM'), 'run_' || automation.ulid_time(month at time zone 'UTC'),
           'run_' || automation.ulid_time((month + interval '1 month') at time zone 'UTC'),
           (month + interval '1 month') at time zone 'UTC'
      from (select date_trunc('month', at at time zone 'UTC')) m (month)
     where parent in ('runs_ended', 'step_attempts')
$$;

create function automation.has_partition(parent text, at timestamptz) returns boolean language sql stable as
$$
    select exists (
        select
          from automation.partition_span(parent, at) s
          join pg_inherits i on i.inhrelid = to_regclass('automation.' || parent || '_' || s.suffix)
         where i.inhparent = to_regclass('automation.' || parent) and not i.inhdetachpending
    )
$$;

create function automation.make_partition(parent text, at timestamptz) returns boolean language sql as
$$
    select automation.attach_partition(parent, s.suffix, s.lower_bound, s.upper_bound)
      from automation.partition_span(parent, at) s
$$;

-- What lacks from the month and the day before this one on.
create function automation.missing_partitions(months integer, days integer)
returns table (parent text, at timestamptz) language sql stable as
$$
    select w.parent, w.at
      from (
            select p.parent, (date_trunc('month', statement_timestamp() at time zone 'UTC')
                              + make_interval(months => n)) at time zone 'UTC' as at
              from (values ('runs_ended'), ('step_attempts')) p (parent), generate_series(-1, months) n
            union all
            select 'outbox', (date_trunc('day', statement_timestamp() at time zone 'UTC')
                              + make_interval(days => n)) at time zone 'UTC'
              from generate_series(-1, days) n
           ) w
     where not automation.has_partition(w.parent, w.at)
     order by w.at
$$;

-- For how many days from now every instant of a table has its partition.
create function automation.partition_days_ahead(parent text) returns double precision language plpgsql stable as
$$
declare
    covered timestamptz := clock_timestamp();
begin
    while automation.has_partition(parent, covered) loop
        covered := (select ends from automation.partition_span(parent, covered));
    end loop;
    return greatest(extract(epoch from covered - clock_timestamp()) / 86400, 0);
end $$;

-- What the release before this one calls.
create or replace function automation.ensure_partitions(ahead integer) returns integer language sql as
$$
    select count(*) filter (where automation.make_partition(m.parent, m.at))::integer
      from automation.missing_partitions(ahead, greatest(ahead, 21)) m
$$;
select automation.ensure_partitions(3);
