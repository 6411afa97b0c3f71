"""The composition root: settings become running roles, any set of them in one process."""

from ops.composition.process import Ready, up

__all__ = ["Ready", "up"]
