"""Publishes saved files: a new content is `VERSION-dev.N`, a broken file keeps the last good one in force."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from watchfiles import Change, DefaultFilter, awatch

from ops.client import Client
from schemas.errors import AutomationError
from topology.publication import collect

SUFFIXES = (".yaml", ".yml", ".py")
SETTLE_MILLIS = 150
LOOK_MILLIS = 5_000


class _Sources(DefaultFilter):
    """Files that can hold workflows or belong to one; editors' and Python's own files are left out."""

    def __call__(self, change: Change, path: str) -> bool:
        return path.endswith(SUFFIXES) and super().__call__(change, path)


class Publisher:
    """`say` shows a line to the user."""

    def __init__(self, client: Client, paths: Sequence[Path], say: Callable[[str], None]) -> None:
        self._client = client
        self._paths = paths
        self._say = say
        self._last: Mapping[str, str] = {}
        self._tried: Mapping[str, str] | str = ""

    async def publish(self) -> None:
        """Publish what is there now, if it changed. What is wrong is shown with its place, and nothing else happens."""
        self._tried = ""
        try:
            self._tried = files = await asyncio.to_thread(collect, self._paths)
            if files == self._last:
                self._say("  unchanged: this is what is in force")
                return
            answer = await asyncio.to_thread(self._client.publish, files, dev=True)
        except AutomationError as exc:
            self._tried = self._tried or str(exc)
            self._refuse(exc)
            return
        self._last = files
        self._show(answer)
        if all(item["change"] == "unchanged" for item in answer["published"]):
            self._say("  unchanged: this is what is in force")

    async def watch(self, stop: asyncio.Event) -> None:
        """Publish after every save until `stop`; one that came before the watcher looked is found by looking."""
        folders = sorted({str(path if path.is_dir() else path.parent) for path in self._paths})
        told = awatch(
            *folders,
            watch_filter=_Sources(),
            stop_event=stop,
            step=SETTLE_MILLIS,
            rust_timeout=LOOK_MILLIS,
            yield_on_timeout=True,
        )
        async for changes in told:
            if changes or await self._was_missed():
                await self.publish()

    async def _was_missed(self) -> bool:
        try:
            return await asyncio.to_thread(collect, self._paths) != self._tried
        except AutomationError as exc:
            return str(exc) != self._tried

    def _show(self, answer: Mapping[str, Any]) -> None:
        for item in answer["published"]:
            if item["change"] != "unchanged":
                version = f" {item['version']}" if item.get("version") else ""
                self._say(f"  {item['change']:<9} {item['kind']} {item['id']}{version}")
        for hook in answer["webhooks"]:
            if hook.get("secret"):
                self._say(f"  webhook   POST {self._client.url}{hook['path']}  secret {hook['secret']}")
        for warning in answer["warnings"]:
            self._say(f"  warning   {warning}")

    def _refuse(self, exc: AutomationError) -> None:
        errors = exc.details.get("errors")
        listed = errors if isinstance(errors, list) and errors else []
        kept = "; the last good version stays in force" if self._last else ""
        self._say(f"  not published{kept}:")
        for error in listed:
            self._say(f"    {_line(error)}")
        if not listed:
            self._say(f"    {exc}")


def _line(error: Mapping[str, Any]) -> str:
    place = f"{error['file']}:{error['line']}:{error['column']}: " if error.get("file") else ""
    return f"{place}{error.get('message', '')} [{error.get('code', '')}]"
