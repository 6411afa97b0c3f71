"""Effects that anybody can count: a line in a file of this host process alone, before and after the work of a step."""

import os
import random
import time
import uuid
from functools import cache
from pathlib import Path

from anthares44.automation import RetryableError

NAME = f"{os.getpid()}-{uuid.uuid4().hex[:8]}.log"


@cache
def _file():
    """Appended to by this process only; a write is whole or is not there. Two threads may both open it at first."""
    return os.open(Path(os.environ["CHAOS_LEDGER"]) / NAME, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


def _note(word, key, token):
    os.write(_file(), f"{word}\t{time.time():.6f}\t{key}\t{token}\n".encode())


def effect(key, seconds=0.0):
    """One attempt has one token, which is also its result: what is recorded can be looked up in the files."""
    token = uuid.uuid4().hex
    _note("began", key, token)
    time.sleep(seconds)
    _note("effect", key, token)
    return token


def moody(key):
    """Fails now and then, before it has any effect."""
    if random.random() < 0.35:
        raise RetryableError("not in the mood")
    return effect(key)
