"""The secrets that webhooks are signed with: computed, never stored, or kept for the project by reference.

A secret of ours is HMAC-SHA256 of its trigger's name and its number under the master key, told as 64 hex digits. Which
numbers live, the catalog says. How a secret is used, the trigger's sender says.
"""

import hmac
import secrets
from datetime import datetime
from typing import Final, Literal

import structlog

from processors.gateway.senders import OURS, SENDERS, Claim, Sender
from processors.ports.catalog import Hook, Trigger
from processors.ports.secrets import Secrets
from schemas.errors import Refused

MIN_MASTER_KEY = 32
MOST_LIVE = 2  # secrets of a trigger at a time

Age = Literal["newest", "old"]
_MAX_TIMESTAMP = 12  # digits of Unix seconds: enough for thirty thousand years
_LABEL = b"a44.webhook.v1\0"
_NOBODYS: Final = secrets.token_hex(32)  # stands in where a trigger has fewer secrets, and never opens

_log = structlog.get_logger(__name__)


class MasterKey:
    """What all secrets of ours come from."""

    def __init__(self, key: bytes) -> None:
        if len(key) < MIN_MASTER_KEY:
            raise Refused(
                "E_CONFIG",
                f"the master key has {len(key)} bytes; at least {MIN_MASTER_KEY} are needed: "
                "make one with `openssl rand -hex 32`",
            )
        self._key = key

    def secret(self, project_id: str, trigger_id: str, number: int) -> str:
        """64 hex digits."""
        name = b"\0".join((project_id.encode(), trigger_id.encode(), str(number).encode()))
        return hmac.digest(self._key, _LABEL + name, "sha256").hex()


class HookSecrets:
    """The secrets of all webhook triggers of an installation."""

    def __init__(self, master_key: MasterKey, kept: Secrets) -> None:
        self._master_key = master_key
        self._kept = kept
        self._missing: set[tuple[str, str]] = set()

    def own(self, project_id: str, hook: Hook) -> str:
        """A secret that the platform made, in the form that the trigger's sender takes."""
        secret = self._master_key.secret(project_id, hook.trigger_id, hook.secret_number)
        return SENDERS[hook.preset].shown(secret)

    def newest(self, trigger: Trigger, now: datetime) -> str:
        """What new requests are signed with. Raises Refused E_SECRET_UNKNOWN."""
        found = dict(self._living(trigger, now)).get("newest")
        if found is None:
            verify = trigger.spec.verify
            which = "its secret" if verify is None else str(verify.secret_ref)
            raise Refused("E_SECRET_UNKNOWN", f"{which} of {trigger.trigger_id} is not set where the gateway runs")
        return found

    def fitting(self, trigger: Trigger | None, sender: Sender, claim: Claim, body: bytes, now: datetime) -> Age | None:
        """Which of the trigger's secrets made the signature; None for none. To say no costs as much for every trigger:
        with one secret, with two, or with none because there is no such trigger.
        """
        living = [] if trigger is None else self._living(trigger, now)
        for age, secret in living[:MOST_LIVE]:
            if sender.fits(secret, claim, body):
                return age
        for _ in range(MOST_LIVE - len(living)):
            OURS.fits(_NOBODYS, claim, body)
        return None

    def _living(self, trigger: Trigger, now: datetime) -> list[tuple[Age, str]]:
        """The newest first."""
        if not trigger.spec.has_own_secret:
            return self._handed_out(trigger)
        shown = SENDERS[trigger.spec.preset].shown
        numbers = [one.number for one in trigger.secrets if one.lives(now)]
        made = [shown(self._master_key.secret(trigger.project_id, trigger.trigger_id, number)) for number in numbers]
        return [("old" if place else "newest", secret) for place, secret in enumerate(made)]

    def _handed_out(self, trigger: Trigger) -> list[tuple[Age, str]]:
        """What the sender made. One that is not set is told to the operator, once; its trigger takes nothing."""
        verify = trigger.spec.verify
        if verify is None:
            return []
        refs: list[tuple[Age, str | None]] = [("newest", verify.secret_ref), ("old", verify.old_secret_ref)]
        found: list[tuple[Age, str]] = []
        for age, ref in refs:
            if ref is None:
                continue
            place = (trigger.project_id, ref)
            try:
                found.append((age, self._kept.get(trigger.project_id, ref).strip()))
                self._missing.discard(place)
            except Refused as refused:
                if place not in self._missing:
                    self._missing.add(place)
                    _log.warning("webhook_secret_missing", trigger_id=trigger.trigger_id, reason=refused.message)
        return found


class NoSecrets:
    """The port `Secrets` of a gateway that was given none."""

    def get(self, project: str, name: str) -> str:
        raise Refused("E_SECRET_UNKNOWN", f"the secret {name} of project {project} is not set")


def seconds_off(timestamp: bytes, now: float) -> float | None:
    """How far a timestamp is from `now`, in seconds and either way; None when it is no Unix time."""
    if not timestamp.isdigit() or len(timestamp) > _MAX_TIMESTAMP:
        return None
    return abs(now - int(timestamp))
