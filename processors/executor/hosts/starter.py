"""What a host needs before it can run: a folder, an account, its program's files; and the start itself."""

import asyncio
from collections.abc import Awaitable, Callable

from processors.executor.hosts.account import Account, usable_account
from processors.executor.hosts.bundles import BundleFolder, CodeBundle
from processors.executor.hosts.host import Host, Stage
from processors.executor.hosts.process import Plan, environment_for
from processors.executor.hosts.program import HostKey, Program
from processors.executor.hosts.settings import HostSettings

Bundles = Callable[[str, int], Awaitable[CodeBundle]]

STARTS_AT_ONCE = 2


class Starter:
    """Makes its folder at the first need; `aclose` removes it, after the hosts are gone."""

    def __init__(self, bundles: Bundles, settings: HostSettings) -> None:
        self._bundles = bundles
        self._settings = settings
        self._environment = environment_for(settings.environment, settings.extra_environment)
        self._folder: BundleFolder | None = None
        self._account: asyncio.Task[Account] | None = None
        self._starts = asyncio.Semaphore(STARTS_AT_ONCE)

    async def program(self, project_id: str, definition_id: int) -> Program:
        """Fetch and unpack. Raises what `bundles` raises, Refused (E_BUNDLE_INVALID), OSError."""
        bundle = await self._bundles(project_id, definition_id)
        folder = await self._open_folder().unpack(bundle, await self._the_account())
        key = HostKey(project_id, bundle.digest, self._settings.interpreter)
        return Program(key, folder, bundle.entry, bundle.workflow, bundle.version, bundle.redact_exempt)

    async def begin(self, host: Host, delay: float) -> None:
        """Start the host's process after `delay` seconds, unless it was given up meanwhile. Raises OSError."""
        await asyncio.sleep(delay)
        account = await self._the_account()
        async with self._starts:
            if host.stage is Stage.STARTING:
                home = self._open_folder().new_home(account)
                memory = self._settings.asked_bytes
                try:
                    await host.begin(Plan(self._settings.interpreter, account, home, self._environment, memory))
                finally:
                    if not host.begun:
                        home.rmdir()

    async def aclose(self) -> None:
        if self._account is not None:
            self._account.cancel()
            await asyncio.wait([self._account])
        if self._folder is not None:
            await self._folder.remove()

    def _open_folder(self) -> BundleFolder:
        if self._folder is None:
            self._folder = BundleFolder()
        return self._folder

    async def _the_account(self) -> Account:
        """Found out once: it costs the start of an interpreter."""
        account = self._account
        if account is None:
            account = self._account = asyncio.ensure_future(self._prepare())
        try:
            return await asyncio.shield(account)
        except Exception:
            if self._account is account:
                self._account = None
            raise

    async def _prepare(self) -> Account:
        folder = self._open_folder()
        await folder.remove_abandoned()
        return await usable_account(self._settings, folder.root, self._environment)
