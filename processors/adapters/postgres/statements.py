"""Named SQL statements, read once from the `.sql` files beside this module.

A statement starts with `-- name: x`, continues with one comment line of purpose, and takes named
parameters (`%(x)s`). Nothing else in the product builds SQL text; a test prepares every statement.
"""

import re
from functools import cache
from importlib.resources import files

_HEADING = re.compile(r"^-- name: ([a-z_]+)[ \t]*$", re.MULTILINE)


@cache
def statements(topic: str) -> dict[str, str]:
    """All statements of `sql/<topic>.sql` by name."""
    text = files(__package__).joinpath("sql", f"{topic}.sql").read_text("utf-8")
    parts = _HEADING.split(text)[1:]
    names, bodies = parts[::2], parts[1::2]
    if len(set(names)) != len(names):
        raise ValueError(f"{topic}.sql: a name stands twice")
    return {name: body.strip().rstrip(";") for name, body in zip(names, bodies, strict=True)}
