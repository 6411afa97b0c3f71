"""One run: deliveries in, turns out.

`begin` plays the body until it waits; each `deliver` hands in one recorded outcome and plays on. What
came out is one Turn, the same live and on replay. A body that cannot go on sets `blocked` instead of
raising. It starts no step and reads no clock.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextvars import copy_context
from datetime import datetime
from typing import Any, Never

from anthares44.automation import codec
from anthares44.automation.context import LOG_BYTES, Context
from anthares44.automation.durations import LONGEST, Duration
from anthares44.automation.endings import Settings, ending_of
from anthares44.automation.errors import BlockedRun, bounded, from_wire
from anthares44.automation.items import Abandon, Block, Item, Place, Turn
from anthares44.automation.loop import ItemFuture, RunLoop, RunTask, RunTimer
from anthares44.automation.options import (
    DeclarationError,
    check_function,
    check_id,
    check_retry,
    check_sleep,
    check_timeout,
)
from anthares44.automation.places import calling_place
from anthares44.automation.wire import Message, quote
from anthares44.automation.workflow import Body


class Run:
    def __init__(self, start: Message, body: Body, settings: Settings) -> None:
        self.run_id: str = start["run"]
        self.fence: int = start["fence"]
        self.wire_name = f'"run":{quote(self.run_id)},"fence":{self.fence}'  # as it stands in each message about it
        self.workflow: str = start["workflow"]
        self.version: str = start["version"]
        self.generation: int = start["generation"]
        self.seed: str = start["seed"]
        self.key: str = start["key"]
        self.input: Any = codec.decode_input(start["input"])
        self.body = body
        self.settings = settings
        self.seq = 0
        self.items: dict[str, Item] = {}
        self.blocked: Block | None = None
        self.over = False
        self.closing = False
        self.replaying = False
        self.main: RunTask | None = None
        self.loop = RunLoop(self, self.seed, settings.loop)
        self._started_at: str = start["started_at"]
        self._at = self._started_at
        self._elapsed: float | None = 0.0
        self._longest = 0.0
        self._requests: list[Item | Abandon] = []
        self._timers = 0
        self._draws = 0

    # -- turns --------------------------------------------------------------------------------------

    def begin(self) -> Turn:
        """Turn 0: from the first line of the body until it waits."""
        self.main = self.loop.create_task(self.body(Context(self), self.input), name="body")
        return self._play()

    def deliver(
        self,
        seq: int,
        item_id: str,
        outcome: str,
        *,
        at: str,
        value: str | None = None,
        error: Mapping[str, Any] | None = None,
    ) -> Turn:
        """One recorded outcome. Without `value` or `error`, those that the item itself reported hold."""
        self.seq, self._at, self._elapsed, self._draws = seq, at, None, 0
        item = self.items.get(item_id)
        if item is None:
            message = f"the outcome {seq} is of {item_id!r}, which the body has not requested"
            self.block("E_NONDETERMINISTIC_REPLAY", message, expected=item_id, seen="nothing")
        elif not self.over and not self.blocked:
            self._settle(item, outcome, value, error)
        return self._play()

    def close(self) -> Turn:
        """Cancel the body: CancelledError goes in, and calls of the SDK raise it from now on."""
        self.closing = True
        if self.main is None:
            self.over = True
            return Turn(self.seq, [], {"status": "cancelled"})
        if not self.main.done():
            self.main.cancel()
        return self._play()

    def forget(self) -> None:
        """Let go of the body and of all it holds."""
        self.loop.forget()
        self.main = None

    def _play(self) -> Turn:
        if not self.over and not self.blocked:
            self.loop.run_ready()
        requests, self._requests = self._requests, []
        ended = None
        if self.main is not None and self.main.done() and not self.over and not self.blocked:
            self.over = True
            ended = ending_of(self.main, self.settings, closing=self.closing)
            self.loop.report_lost()
        return Turn(self.seq, requests, ended)

    def _settle(self, item: Item, outcome: str, value: str | None, error: Mapping[str, Any] | None) -> None:
        if item.timer is not None:
            timer, item.timer = item.timer, None
            self.loop.fire(timer)
            return
        future = item.future
        item.fn = item.context = None
        if future is None or future.done():
            return
        if outcome == "succeeded":
            self._succeed(item, future, item.value if value is None else value)
        elif outcome == "failed":
            future.set_exception(from_wire({**(error or item.error or {})}, item.id))
        else:
            future.settle_cancelled()
        item.value = item.error = item.future = None

    def _succeed(self, item: Item, future: ItemFuture, text: str | None) -> None:
        if text is None:
            if item.kind == "step":
                self.block("E_INTERNAL", f"the outcome of step {item.id!r} came without its value")
            else:
                future.set_result(None)
            return
        try:
            future.set_result(codec.decode(text))
        except (ValueError, RecursionError) as fault:
            message = f"the recorded value of {item.id!r} cannot be read by this bundle: {fault}"
            self.block("E_NONDETERMINISTIC_REPLAY", message, expected=item.id, seen=str(fault))

    # -- what the body asks for ---------------------------------------------------------------------

    def request_step(
        self,
        item: str,
        *,
        timeout: Duration | None,
        retry: Mapping[str, Any] | None,
        compensate: Callable[..., Any] | None,
        exclusive: bool,
        fn: Callable[[], Any],
    ) -> ItemFuture:
        self._check_open()
        try:
            new = Item(check_id(item), "step", self.seq, check_timeout(item, timeout))
            new.retry = check_retry(item, retry)
            check_function(item, "fn", fn)
            if compensate is not None:
                check_function(item, "compensate", compensate)
        except DeclarationError as error:
            raise self.block(error.code, str(error), seen=str(item)) from None
        new.fn, new.compensate, new.exclusive = fn, compensate, bool(exclusive)
        new.context = copy_context()
        return self._request(new)

    def request_sleep(self, item: str, duration: Duration) -> ItemFuture:
        self._check_open()
        try:
            new = Item(check_id(item), "sleep", self.seq, check_sleep(item, duration))
        except DeclarationError as error:
            raise self.block(error.code, str(error), seen=str(item)) from None
        return self._request(new)

    def request_timer(self, timer: RunTimer, seconds: float) -> None:
        self._check_open()
        if not seconds <= LONGEST:
            message = f"a delay of {seconds} seconds in the body; the longest is ten years"
            raise self.block("E_SPEC_INVALID", message, seen=str(seconds))
        self._timers += 1
        timer.item = f"~t{self._timers}"
        new = Item(timer.item, "timer", self.seq, seconds, timer=timer)
        self._add(new)

    def _request(self, item: Item) -> ItemFuture:
        self._add(item)
        item.future = ItemFuture(self.loop, item.id)
        return item.future

    def _add(self, item: Item) -> None:
        if item.id in self.items:
            message = (
                f"the id {item.id!r} is used twice in one run; give each step its own, "
                f'such as f"{item.id}-{{n}}" in a loop'
            )
            raise self.block("E_DUPLICATE_STEP_ID", message, expected="an unused id", seen=item.id)
        if len(self.items) >= self.settings.items:
            message = f"more than {self.settings.items} items in one run; split it into several runs"
            raise self.block("E_ITEM_LIMIT", message, seen=item.id)
        if self.replaying:
            item.place = calling_place(self.settings.root)
        self.items[item.id] = item
        self._requests.append(item)

    def abandon(self, item_id: str) -> None:
        """The body cancelled the future or the timer of an item that is not settled."""
        item = self.items[item_id]
        item.abandoned, item.timer = True, None
        if self.closing or self.blocked:
            return
        if item in self._requests:
            self._requests.remove(item)  # asked for and let go in one turn: nobody has to know
        else:
            self._requests.append(Abandon(item_id, self.seq))

    def _check_open(self) -> None:
        if self.closing:
            raise asyncio.CancelledError("the run is being closed")
        if self.blocked or self.loop.closed:
            raise BlockedRun("the run has been put away; nothing more can be asked for")

    # -- what stops a body --------------------------------------------------------------------------

    def block(
        self,
        code: str,
        message: str,
        *,
        expected: str | None = None,
        seen: str | None = None,
        place: Place | None = None,
    ) -> BlockedRun:
        """Keep the first reason why the body cannot go on; returns what unwinds the body."""
        if self.blocked is None:
            file, line = place or calling_place(self.settings.root)
            self.blocked = Block(code, message, expected, seen, file, line)
        return BlockedRun(message)

    def refuse_io(self, what: str) -> Never:
        message = (
            f"the body used {what}, which only a step may use (input and output, threads, the loop itself); "
            "move it into one: await step.run(id, timeout=..., fn=...)"
        )
        raise self.block("E_IO_OUTSIDE_STEP", message, expected="a step", seen=what)

    def spins(self, rounds: int) -> None:
        message = (
            f"the body ran {rounds} rounds without coming to rest; "
            "wait for a step or a timer instead of polling with sleep(0)"
        )
        self.block("E_BODY_SPINS", message, expected="a body that waits", seen="a body that polls")

    # -- time, chance, log --------------------------------------------------------------------------

    def now(self) -> datetime:
        return datetime.fromisoformat(self._at)

    def elapsed(self) -> float:
        """Seconds from the start of the run to this turn's delivery; never less than in an earlier turn."""
        if self._elapsed is None:
            passed = (self.now() - datetime.fromisoformat(self._started_at)).total_seconds()
            self._elapsed = self._longest = max(self._longest, passed)
        return self._elapsed

    def next_draw(self) -> int:
        self._draws += 1
        return self._draws - 1

    def log(self, level: str, text: str, item: str | None) -> None:
        if self.replaying and item is None:
            return
        self.settings.emit(
            {"t": "LOG", "run": self.run_id, "fence": self.fence, "item": item, "level": level, "text": text},
        )

    def warn(self, text: str) -> None:
        self.log("warning", bounded(text, LOG_BYTES), None)
