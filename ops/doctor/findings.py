"""What a check found: how it is, what was seen, and the way out where something is to be done."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

State: TypeAlias = Literal["ok", "warning", "failed", "skipped"]
OK: State = "ok"
WARNING: State = "warning"
FAILED: State = "failed"
SKIPPED: State = "skipped"

ALLOWED_SKEW = 300.0  # seconds, of a signed webhook
NOTABLE_SKEW = 5.0


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    state: State
    seen: str
    way_out: str | None = None


def clock_finding(whose: str, ahead: float) -> Finding:
    """How far somebody's clock is before this machine's, in seconds, against the window of signed webhooks."""
    off = f"{abs(ahead):.1f} s {'ahead of' if ahead > 0 else 'behind'} this machine's"
    check, seen = f"clock of {whose}", f"{off}; webhooks allow {ALLOWED_SKEW:g} s"
    if abs(ahead) <= NOTABLE_SKEW:
        return Finding(check, OK, f"within {NOTABLE_SKEW:g} s of this machine's")
    way_out = "keep both clocks by NTP (chrony, systemd-timesyncd); timedatectl tells whether this one is kept"
    if abs(ahead) <= ALLOWED_SKEW:
        return Finding(check, WARNING, seen, way_out)
    return Finding(check, FAILED, seen, f"what is signed here is refused with E_TIMESTAMP_SKEW: {way_out}")
