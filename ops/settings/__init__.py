"""What a process is told before it starts: settings from the environment over an optional file.

`load` validates everything at once and raises `E_CONFIG`, which names the setting, what was seen and
what was expected. `Loaded` also knows where each value came from.
"""

from ops.settings.dev_options import DevOptions
from ops.settings.fields import ROLES, Settings, parse_roles
from ops.settings.loading import Loaded, load
from ops.settings.masking import MASK, masked
from ops.settings.project_secrets import read_secrets

__all__ = ["MASK", "ROLES", "DevOptions", "Loaded", "Settings", "load", "masked", "parse_roles", "read_secrets"]
