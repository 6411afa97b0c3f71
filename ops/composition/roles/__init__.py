"""Each role from its settings: the only place that knows which adapter stands behind which port.

A module a role, loaded when the role is run: what a process does not do it does not load either.
"""

import importlib
from typing import cast

from ops.composition.roles.parts import RoleRunner
from ops.settings.fields import ROLES


def runner_of(role: str) -> RoleRunner:
    """`run` of the role's module; it takes settings, an event that stops it, a listener for "ready", and measures."""
    if role not in ROLES:
        raise KeyError(role)
    return cast("RoleRunner", importlib.import_module(f"{__name__}.{role}").run)
