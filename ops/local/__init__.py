"""The whole service on one machine: embedded servers and one process a role. For `a44 dev`, the demo and tests."""

from ops.local.stack import LocalOptions, LocalStack

__all__ = ["LocalOptions", "LocalStack"]
