"""Where workflow code lives in an executor: the YAML interpreter with its connectors, and the step hosts."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from ops.composition.storage import storage_of
from ops.secrets import SecretStore
from ops.settings import Settings
from processors.adapters.http.connector import open_http_connector
from processors.adapters.postgres.project_sql import ProjectSql
from processors.executor.hosts.bundles import CodeBundle
from processors.executor.hosts.settings import HostSettings
from processors.executor.hosts.step_hosts import StepHosts
from processors.executor.stored_inputs import with_stored_inputs
from processors.ports.bodies import Bodies, BodyListener
from processors.ports.catalog import Catalog
from processors.ports.measures import Measures
from processors.runtime.yaml_body.bodies import CONNECTOR, SQL, YamlBodies
from topology.workflows import WorkflowSpec


@asynccontextmanager
async def open_bodies(
    settings: Settings, catalog: Catalog, listener: BodyListener, measures: Measures | None = None
) -> AsyncIterator[Mapping[str, Bodies]]:
    """Bodies by kind. The executor closes them; the connections behind them end with this block."""
    secrets = SecretStore(settings.secrets_file)

    async def spec_of(definition_id: int) -> WorkflowSpec:
        return WorkflowSpec.from_json((await catalog.definition(definition_id)).spec)

    async def bundle_of(project_id: str, definition_id: int) -> CodeBundle:
        spec = await spec_of(definition_id)
        digest, entry = spec.bundle_digest or "", spec.entry or ""
        files = await catalog.bundle(project_id, digest)
        return CodeBundle(digest, files, entry, spec.name, spec.label)

    sql = ProjectSql(secrets, settings.postgres_dsn)
    private = settings.allow_private_egress
    async with open_http_connector(catalog.connector, secrets, allow_private_egress=private) as connector:
        seen = tuple(name for name in settings.step_environment.split(",") if name)
        host_settings = HostSettings(interpreter=settings.python, environment=seen, memory_mb=settings.step_memory_mb)
        hosts = StepHosts(listener, bundle_of, host_settings, measures)
        hosts.warm()
        try:
            yaml = YamlBodies(listener, spec_of, {CONNECTOR: connector, SQL: sql})
            yield with_stored_inputs({"yaml": yaml, "code": hosts}, listener, storage_of(settings))
        finally:
            await sql.aclose()
