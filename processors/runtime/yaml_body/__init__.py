"""YAML workflows at run time."""

from processors.runtime.yaml_body.bodies import CONNECTOR, SQL, FindDefinition, YamlBodies

__all__ = ["CONNECTOR", "SQL", "FindDefinition", "YamlBodies"]
