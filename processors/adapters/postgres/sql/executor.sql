-- The executor's batch. One pipeline from BEGIN to Sync; the first statement proves the session.
-- Plans are kept from when tables were small, and limits and arrays are guessed as shares of a table. So hot rows are
-- found by `= any(array)` on their key or by a lateral subquery that cannot be pulled up, never by a join alone. Whose
-- they are is asked inside such a subquery: beside `= any(array)` it would be answered by reading the whole session and
-- going through the array for each of its rows, and the guess of one row that comes of it makes joins loops over loops.
-- `coalesce(session_id, 0)` in there keeps the planner from the index of sessions, which holds the whole session each time.
-- Many arrays side by side stand in a select list: as a function in FROM each is written to a store of its own first.

-- name: open_session
-- A new session of this process.
insert into automation.sessions (owner, lease_until)
values (%(owner)s, clock_timestamp() + make_interval(secs => %(lease)s))
returning session_id, epoch;

-- name: resume_session
-- After a broken connection: takes the session into a new epoch and says how far it had come. What an older
-- connection may still have under way is fenced by the epoch.
update automation.sessions
   set epoch = epoch + 1, lease_until = clock_timestamp() + make_interval(secs => %(lease)s)
 where session_id = %(session)s and alive
returning epoch, batch;

-- name: hold_session
-- The fence: raises unless the session is alive in this epoch, and renews its lease.
select automation.hold_session(%(session)s, %(epoch)s, make_interval(secs => %(lease)s));

-- name: claim_hinted
-- Takes granted runs that a command named. Exactly one claim of a grant wins. Suspects wait for claim_any.
with mine as (
    select r.run_id
      from automation.live_runs r
     where r.run_id = any(%(runs)s::text[]) and r.state = 'granted' and r.crashes < 2
     order by r.run_id
       for no key update skip locked
)
update automation.live_runs r
   set state = 'running', session_id = %(session)s, started_at = coalesce(r.started_at, clock_timestamp())
 where r.run_id = any(array(select run_id from mine))
returning r.run_id, r.fence, r.generation, r.project_id, r.workflow_id, r.definition_id, r.version, r.queue_id, r.lane,
          r.lane_seq, r.event_id, r.event_type, r.trigger_id, r.idempotency_key, r.partition_key, r.correlation_id,
          r.operation_version, r.redrive_count, r.occurred_at, r.accepted_at, r.started_at, r.crashes,
          (select q.max_attempts from automation.queues q
            where q.project_id = r.project_id and q.queue_id = r.queue_id),
          r.input,
          r.owner_lost, r.has_mail, r.deadline_at, r.stale_at, r.input_ref, clock_timestamp();

-- name: claim_any
-- Takes the longest granted runs, whether their command came or not. Of the runs that two lost owners had in common a
-- session holds one at a time: if it ends this one too, it is known whose doing it was. Those that are only to end may.
with mine as (
    select r.run_id
      from automation.live_runs r
     where r.state = 'granted' and r.crashes < 2
     order by r.granted_at
     limit %(room)s
       for no key update skip locked
), suspect as (
    select r.run_id
      from automation.live_runs r
     where r.state = 'granted' and r.crashes >= 2
       and not exists (select 1 from automation.live_runs h where h.session_id = %(session)s and h.crashes >= 2)
     order by r.granted_at
     limit 1
       for no key update skip locked
), ending as (
    select r.run_id
      from automation.live_runs r
     where r.state = 'granted' and r.crashes >= 2 and (r.has_mail or r.deadline_at <= statement_timestamp())
     order by r.granted_at
     limit %(room)s
       for no key update skip locked
)
update automation.live_runs r
   set state = 'running', session_id = %(session)s, started_at = coalesce(r.started_at, clock_timestamp())
 where r.run_id = any(array(select run_id from mine union all select run_id from suspect union all select run_id from ending))
returning r.run_id, r.fence, r.generation, r.project_id, r.workflow_id, r.definition_id, r.version, r.queue_id, r.lane,
          r.lane_seq, r.event_id, r.event_type, r.trigger_id, r.idempotency_key, r.partition_key, r.correlation_id,
          r.operation_version, r.redrive_count, r.occurred_at, r.accepted_at, r.started_at, r.crashes,
          (select q.max_attempts from automation.queues q
            where q.project_id = r.project_id and q.queue_id = r.queue_id),
          r.input,
          r.owner_lost, r.has_mail, r.deadline_at, r.stale_at, r.input_ref, clock_timestamp();

-- name: append
-- The records of a batch, in the order of their decisions.
insert into automation.step_attempts (
    run_id, generation, seq, project_id, kind, step_id, attempt, status, after, final, idempotency_key, error_code,
    error, result, due_at, cost, started_at, finished_at, recorded_at
)
select u.run_id, u.generation, u.seq, u.project_id, u.kind, u.step_id, u.attempt, u.status, u.after, u.final, u.key,
       u.error_code, u.error, u.result, u.due_at, u.cost,
       u.at - make_interval(secs => coalesce(u.cost, 0)), case when u.status <> 'opened' then u.at end, u.at
  from (select unnest(%(run_id)s::text[]) as run_id, unnest(%(generation)s::integer[]) as generation,
               unnest(%(seq)s::integer[]) as seq, unnest(%(project_id)s::text[]) as project_id,
               unnest(%(kind)s::text[]) as kind, unnest(%(step_id)s::text[]) as step_id,
               unnest(%(attempt)s::integer[]) as attempt, unnest(%(status)s::text[]) as status,
               unnest(%(after)s::integer[]) as after, unnest(%(final)s::boolean[]) as final,
               unnest(%(key)s::text[]) as key, unnest(%(error_code)s::text[]) as error_code,
               unnest(%(error)s::text[]) as error, unnest(%(result)s::text[]) as result,
               unnest(%(due_at)s::timestamptz[]) as due_at, unnest(%(cost)s::double precision[]) as cost,
               unnest(%(at)s::timestamptz[]) as at) u;

-- name: lock_lanes
-- The lanes of the runs that end, sorted; the statements after this one look.
select l.lane
  from (select distinct u.project_id, u.queue_id, u.lane collate "C" as lane
          from unnest(%(projects)s::text[], %(queues)s::text[], %(lanes)s::text[]) as u (project_id, queue_id, lane)
         order by 1, 2, 3) w
 cross join lateral (
       select lanes.lane from automation.lanes
        where lanes.project_id = w.project_id and lanes.queue_id = w.queue_id and lanes.lane = w.lane
          for update
       ) l;

-- name: lock_runs
-- The head rows of a batch in which some rest, sorted.
select r.run_id
  from (select u.run_id collate "C" as run_id from unnest(%(runs)s::text[]) as u (run_id) order by 1) w
 cross join lateral (
       select l.run_id from automation.live_runs l
        where l.run_id = w.run_id and coalesce(l.session_id, 0) = %(session)s
          for no key update
       ) r;

-- name: end_runs
-- Ends runs: out of the live table, into history; in error: a dead letter with the envelope as it came,
-- its data untouched. Nothing that goes into
-- history is changed by anybody but the session, so that rows need no lock before the delete, which goes by the key.
with ended as materialized (
    select r.*, u.state as outcome, u.result, u.error_code, u.error, u.dead_letter_id, u.reason, u.summary
      from (select unnest(%(run_id)s::text[]) as run_id, unnest(%(state)s::text[]) as state,
                   unnest(%(result)s::text[]) as result, unnest(%(error_code)s::text[]) as error_code,
                   unnest(%(error)s::text[]) as error, unnest(%(dead_letter_id)s::text[]) as dead_letter_id,
                   unnest(%(reason)s::text[]) as reason, unnest(%(summary)s::text[]) as summary) u
     cross join lateral (
           select * from automation.live_runs l
            where l.run_id = u.run_id collate "C" and coalesce(l.session_id, 0) = %(session)s
           offset 0
           ) r
), gone as (
    delete from automation.live_runs where run_id = any(array(select run_id from ended))
), buried as (
    insert into automation.dead_letters (
        dead_letter_id, project_id, queue_id, run_id, workflow_id, trigger_id, reason, error_code, summary, envelope,
        redrive_count
    )
    select dead_letter_id, project_id, queue_id, run_id, workflow_id, trigger_id, reason, error_code, summary,
           left(json_strip_nulls(json_build_object(
               'id', event_id, 'type', event_type, 'idempotency_key', idempotency_key,
               'partition_key', coalesce(sent_partition_key, partition_key),
               'occurred_at', left(to_char(occurred_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US'),
                                   case occurred_digits when 0 then 19 else 20 + occurred_digits end) || 'Z',
               'attempt', attempt, 'trigger_id', case when names_trigger then trigger_id end, 'project_id', project_id,
               'correlation_id', correlation_id, 'operation_version', operation_version,
               'redrive_count', redrive_count))::text, -1)
           || case when input_ref is null then ',"data":' || input || '}' else ',"data":null,' || substr(input, 2) end,
           redrive_count
      from ended
     where dead_letter_id is not null
)
insert into automation.runs_ended (
    run_id, project_id, workflow_id, definition_id, version, state, fence, generation, queue_id, lane, lane_seq,
    event_id, event_type, trigger_id, idempotency_key, partition_key, correlation_id, operation_version, redrive_count,
    occurred_at, accepted_at, created_at, started_at, deadline_at, input, result, error_code, error, input_ref
)
select run_id, project_id, workflow_id, definition_id, version, outcome, fence, generation, queue_id, lane, lane_seq,
       event_id, event_type, trigger_id, idempotency_key, partition_key, correlation_id, operation_version,
       redrive_count, occurred_at, accepted_at, created_at, started_at, deadline_at, input, result, error_code, error,
       input_ref
  from ended;

-- name: announce_letters
-- The dead letters that these ends have made, told as ingest tells those of records. After end_runs.
insert into automation.outbox (topic, partition_key, headers, value)
select %(dead_letters_topic)s, d.dead_letter_id,
       json_build_object('a44-dead-letter-id', d.dead_letter_id, 'a44-error-code', d.error_code,
                         'a44-run-id', d.run_id)::text,
       convert_to(d.envelope, 'UTF8')
  from unnest(%(run_ids)s::text[], %(dead_letter_ids)s::text[]) as u (run_id, dead_letter_id)
  join automation.dead_letters d
    on d.dead_letter_id = u.dead_letter_id collate "C" and d.run_id = u.run_id collate "C"
 where d.dead_letter_id = any(%(dead_letter_ids)s::text[]);

-- name: pass_lanes
-- The turn of a lane goes to its next run, or the lane is free. After end_runs, under lock_lanes.
with ended as materialized (
    select *
      from unnest(%(projects)s::text[], %(queues)s::text[], %(lanes)s::text[], %(lane_seqs)s::bigint[])
           as u (project_id, queue_id, lane, lane_seq)
), next as (
    select n.run_id
      from ended e
     cross join lateral (
           select r.run_id
             from automation.live_runs r
            where r.project_id = e.project_id and r.queue_id = e.queue_id and r.lane = e.lane
              and r.lane_seq > e.lane_seq
            order by r.lane_seq
            limit 1
           ) n
), moved as (
    update automation.lanes l
       set head_seq = e.lane_seq
      from ended e
     where l.project_id = e.project_id and l.queue_id = e.queue_id and l.lane = e.lane
       and l.project_id = any(%(projects)s::text[]) and l.queue_id = any(%(queues)s::text[])
       and l.lane = any(%(lanes)s::text[])
)
update automation.live_runs r
   set ready = true
 where r.run_id = any(array(select run_id from next));

-- name: park_runs
-- Nothing in flight until a timer: the slot goes back, the lane stays. Mail that came meanwhile wakes at once, and the
-- run's deadline wakes whatever waits longer.
with mine as materialized (
    select u.run_id collate "C" as run_id, u.state, u.visible_at
      from unnest(%(run_id)s::text[], %(state)s::text[], %(visible_at)s::timestamptz[]) as u (run_id, state, visible_at)
     cross join lateral (
           select from automation.live_runs l
            where l.run_id = u.run_id collate "C" and coalesce(l.session_id, 0) = %(session)s
           offset 0
           ) held
)
update automation.live_runs r
   set state = m.state, session_id = null, crashes = 0, lost_session = null, owner_lost = false,
       visible_at = case when r.has_mail then clock_timestamp() else least(m.visible_at, r.deadline_at) end
  from mine m
 where r.run_id = m.run_id and r.run_id = any(array(select run_id from mine));

-- name: hand_on
-- The slots of ended and parked runs go to the next ready runs, already running in this session; not where the limit
-- of the queue was lowered below what runs.
with freed as (
    select project_id, queue_id, count(*) as slots
      from unnest(%(projects)s::text[], %(queues)s::text[]) as u (project_id, queue_id)
     group by project_id, queue_id
), mine as (
    select r.run_id, r.project_id, r.queue_id
      from freed f
     cross join lateral (
           select from automation.queues
            where queues.project_id = f.project_id and queues.queue_id = f.queue_id
              and queues.running <= queues.max_concurrency
           offset 0
           ) q
     cross join lateral (
           select l.run_id, l.project_id, l.queue_id
             from automation.live_runs l
            where l.project_id = f.project_id and l.queue_id = f.queue_id and l.state = 'pending' and l.ready
            order by l.grant_class, l.prio, l.vt, l.run_id
            limit least(f.slots, %(room)s)
              for no key update skip locked
           ) r
), given as (
    insert into automation.queue_deltas (project_id, queue_id, delta)
    select f.project_id, f.queue_id, coalesce(m.n, 0) - f.slots
      from freed f
      left join (select project_id, queue_id, count(*) as n from mine group by 1, 2) m using (project_id, queue_id)
     where f.slots > coalesce(m.n, 0)
)
update automation.live_runs r
   set state = 'running', fence = r.fence + 1, granted_at = clock_timestamp(), session_id = %(session)s,
       started_at = coalesce(r.started_at, clock_timestamp())
 where r.run_id = any(array(select run_id from mine))
returning r.run_id, r.fence, r.generation, r.project_id, r.workflow_id, r.definition_id, r.version, r.queue_id, r.lane,
          r.lane_seq, r.event_id, r.event_type, r.trigger_id, r.idempotency_key, r.partition_key, r.correlation_id,
          r.operation_version, r.redrive_count, r.occurred_at, r.accepted_at, r.started_at, r.crashes,
          (select q.max_attempts from automation.queues q
            where q.project_id = r.project_id and q.queue_id = r.queue_id),
          r.input,
          r.owner_lost, r.has_mail, r.deadline_at, r.stale_at, r.input_ref, clock_timestamp();

-- name: announce
-- What the batch tells the world, in the same transaction.
insert into automation.outbox (topic, partition_key, value)
select unnest(%(topics)s::text[]), unnest(%(keys)s::text[]), unnest(%(values)s::bytea[]);

-- name: release_runs
-- A stopping executor gives its runs back: granted again, with the next fence. Some had attempts in flight.
with mine as materialized (
    select u.run_id collate "C" as run_id, u.in_flight
      from unnest(%(run_id)s::text[], %(in_flight)s::boolean[]) as u (run_id, in_flight)
     cross join lateral (
           select from automation.live_runs l
            where l.run_id = u.run_id collate "C" and coalesce(l.session_id, 0) = %(session)s
           offset 0
           ) held
)
update automation.live_runs r
   set state = 'granted', session_id = null, fence = r.fence + 1, granted_at = clock_timestamp(), owner_lost = m.in_flight
  from mine m
 where r.run_id = m.run_id and r.run_id = any(array(select run_id from mine));

-- name: set_crashes
-- How often in a row an owner or a host was lost with the run: 0 once an attempt was committed.
with mine as materialized (
    select u.run_id collate "C" as run_id, u.crashes
      from unnest(%(run_id)s::text[], %(crashes)s::smallint[]) as u (run_id, crashes)
     cross join lateral (
           select from automation.live_runs l
            where l.run_id = u.run_id collate "C" and coalesce(l.session_id, 0) = %(session)s
           offset 0
           ) held
)
update automation.live_runs r
   set crashes = m.crashes, lost_session = null
  from mine m
 where r.run_id = m.run_id and r.run_id = any(array(select run_id from mine));

-- name: give_up_session
-- The session's process has forgotten its runs and lives: the next look of the scheduler grants them again.
update automation.sessions
   set forgiven = true, lease_until = case when alive then '-infinity' else lease_until end
 where session_id = %(session)s
returning alive;

-- name: forgive_lost
-- The session was closed although its process lives: its runs are not to blame.
with lost as materialized (
    select run_id from automation.live_runs where lost_session = %(session)s and crashes > 0
), mine as (
    select r.run_id from automation.live_runs r
     where r.run_id = any(array(select run_id from lost)) and r.lost_session = %(session)s and r.crashes > 0
     order by r.run_id
       for no key update
)
update automation.live_runs set crashes = crashes - 1, lost_session = null
 where run_id = any(array(select run_id from mine));

-- name: take_liveness
-- A lock of the connection, not of a transaction: it says that this process is there.
select pg_try_advisory_lock(automation.liveness_key(%(session)s));

-- name: watch_session
-- From now on the end of the process can be seen.
update automation.sessions set watched = true where session_id = %(session)s and alive and not watched;

-- name: unwatch_session
-- Its end cannot be seen: the lease decides.
update automation.sessions set watched = false where session_id = %(session)s and watched;

-- name: backend
-- Which server process answers.
select pg_backend_pid();

-- name: keep_late
-- Outcomes that the fence refused, for people and for undoing what they did.
insert into automation.late_attempts (
    run_id, project_id, fence, step_id, attempt, status, idempotency_key, error_code, error, result, cost
)
select u.run_id,
       coalesce((select l.project_id from automation.live_runs l where l.run_id = u.run_id),
                (select e.project_id from automation.runs_ended e where e.run_id = u.run_id)),
       u.fence, u.step_id, u.attempt, u.status, u.key, u.error_code, u.error, u.result, u.cost
  from unnest(
           %(run_id)s::text[], %(fence)s::integer[], %(step_id)s::text[], %(attempt)s::integer[], %(status)s::text[],
           %(key)s::text[], %(error_code)s::text[], %(error)s::text[], %(result)s::text[], %(cost)s::double precision[]
       ) as u (run_id, fence, step_id, attempt, status, key, error_code, error, result, cost);

-- name: close_session
-- The end of a session that holds nothing any more.
update automation.sessions set alive = false where session_id = %(session)s and epoch = %(epoch)s;

-- name: read_logs
-- The records of runs that were claimed again, for the fold.
select run_id, seq, kind, step_id, attempt, status, after, final, due_at, idempotency_key, result, error, cost,
       recorded_at
  from automation.step_attempts
 where run_id = any(%(runs)s::text[])
 order by run_id, generation, seq;

-- name: read_mail
-- Unread mail of this session's runs.
select m.mail_id, m.run_id, m.kind, m.body, m.actor
  from automation.live_runs r
  join automation.run_mail m on m.run_id = r.run_id
 where r.session_id = %(session)s and r.has_mail
 order by m.mail_id;

-- name: lock_mailboxes
-- The head rows of the mail that this batch acts on: whoever sends more waits, or is seen by the next statement.
select run_id from automation.live_runs
 where run_id = any(array(select run_id from automation.run_mail where mail_id = any(%(mail)s::bigint[])))
   and session_id = %(session)s
 order by run_id
   for no key update;

-- name: consume_mail
-- The mail that this batch acts on. What came later keeps the flag up. Under lock_mailboxes.
with gone as (
    delete from automation.run_mail where mail_id = any(%(mail)s::bigint[]) returning run_id
)
update automation.live_runs r
   set has_mail = exists (select 1 from automation.run_mail m
                           where m.run_id = r.run_id and not m.mail_id = any(%(mail)s::bigint[]))
 where r.run_id = any(array(select run_id from gone)) and r.session_id = %(session)s;

-- name: owned_runs
-- Everything that a session owns: the answer to a batch whose own answer was lost with its connection.
with limits as materialized (
    select project_id, queue_id, max_attempts from automation.queues
)
select r.run_id, r.fence, r.generation, r.project_id, r.workflow_id, r.definition_id, r.version, r.queue_id, r.lane,
       r.lane_seq, r.event_id, r.event_type, r.trigger_id, r.idempotency_key, r.partition_key, r.correlation_id,
       r.operation_version, r.redrive_count, r.occurred_at, r.accepted_at, r.started_at, r.crashes, q.max_attempts,
       r.input, r.owner_lost, r.has_mail, r.deadline_at, r.stale_at, r.input_ref
  from automation.live_runs r
  join limits q on q.project_id = r.project_id and q.queue_id = r.queue_id
 where r.session_id = %(session)s;
