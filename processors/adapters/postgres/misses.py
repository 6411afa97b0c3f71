"""Misses of filters as a statement. Ingest puts it into its own transaction, the catalog asks it by itself."""

from collections.abc import Sequence

from processors.adapters.postgres.batches import Statement
from processors.adapters.postgres.columns import columns_of
from processors.adapters.postgres.statements import statements
from processors.ports.misses import FilterMiss


def keep_misses(misses: Sequence[FilterMiss]) -> Statement:
    """Keeps each once."""
    return statements("misses")["keep_misses"], columns_of(misses, FilterMiss)
