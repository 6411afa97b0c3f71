-- Deadlines that pass while a run waits for its slot. A run that is owned has a timer in its executor, one that is parked
-- has `visible_at`; both end by the executor's hand.

-- name: grant_overdue
-- Ready runs of locked queues whose time is over need no slot: they are granted beyond the limit, and end when claimed.
-- With `offset 0` the queues are asked of each that is overdue: joined, they might be found among all that are ready.
with chosen as (
    select r.run_id, r.project_id, r.queue_id
      from automation.live_runs r
     where r.state = 'pending' and r.ready and r.deadline_at <= statement_timestamp()
       and exists (select from unnest(%(projects)s::text[], %(queues)s::text[]) as u (project_id, queue_id)
                    where u.project_id = r.project_id and u.queue_id = r.queue_id
                   offset 0)
     order by r.deadline_at
     limit %(most)s
       for no key update of r skip locked
), counted as (
    update automation.queues q
       set running = q.running + c.n
      from (select project_id, queue_id, count(*) as n from chosen group by 1, 2) c
     where q.project_id = c.project_id and q.queue_id = c.queue_id
       and q.project_id = any(%(projects)s::text[]) and q.queue_id = any(%(queues)s::text[])
)
update automation.live_runs r
   set state = 'granted', fence = r.fence + 1, granted_at = clock_timestamp()
 where r.run_id = any(array(select run_id from chosen))
returning r.run_id, r.fence, r.lane;
