-- name: find_rates
-- The projects with a limit of their own; a short list.
select project_id, events_per_second from automation.projects where events_per_second is not null;

-- name: list_projects
-- A page of the known projects by name, with what is their own. An operator's question, not a door's.
select k.project_id, p.dedup_window_hours, p.events_per_second, p.redrive_rate, p.updated_at
  from (select project_id collate "C" as project_id from automation.tokens
        union
        select project_id collate "C" from automation.workflows
        union
        select project_id from automation.projects) k
  left join automation.projects p using (project_id)
 where k.project_id > %(after)s::text collate "C"
 order by k.project_id
 limit %(limit)s;

-- name: find_project
-- One known project.
select k.project_id, p.dedup_window_hours, p.events_per_second, p.redrive_rate, p.updated_at
  from (select %(project_id)s::text collate "C" as project_id) k
  left join automation.projects p using (project_id)
 where p.project_id is not null
    or exists (select from automation.tokens t where t.project_id = k.project_id)
    or exists (select from automation.workflows w where w.project_id = k.project_id);

-- name: make_row
-- A row to lock, for a project that is known.
insert into automation.projects (project_id)
select %(project_id)s::text
 where exists (select from automation.tokens where project_id = %(project_id)s)
    or exists (select from automation.workflows where project_id = %(project_id)s)
on conflict do nothing;

-- name: change_figures
-- Sets those figures that were told, and writes down what they were and are.
with before as (
    select project_id, dedup_window_hours, events_per_second, redrive_rate
      from automation.projects
     where project_id = %(project_id)s
       for update
), changed as (
    update automation.projects p
       set dedup_window_hours = case when %(sets_dedup_window_hours)s then %(dedup_window_hours)s::double precision
                                     else p.dedup_window_hours end,
           events_per_second = case when %(sets_events_per_second)s then %(events_per_second)s::double precision
                                    else p.events_per_second end,
           redrive_rate = case when %(sets_redrive_rate)s then %(redrive_rate)s::double precision
                               else p.redrive_rate end,
           updated_at = clock_timestamp()
      from before b
     where p.project_id = b.project_id
    returning p.project_id, p.dedup_window_hours, p.events_per_second, p.redrive_rate, p.updated_at,
              json_build_object('dedup_window_hours', b.dedup_window_hours,
                                'events_per_second', b.events_per_second,
                                'redrive_rate', b.redrive_rate) as was
), written as (
    insert into automation.audit_log (project_id, actor, action, subject, details)
    select project_id, %(actor)s, 'project.set', project_id,
           json_build_object('before', was, 'after', json_build_object('dedup_window_hours', dedup_window_hours,
                             'events_per_second', events_per_second,
                             'redrive_rate', redrive_rate), 'reason', %(reason)s::text)::text
      from changed
)
select project_id, dedup_window_hours, events_per_second, redrive_rate, updated_at from changed;
