"""The embedded stack: a real PostgreSQL and a Kafka-protocol broker out of installed packages.

For the demo, `a44 dev` and the tests: loopback only, in one folder, gone when the process that started
it is gone. Not for production.
"""

from ops.embedded.stack import EmbeddedStack, OnProgress

__all__ = ["EmbeddedStack", "OnProgress"]
