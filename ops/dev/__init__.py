"""`a44 dev`: the whole stack kept running, with workflow files published as they are saved."""

from ops.dev.session import dev

__all__ = ["dev"]
