"""The runs that a host holds: one seat each, with its history while that comes in, and its attempts.

A message whose (run, fence) holds no seat is ignored: it is for a life of the run that is over here.
"""

import asyncio
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from anthares44.automation.endings import Settings
from anthares44.automation.host import told
from anthares44.automation.host.attempts import DROPPED, STOPPED, Attempt, StepRunner
from anthares44.automation.items import Item, Turn
from anthares44.automation.replay import Replay
from anthares44.automation.turns import Run
from anthares44.automation.wire import Message
from anthares44.automation.workflow import Workflow

CLOSE_SECONDS = 10.0
REPLAY_SLICE = 500


@dataclass(slots=True, eq=False)
class Seat:
    run: Run
    go_until: float | None
    history: list[dict[str, Any]] = field(default_factory=list)
    replaying: bool = False
    attempts: dict[str, Attempt] = field(default_factory=dict)
    closing: asyncio.TimerHandle | None = None


class Seats:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        tell: Callable[[str], None],
        runner: StepRunner,
        settings: Settings,
    ) -> None:
        self.taken: dict[str, Seat] = {}
        self._loop = loop
        self._tell = tell
        self._runner = runner
        self._settings = settings
        self._tokens = itertools.count(1)

    # -- messages -----------------------------------------------------------------------------------

    def start(self, message: Message, workflow: Workflow | None) -> None:
        held = self.taken.get(message["run"])
        if held is not None:
            if held.run.fence >= message["fence"]:
                return
            self._leave(held)
        if workflow is None:
            text = f"workflow {message['workflow']!r} version {message['version']} is not loaded in this host"
            self._tell(told.not_begun(message, "E_VERSION_UNKNOWN", text, expected=message["version"]))
            return
        try:
            run = Run(message, workflow.body, self._settings)
        except ValueError as error:
            text = f"the input of the run is not JSON: {error}"
            self._tell(told.not_begun(message, "E_JSON_INVALID", text, expected="JSON"))
            return
        seat = self.taken[run.run_id] = Seat(run, message.get("go_until"))
        if message.get("history"):
            seat.replaying = True
        else:
            self._answer(seat, run.begin(), seat.go_until)

    def history(self, message: Message) -> None:
        seat = self._seat(message)
        if seat is None or not seat.replaying:
            return
        seat.history.extend(message["items"])
        if message.get("last"):
            replay, seat.history = Replay(seat.run, seat.history), []
            self._play(seat, replay)

    def deliver(self, message: Message) -> None:
        seat = self._seat(message)
        if seat is None or seat.run.blocked:
            return
        turn = seat.run.deliver(
            message["seq"],
            message["item"],
            message["outcome"],
            at=message["at"],
            value=message.get("value"),
            error=message.get("error"),
        )
        self._answer(seat, turn, message.get("go_until"))

    def run_again(self, message: Message) -> None:
        seat = self._seat(message)
        if seat is None:
            return
        item = seat.run.items.get(message["item"])
        attempt = (message["attempt"], message["token"], message["key"])
        if item is None or item.fn is None:
            self._tell(told.unknown_item(message))
            return
        self._begin(seat, item, *attempt, timeout=message.get("timeout"))

    def cancel_item(self, message: Message) -> None:
        seat = self._seat(message)
        attempt = seat.attempts.get(message["item"]) if seat else None
        if attempt is not None:
            self._runner.stop(attempt, STOPPED)

    def close(self, message: Message) -> None:
        seat = self._seat(message)
        if seat is None or seat.closing is not None or seat.run.over:
            return
        if seat.run.blocked or seat.replaying:
            self._give_up(seat)
            return
        turn = seat.run.close()
        if turn.ended is None:
            seat.closing = self._loop.call_later(CLOSE_SECONDS, self._give_up, seat)
        self._answer(seat, turn, None)

    def drop(self, message: Message) -> None:
        seat = self._seat(message)
        if seat is not None:
            self._leave(seat)

    def reported(self, attempt: Attempt) -> None:
        """The attempt has told its outcome: nothing is left to cancel."""
        seat = self.taken.get(attempt.run.run_id)
        if seat is not None and seat.attempts.get(attempt.item.id) is attempt:
            del seat.attempts[attempt.item.id]

    # -- turns --------------------------------------------------------------------------------------

    def _play(self, seat: Seat, replay: Replay) -> None:
        """Play history in slices, so that a long one does not hold up the neighbours."""
        if not seat.replaying:
            return
        turn = replay.play(REPLAY_SLICE)
        if turn is None:
            self._loop.call_soon(self._play, seat, replay)
            return
        seat.replaying = False
        self._answer(seat, turn, seat.go_until)

    def _answer(self, seat: Seat, turn: Turn, go_until: float | None) -> None:
        run = seat.run
        if run.blocked is not None:
            self._tell(told.diverged(run, run.blocked))
            run.forget()
            if seat.closing is not None:
                seat.closing.cancel()
                self._give_up(seat)
            return
        may_start = go_until is not None and turn.ended is None and time.monotonic() < go_until
        requests, starts = [], []
        for request in turn.requests:
            token = None
            if may_start and isinstance(request, Item) and request.starts_at_once():
                token = f"h{next(self._tokens)}"
                starts.append((request, token))
            requests.append(request.request(turn.after, token))
        self._tell(told.turn(run, turn, requests))
        for item, token in starts:
            self._begin(seat, item, 1, token, f"{run.run_id}:{item.id}:g{run.generation}")
        if turn.ended is not None and seat.closing is not None:
            seat.closing.cancel()

    def _give_up(self, seat: Seat) -> None:
        """The body does not let itself be cancelled, or cannot be: it is let go."""
        run = seat.run
        seat.replaying = False
        run.closing = run.over = True
        run.forget()
        self._tell(told.turn(run, Turn(run.seq, [], {"status": "cancelled"}), []))

    def _begin(
        self,
        seat: Seat,
        item: Item,
        number: int,
        token: str,
        key: str,
        *,
        timeout: float | None = None,
    ) -> None:
        if item.fn is None or item.context is None:
            return
        attempt = Attempt(
            seat.run,
            item,
            number,
            token,
            key,
            timeout or item.seconds,
            item.fn,
        )
        seat.attempts[item.id] = attempt
        self._runner.start(attempt, item.context.copy())

    def _seat(self, message: Message) -> Seat | None:
        seat = self.taken.get(message["run"])
        return seat if seat is not None and seat.run.fence == message["fence"] else None

    def _leave(self, seat: Seat) -> None:
        del self.taken[seat.run.run_id]
        seat.replaying = False
        if seat.closing is not None:
            seat.closing.cancel()
        for attempt in seat.attempts.values():
            self._runner.stop(attempt, DROPPED)
        seat.run.forget()
