-- name: find_rates
-- The projects with a limit of their own; a short list.
select project_id, events_per_second from automation.projects where events_per_second is not null;
