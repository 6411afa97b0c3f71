-- Redrives that a person stops half way, and a cap of redrives that is one project's own.
-- Why: an order that does harm had to run to its end. Its letters that were not redriven are free again when it is stopped.
-- Locks: ACCESS EXCLUSIVE on redrives and projects for new columns without a rewrite; both have few rows.

alter table automation.redrives
    add column stopped_by text,
    add column stop_reason text;
create index redrives_of_project on automation.redrives (project_id, redrive_id);

-- Letters a second that all redrives of the project may take together; null: the installation's.
alter table automation.projects
    add column redrive_rate double precision check (redrive_rate > 0 and redrive_rate <= 100000);
