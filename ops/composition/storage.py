"""The storage for large bodies, as the settings say."""

from ops.settings import Settings
from processors.adapters.objects.storage import open_storage
from processors.ports.storage import Storage


def storage_of(settings: Settings) -> Storage | None:
    """None where none is set. Raises Refused E_CONFIG."""
    if not settings.storage_url:
        return None
    return open_storage(
        settings.storage_url,
        endpoint=settings.storage_endpoint,
        access_key=settings.storage_access_key,
        secret_key=settings.storage_secret_key.get_secret_value(),
    )
