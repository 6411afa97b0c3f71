"""Storage by obstore: a folder, or a bucket of whatever speaks S3.

A body is durable when `put` returns: S3 says so, and files are brought to the disk here, which obstore leaves to
chance. Every fault of the way there is `Unavailable`; only content that is not there, or is not what its reference
says, is refused.
"""

import asyncio
import os
from collections.abc import Awaitable, Collection, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import obstore
import structlog
from obstore.exceptions import BaseError
from obstore.store import LocalStore, S3Store

from schemas.errors import Refused, Unavailable
from schemas.stored_bodies import MOST_BODY, Reference, StoredBody, is_content_of, parsed, too_large

_Answer = TypeVar("_Answer")
_log = structlog.get_logger("storage")
_ANSWER_SECONDS = timedelta(seconds=5)
_CONNECT_SECONDS = timedelta(seconds=2)
_TRIES = 2
_AT_ONCE = 100
_NO_BUCKET = "NoSuchBucket"  # obstore tells of it as of an object that is not there


def open_storage(url: str, *, endpoint: str = "", access_key: str = "", secret_key: str = "") -> "ObjectStorage":
    """`file:///path` or `s3://bucket/prefix`. Without keys S3's usual places are asked for them.

    Raises Refused E_CONFIG.
    """
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.path not in ("", "/") and not parts.netloc:
        root = Path(unquote(parts.path))
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise Refused("E_CONFIG", f"storage_url: the folder {root} cannot be made: {exc.strerror}") from exc
        return ObjectStorage(LocalStore(prefix=root), root)
    if parts.scheme == "s3" and parts.netloc:
        told = {"endpoint": endpoint, "access_key_id": access_key, "secret_access_key": secret_key}
        return ObjectStorage(_bucket(url, {name: text for name, text in told.items() if text}))
    raise Refused("E_CONFIG", "storage_url: wanted file:///folder or s3://bucket, with or without a prefix behind it")


def _bucket(url: str, config: dict[str, str]) -> S3Store:
    retries = {"max_retries": _TRIES, "retry_timeout": _ANSWER_SECONDS}
    client = {
        "timeout": _ANSWER_SECONDS,
        "connect_timeout": _CONNECT_SECONDS,
        "allow_http": config.get("endpoint", "").startswith("http://"),
    }
    options: Any = {"config": config, "client_options": client, "retry_config": retries}
    try:
        return S3Store.from_url(url, **options)
    except (BaseError, ValueError) as exc:
        raise Refused("E_CONFIG", f"storage_url: {exc}") from exc


class ObjectStorage:
    """Implements `Storage`. `root` is the folder of a store of files."""

    def __init__(self, store: LocalStore | S3Store, root: Path | None = None) -> None:
        self._store = store
        self._root = root

    async def put(self, body: StoredBody) -> None:
        self._look_for_root()
        await _reached(obstore.put_async(self._store, str(body.reference), body.content))
        if self._root is not None:
            await _reached(asyncio.to_thread(_to_disk, self._root, self._root / str(body.reference)))

    async def get(self, reference: Reference) -> bytes:
        try:
            found = await _reached(obstore.get_async(self._store, str(reference)))
            if found.meta["size"] > MOST_BODY:  # a producer may have put anything there
                raise too_large(found.meta["size"])
            content = bytes(await _reached(found.bytes_async()))
        except FileNotFoundError as exc:
            self._look_for_root()
            self._look_for_content()
            raise Refused("E_STORED_BODY_MISSING", f"the stored body {reference} is not there (any more)") from exc
        if not is_content_of(reference, content):
            raise Refused("E_STORED_BODY_MISSING", f"what is stored as {reference} is not what was put there")
        return content

    async def days(self) -> Sequence[str]:
        self._look_for_root()
        found = await _reached(obstore.list_with_delimiter_async(self._store))
        return sorted(found["common_prefixes"])

    async def stored_on(self, day: str) -> Sequence[Reference]:
        self._look_for_root()
        found = await _reached(obstore.list(self._store, prefix=f"{day}/").collect_async())
        told = [parsed(one["path"]) for one in found]
        return [reference for reference in told if reference is not None]

    async def remove(self, references: Collection[Reference]) -> None:
        paths = [str(reference) for reference in references]
        for at in range(0, len(paths), _AT_ONCE):
            try:
                await _reached(obstore.delete_async(self._store, paths[at : at + _AT_ONCE]))
            except FileNotFoundError:
                continue
        if self._root is not None:
            for day in {reference.day for reference in references}:
                await asyncio.to_thread(_prune, self._root / day)

    def _look_for_root(self) -> None:
        """A folder that went away, with its disk perhaps, says nothing about what was in it."""
        if self._root is not None and not self._root.is_dir():
            _log.warning("storage_away", reason=f"there is no folder {self._root}")
            raise Unavailable("E_STORAGE_UNAVAILABLE", "the folder for large bodies is away")

    def _look_for_content(self) -> None:
        """Where a disk is not mounted, its folder is there and empty; so it is where a process began meanwhile."""
        if self._root is not None and next(self._root.iterdir(), None) is None:
            _log.warning("storage_away", reason=f"the folder {self._root} is empty: is its disk mounted?")
            raise Unavailable("E_STORAGE_UNAVAILABLE", "the folder for large bodies is empty")


async def _reached(asked: Awaitable[_Answer]) -> _Answer:
    try:
        return await asked
    except (BaseError, OSError, ValueError) as exc:
        if isinstance(exc, FileNotFoundError) and _NO_BUCKET not in str(exc):
            raise
        _log.warning("storage_away", reason=str(exc).partition("\n")[0][:300])
        raise Unavailable("E_STORAGE_UNAVAILABLE", "the storage for large bodies cannot be reached") from exc


def _prune(day: Path) -> None:
    """The folders of a day that hold nothing any more."""
    for folder in [*day.glob("*/"), day]:
        with suppress(OSError):
            folder.rmdir()


def _to_disk(root: Path, path: Path) -> None:
    """The file, and each folder that it made a name in."""
    while True:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        if path == root:
            return
        path = path.parent
