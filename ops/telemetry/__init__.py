"""What a process counts about itself, for Prometheus. Read when it is asked for: nothing on the hot path."""

from ops.telemetry.exporter import exported

__all__ = ["exported"]
