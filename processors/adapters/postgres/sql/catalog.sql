-- name: find_version
-- A number that changes with every publication.
select catalog_version from automation.installation;

-- name: find_triggers
-- All triggers in force.
select project_id, trigger_id, type as type_, event_type, workflow_id, pinned_version, spec
  from automation.triggers
 order by project_id, trigger_id;

-- name: find_queues
-- All queues.
select project_id, queue_id, max_concurrency, ordering, max_attempts from automation.queues;

-- name: find_definitions_after
-- The versions that were published since the last look; they never change.
select definition_id, project_id, workflow_id, version, revision, label, kind, spec, bundle_digest, published_at
  from automation.workflows
 where definition_id > %(after)s
 order by definition_id;

-- name: find_event_types_after
-- Versions of event types since the last look; they never change, and of a type the last is in force.
select schema_id, project_id, event_type, version, spec
  from automation.event_types
 where schema_id > %(after)s
 order by schema_id;

-- name: find_definition
-- One version by its number.
select spec, kind, bundle_digest from automation.workflows where definition_id = %(definition_id)s;

-- name: find_bundle
-- The files of a code workflow.
select files from automation.bundles where project_id = %(project_id)s and digest = %(digest)s;

-- name: find_connector
-- One connector.
select spec from automation.connectors where project_id = %(project_id)s and connector_id = %(connector_id)s;

-- name: lock_catalog
-- One publication at a time: numbers of definitions are in order of commit.
select catalog_version from automation.installation for update;

-- name: find_project_versions
-- What of a project's workflows is published.
select definition_id, workflow_id, version, revision, checksum
  from automation.workflows
 where project_id = %(project_id)s
 order by definition_id;

-- name: find_project_triggers
-- A project's triggers, to compare with.
select trigger_id, spec, declared_by
  from automation.triggers
 where project_id = %(project_id)s;

-- name: find_project_connectors
-- A project's connectors, to compare with.
select connector_id, spec from automation.connectors where project_id = %(project_id)s;

-- name: find_project_queues
-- A project's queues, to compare with.
select queue_id, max_concurrency, ordering, max_attempts
  from automation.queues
 where project_id = %(project_id)s;

-- name: find_project_event_types
-- The newest version of each of a project's event types, to compare with.
select distinct on (event_type) event_type, version, spec
  from automation.event_types
 where project_id = %(project_id)s
 order by event_type, version desc;

-- name: insert_bundles
-- The same digest is the same content.
insert into automation.bundles (project_id, digest, files)
select %(project_id)s, b.digest, b.files
  from unnest(%(digests)s::text[], %(files)s::text[]) as b (digest, files)
    on conflict (project_id, digest) do nothing;

-- name: insert_definitions
-- New versions.
insert into automation.workflows
       (project_id, workflow_id, version, revision, label, kind, spec, checksum, bundle_digest, published_by)
select %(project_id)s, d.workflow_id, d.version, d.revision, d.label, d.kind, d.spec, d.checksum, d.bundle_digest,
       %(actor)s
  from unnest(%(workflow_ids)s::text[], %(versions)s::integer[], %(revisions)s::integer[], %(labels)s::text[],
              %(kinds)s::text[], %(specs)s::text[], %(checksums)s::bytea[], %(digests)s::text[])
       with ordinality
       as d (workflow_id, version, revision, label, kind, spec, checksum, bundle_digest, at)
 order by d.at;

-- name: delete_triggers
-- Triggers that the newest version of their workflow file no longer declares.
delete from automation.triggers where project_id = %(project_id)s and trigger_id = any(%(trigger_ids)s);

-- name: upsert_triggers
-- New and changed triggers.
insert into automation.triggers
       (project_id, trigger_id, type, event_type, workflow_id, pinned_version, spec, declared_by)
select %(project_id)s, t.trigger_id, t.type, t.event_type, t.workflow_id, t.pinned_version, t.spec, t.declared_by
  from unnest(%(trigger_ids)s::text[], %(types)s::text[], %(event_types)s::text[], %(workflow_ids)s::text[],
              %(pinned_versions)s::integer[], %(specs)s::text[], %(declared_by)s::text[])
       as t (trigger_id, type, event_type, workflow_id, pinned_version, spec, declared_by)
    on conflict (project_id, trigger_id) do update
   set type = excluded.type, event_type = excluded.event_type, workflow_id = excluded.workflow_id,
       pinned_version = excluded.pinned_version, spec = excluded.spec, declared_by = excluded.declared_by,
       updated_at = clock_timestamp();

-- name: upsert_connectors
-- New and changed connectors.
insert into automation.connectors (project_id, connector_id, spec)
select %(project_id)s, c.connector_id, c.spec
  from unnest(%(connector_ids)s::text[], %(specs)s::text[]) as c (connector_id, spec)
    on conflict (project_id, connector_id) do update
   set spec = excluded.spec, updated_at = clock_timestamp();

-- name: upsert_queues
-- New and changed queues; what runs in them stays counted.
insert into automation.queues (project_id, queue_id, max_concurrency, ordering, max_attempts)
select %(project_id)s, q.queue_id, q.max_concurrency, q.ordering, q.max_attempts
  from unnest(%(queue_ids)s::text[], %(limits)s::integer[], %(orderings)s::text[], %(attempts)s::integer[])
       as q (queue_id, max_concurrency, ordering, max_attempts)
 order by q.queue_id
    on conflict (project_id, queue_id) do update
   set max_concurrency = excluded.max_concurrency, ordering = excluded.ordering,
       max_attempts = excluded.max_attempts;

-- name: insert_event_types
-- New versions of event types; those before stay, to be looked up.
insert into automation.event_types (project_id, event_type, version, spec, declared_by)
select %(project_id)s, e.event_type, e.version, e.spec, %(actor)s
  from unnest(%(event_types)s::text[], %(versions)s::integer[], %(specs)s::text[]) as e (event_type, version, spec)
 order by e.event_type;

-- name: raise_version
-- Tells every process that the catalog changed.
update automation.installation set catalog_version = catalog_version + 1;

-- name: record_publication
-- Who published what.
insert into automation.audit_log (project_id, actor, action, subject, details)
values (%(project_id)s, %(actor)s, 'publish', %(project_id)s, %(details)s);
