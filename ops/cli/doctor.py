"""`a44 doctor`: everything an installation stands on, looked at from this machine."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ops.cli.access import find_access
from ops.cli.failures import CHECK_FAILED, OK
from ops.cli.options import ConfigOption, JsonOption, ProjectOption
from ops.cli.output import Output, paint_state, printable

if TYPE_CHECKING:
    from ops.doctor import Finding


def doctor(project: ProjectOption = None, config: ConfigOption = None, as_json: JsonOption = False) -> int:
    """Examine database, broker, migrations, clocks, versions and disks.

    Reads only. What the settings name is examined, and the gateway that clients use; exit 1 when a check failed.
    """
    import asyncio

    from ops.doctor import FAILED, Patient, examine
    from ops.settings import load

    loaded = load(Path(config) if config else None)
    access = find_access(project)
    patient = Patient(
        postgres_dsn=loaded.settings.postgres_dsn,
        kafka_bootstrap=loaded.settings.kafka_bootstrap,
        topic_prefix=loaded.settings.topic_prefix,
        python=loaded.settings.python,
        url=access.url,
        token=access.token,
        is_default_url=access.sources["url"] == "default",
    )
    output = Output(as_json)
    for warning in loaded.warnings:
        output.note(f"warning: {warning}")
    findings = asyncio.run(examine(patient))
    failed = [finding.check for finding in findings if finding.state == FAILED]
    if as_json:
        output.document({"ok": not failed, "checks": [_document(finding) for finding in findings]})
    else:
        _print(findings, output)
    return CHECK_FAILED if failed else OK


def _print(findings: Sequence["Finding"], output: Output) -> None:
    output.table(("CHECK", "STATE", "SEEN"), [(one.check, one.state, one.seen) for one in findings])
    for finding in findings:
        if finding.way_out is not None:
            state = paint_state(finding.state, sys.stdout)
            output.line(f"{state}  {finding.check}: {printable(finding.way_out)}")


def _document(finding: "Finding") -> dict[str, str | None]:
    return {name: getattr(finding, name) for name in ("check", "state", "seen", "way_out")}
