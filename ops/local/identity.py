"""Who the local installation is: master key, token, port, passwords of its databases; kept where data is kept."""

import json
import os
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = "identity.json"


@dataclass(slots=True)
class Identity:
    master_key: str
    log_password: str
    project_password: str
    token: str = ""
    port: int = 0


def load_or_make(folder: Path) -> Identity:
    """The identity in a folder; a new one where there is none."""
    path = folder / FILE
    if path.exists():
        return Identity(**json.loads(path.read_text("utf-8")))
    return Identity(secrets.token_hex(32), secrets.token_urlsafe(24), secrets.token_urlsafe(24))


def save(identity: Identity, folder: Path) -> None:
    """Readable by its owner only from the first byte on."""
    path = folder / FILE
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(asdict(identity), file)
