"""Looks at everything an installation stands on, from this machine, and says of each fault how it is mended."""

from ops.doctor.examination import Patient, examine
from ops.doctor.findings import FAILED, OK, SKIPPED, WARNING, Finding

__all__ = ["FAILED", "OK", "SKIPPED", "WARNING", "Finding", "Patient", "examine"]
