"""What can be told about a `sql/execute` statement without a database: which `$n` it binds.

Quoted text, identifiers and comments are skipped, so a `$1` in them is not a parameter.
"""

import re

_SKIPPED = re.compile(
    r"""
      '(?:[^']|'')*' | "(?:[^"]|"")*" | --[^\n]* | /\*.*?\*/
    | (?P<tag>\$(?:[A-Za-z_]\w*)?\$).*?(?P=tag)
    | (?<![\w$])\$(?P<number>[0-9]{1,5})
    """,
    re.VERBOSE | re.DOTALL,
)


def parameters_of(statement: str) -> set[int]:
    """The numbers of the parameters that the statement binds."""
    return {int(match["number"]) for match in _SKIPPED.finditer(statement) if match["number"]}
