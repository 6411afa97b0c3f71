"""The topics of an installation on its broker: what differs from what is declared, and bringing the two together."""

from ops.topics.bringing import Topology, apply, topology_of

__all__ = ["Topology", "apply", "topology_of"]
