"""YAML workflows at run time."""

from processors.runtime.yaml_body.bodies import CONNECTOR, SQL, YamlBodies
from processors.runtime.yaml_body.specs import FindDefinition

__all__ = ["CONNECTOR", "SQL", "FindDefinition", "YamlBodies"]
