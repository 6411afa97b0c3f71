-- The log and everything that decides: definitions, keys, runs, attempts, lanes, queues, outbox.
-- Why: first schema. Locks: none that matter, all tables are new.
-- Bodies, inputs and results are text: jsonb refuses some stored JSON and changes numbers.

create schema automation;

-- One row: which role writes the log. The relay's horizon looks only at this role's transactions.
create table automation.installation (
    one boolean primary key default true check (one),
    writer_role oid not null,
    system_identifier bigint not null,
    catalog_version bigint not null default 1,
    created_at timestamptz not null default clock_timestamp()
);
insert into automation.installation (writer_role, system_identifier)
select r.oid, s.system_identifier
  from pg_roles r, pg_control_system() s
 where r.rolname = current_user;

-- ---------------------------------------------------------------- definitions

create table automation.tokens (
    token_hash bytea primary key,
    token_id text not null unique,
    project_id text not null,
    name text not null,
    scopes text[] not null,
    created_at timestamptz not null default clock_timestamp(),
    expires_at timestamptz,
    revoked_at timestamptz
);

create table automation.workflows (
    definition_id bigint generated always as identity primary key,
    project_id text not null,
    workflow_id text not null,
    version integer not null check (version >= 1),
    revision integer not null default 0,
    label text not null,
    kind text not null check (kind in ('yaml', 'code')),
    spec text not null,
    checksum bytea not null,
    bundle_digest text,
    published_by text not null,
    published_at timestamptz not null default clock_timestamp(),
    unique (project_id, workflow_id, version, revision)
);

create table automation.bundles (
    project_id text not null,
    digest text not null,
    files text not null,
    stored_at timestamptz not null default clock_timestamp(),
    primary key (project_id, digest)
);

create table automation.triggers (
    project_id text not null,
    trigger_id text not null,
    type text not null check (type in ('event', 'webhook', 'schedule', 'manual')),
    event_type text,
    workflow_id text not null,
    pinned_version integer,
    spec text not null,
    secret_number integer not null default 1,
    declared_by text,
    updated_at timestamptz not null default clock_timestamp(),
    primary key (project_id, trigger_id)
);

create table automation.connectors (
    project_id text not null,
    connector_id text not null,
    spec text not null,
    updated_at timestamptz not null default clock_timestamp(),
    primary key (project_id, connector_id)
);

create table automation.audit_log (
    audit_id bigint generated always as identity primary key,
    project_id text not null,
    actor text not null,
    action text not null,
    subject text not null,
    details text not null,
    at timestamptz not null default clock_timestamp()
);

-- ---------------------------------------------------------------- doors

-- Hash partitions: a unique index cannot span day partitions, which would make two runs at midnight.
create table automation.idempotency_keys (
    key_hash bytea not null,
    project_id text not null,
    idempotency_key text not null,
    key_source text not null,
    body_hash bytea not null,
    event_id text not null,
    run_id text collate "C",
    accepted_at timestamptz not null,
    expires_at timestamptz not null,
    primary key (key_hash)
) partition by hash (key_hash);
do $$
begin
    for n in 0..7 loop
        execute format('create table automation.idempotency_keys_%s partition of automation.idempotency_keys'
                       ' for values with (modulus 8, remainder %s)', n, n);
    end loop;
end $$;
create index idempotency_keys_run on automation.idempotency_keys (run_id);
create index idempotency_keys_expiry on automation.idempotency_keys (expires_at);

-- xid tells a later statement of the same transaction which events it was the first to see.
create table automation.inbox (
    consumer text not null,
    event_id text collate "C" not null,
    xid xid8 not null default pg_current_xact_id(),
    received_at timestamptz not null default clock_timestamp(),
    primary key (consumer, event_id)
);
create index inbox_received on automation.inbox (received_at);

create table automation.ingest_progress (
    topic text not null,
    partition integer not null,
    topic_id text not null,
    next_offset bigint not null,
    seq bigint not null default 0,
    updated_at timestamptz not null default clock_timestamp(),
    primary key (topic, partition)
);

-- ---------------------------------------------------------------- outbox and relay

create table automation.outbox (
    day date not null default (clock_timestamp() at time zone 'UTC')::date,
    xid xid8 not null default pg_current_xact_id(),
    id bigint generated always as identity (cache 1),
    shard smallint not null default 0,
    topic text not null,
    partition_key text not null,
    headers text,
    value bytea not null,
    primary key (xid, id, day)
) partition by range (day);

create table automation.relay_shards (
    shard smallint primary key,
    cursor_xid xid8 not null default '0',
    cursor_id bigint not null default 0,
    owner text,
    epoch bigint not null default 0,
    lease_until timestamptz not null default '-infinity'
);
insert into automation.relay_shards (shard) values (0);

create table automation.relay_partitions (
    topic text not null,
    partition integer not null,
    seq bigint not null,
    primary key (topic, partition)
);

-- ---------------------------------------------------------------- scheduling

create table automation.queues (
    project_id text not null,
    queue_id text not null,
    max_concurrency integer not null default 100 check (max_concurrency >= 1),
    ordering text not null default 'none' check (ordering in ('none', 'by-partition')),
    max_attempts integer not null default 5 check (max_attempts >= 1),
    running integer not null default 0,
    vt bigint not null default 0,
    primary key (project_id, queue_id)
) with (fillfactor = 50);

-- A shared counter row would halve small batches: ends append here, a granter folds under the queue's lock.
create table automation.queue_deltas (
    delta_id bigint generated always as identity primary key,
    project_id text not null,
    queue_id text not null,
    delta integer not null
);
create index queue_deltas_queue on automation.queue_deltas (project_id, queue_id);

-- head_seq: the last number that ended; the run with the next one has the turn. A lane is idle when both are equal.
create table automation.lanes (
    project_id text not null,
    queue_id text not null,
    lane text collate "C" not null,
    head_seq bigint not null default 0,
    tail_seq bigint not null default 0,
    vt bigint not null default 0,
    primary key (project_id, queue_id, lane)
) with (fillfactor = 50);

create table automation.sessions (
    session_id bigint generated always as identity primary key,
    owner text not null,
    epoch integer not null default 1,
    alive boolean not null default true,
    batch bigint not null default 0,
    lease_until timestamptz not null,
    started_at timestamptz not null default clock_timestamp()
) with (fillfactor = 20);
create index sessions_alive on automation.sessions (lease_until) where alive;

-- ---------------------------------------------------------------- runs

create table automation.live_runs (
    run_id text collate "C" primary key,
    project_id text not null,
    workflow_id text not null,
    definition_id bigint not null,
    version text not null,
    state text not null,
    ready boolean not null,
    grant_class smallint not null default 1,
    prio smallint not null default 0,
    vt bigint not null default 0,
    fence integer not null default 0,
    session_id bigint,
    generation integer not null default 1,
    owner_lost boolean not null default false,
    crashes smallint not null default 0,
    has_mail boolean not null default false,
    queue_id text not null,
    lane text collate "C" not null,
    lane_seq bigint,
    event_id text not null,
    event_type text not null,
    trigger_id text not null,
    idempotency_key text not null,
    partition_key text not null,
    correlation_id text,
    operation_version integer not null,
    redrive_count integer not null default 0,
    occurred_at timestamptz not null,
    accepted_at timestamptz not null,
    created_at timestamptz not null default clock_timestamp(),
    granted_at timestamptz,
    started_at timestamptz,
    visible_at timestamptz,
    deadline_at timestamptz,
    input text not null,
    check (state in ('pending', 'granted', 'running', 'sleeping', 'retrying', 'waiting', 'compensating',
                     'awaiting_confirmation', 'blocked'))
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
create index live_runs_ready on automation.live_runs (project_id, queue_id, grant_class, prio, vt, run_id)
    where state = 'pending' and ready;
create index live_runs_lane on automation.live_runs (project_id, queue_id, lane, lane_seq) where lane_seq is not null;
create index live_runs_granted on automation.live_runs (granted_at) where state = 'granted';
create index live_runs_due on automation.live_runs (visible_at) where visible_at is not null;
create index live_runs_session on automation.live_runs (session_id) where session_id is not null;

create table automation.runs_ended (
    run_id text collate "C" not null,
    project_id text not null,
    workflow_id text not null,
    definition_id bigint not null,
    version text not null,
    state text not null,
    fence integer not null,
    generation integer not null,
    queue_id text not null,
    lane text collate "C" not null,
    lane_seq bigint,
    event_id text not null,
    event_type text not null,
    trigger_id text not null,
    idempotency_key text not null,
    partition_key text not null,
    correlation_id text,
    operation_version integer not null,
    redrive_count integer not null,
    occurred_at timestamptz not null,
    accepted_at timestamptz not null,
    created_at timestamptz not null,
    started_at timestamptz,
    ended_at timestamptz not null default clock_timestamp(),
    input text not null,
    result text,
    error_code text,
    error text,
    primary key (run_id),
    check (state in ('succeeded', 'failed', 'compensated', 'compensation_failed', 'cancelled'))
) partition by range (run_id);

-- One row a record of the run: attempts with their outcome, timers, and the run's own control records
-- (step_id '~run'). seq is commit order, delivery order and undo order.
create table automation.step_attempts (
    run_id text collate "C" not null,
    generation integer not null,
    seq integer not null,
    project_id text not null,
    kind text not null,
    step_id text not null,
    attempt integer not null,
    status text not null,
    after integer not null,
    final boolean not null,
    idempotency_key text,
    error_code text,
    error text,
    result text,
    due_at timestamptz,
    cost double precision,
    started_at timestamptz not null,
    finished_at timestamptz,
    recorded_at timestamptz not null default clock_timestamp(),
    primary key (run_id, generation, seq)
) partition by range (run_id);

-- The one way in for everything from outside a run.
create table automation.run_mail (
    mail_id bigint generated always as identity primary key,
    run_id text collate "C" not null,
    kind text not null,
    body text not null,
    actor text not null,
    sent_at timestamptz not null default clock_timestamp()
);
create index run_mail_run on automation.run_mail (run_id);

create table automation.dead_letters (
    dead_letter_id text collate "C" primary key,
    project_id text,
    queue_id text not null,
    run_id text collate "C",
    reason text not null check (reason in ('permanent_error', 'max_attempts_exceeded', 'event_too_old', 'undecodable')),
    error_code text not null,
    summary text not null,
    envelope text,
    raw bytea,
    source_topic text,
    source_partition integer,
    source_offset bigint,
    redrive_count integer not null default 0,
    created_at timestamptz not null default clock_timestamp()
);
create index dead_letters_queue on automation.dead_letters (project_id, queue_id, created_at);

create view automation.runs as
select run_id, project_id, workflow_id, version, state, fence, generation, queue_id, lane, lane_seq, event_id,
       event_type, trigger_id, idempotency_key, partition_key, correlation_id, operation_version, redrive_count,
       occurred_at, accepted_at, created_at, started_at, visible_at, null::timestamptz as ended_at, input,
       null::text as result, null::text as error_code, null::text as error
  from automation.live_runs
union all
select run_id, project_id, workflow_id, version, state, fence, generation, queue_id, lane, lane_seq, event_id,
       event_type, trigger_id, idempotency_key, partition_key, correlation_id, operation_version, redrive_count,
       occurred_at, accepted_at, created_at, started_at, null::timestamptz, ended_at, input, result, error_code, error
  from automation.runs_ended;

-- ---------------------------------------------------------------- functions

-- The first ten characters of a ULID for an instant: partition bounds compare with run ids.
create function automation.ulid_time(at timestamptz) returns text language plpgsql immutable as
$$
declare
    millis bigint := floor(extract(epoch from at) * 1000);
    digits constant text := '0123456789ABCDEFGHJKMNPQRSTVWXYZ';
    answer text := '';
begin
    for n in 1..10 loop
        answer := substr(digits, (millis & 31)::integer + 1, 1) || answer;
        millis := millis >> 5;
    end loop;
    return answer;
end $$;

-- Makes a partition beside the parent and attaches it: CREATE ... PARTITION OF would take ACCESS EXCLUSIVE
-- on the parent. Answers whether it was made; one that exists is left alone.
create function automation.attach_partition(parent text, suffix text, lower_bound text, upper_bound text)
returns boolean language plpgsql as
$$
declare
    child text := parent || '_' || suffix;
begin
    if to_regclass('automation.' || child) is not null then
        return false;
    end if;
    execute format('create table automation.%I (like automation.%I including defaults including constraints)',
                   child, parent);
    execute format('alter table automation.%I attach partition automation.%I for values from (%L) to (%L)',
                   parent, child, lower_bound, upper_bound);
    return true;
end $$;

-- Partitions from the current month and day on, `ahead` of each. Safe to call at any time by anyone.
create function automation.ensure_partitions(ahead integer) returns integer language plpgsql as
$$
declare
    made integer := 0;
    today date := (clock_timestamp() at time zone 'UTC')::date;
    month timestamptz;
    upper_month timestamptz;
begin
    perform pg_advisory_xact_lock(hashtext('automation.ensure_partitions'));
    for n in -1..ahead loop
        month := (date_trunc('month', today::timestamp) + make_interval(months => n)) at time zone 'UTC';
        upper_month := (date_trunc('month', today::timestamp) + make_interval(months => n + 1)) at time zone 'UTC';
        made := made
            + automation.attach_partition('runs_ended', to_char(month at time zone 'UTC', 'YYYYMM'),
                  'run_' || automation.ulid_time(month),
                  'run_' || automation.ulid_time(upper_month))::integer
            + automation.attach_partition('step_attempts', to_char(month at time zone 'UTC', 'YYYYMM'),
                  'run_' || automation.ulid_time(month),
                  'run_' || automation.ulid_time(upper_month))::integer
            + automation.attach_partition('outbox', to_char(today + n, 'YYYYMMDD'),
                  (today + n)::text, (today + n + 1)::text)::integer;
    end loop;
    return made;
end $$;
select automation.ensure_partitions(3);

-- The fence of a batch: raises unless the session is alive in this epoch. Waits for a reaper and the reaper
-- for it, so a dead session commits nothing. clock_timestamp(): now() stands still in a lock wait.
create function automation.hold_session(who bigint, in_epoch integer, lease interval) returns bigint language plpgsql as
$$
declare
    at_batch bigint;
begin
    update automation.sessions
       set batch = batch + 1, lease_until = clock_timestamp() + lease
     where session_id = who and epoch = in_epoch and alive
    returning batch into at_batch;
    if not found then
        raise exception 'session % epoch % is over', who, in_epoch using errcode = 'A4401';
    end if;
    return at_batch;
end $$;
