"""The bare executor: claims what commands name, has steps run in a child, and commits whatever gathered meanwhile.

One transaction a batch and no timer: a batch is what came in while the last one was on its way.
"""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import psycopg
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from benchmarks.bare_path.frames import Frames
from benchmarks.bare_path.surroundings import COMMANDS, IDLE_MS, RUN_EVENTS, statement, surroundings, text

MOST_LIVE, MOST_RECORDS = 2_000, 1_000
RECORD, FINISH, TELL, CLAIM = map(statement, ("record", "finish", "tell", "claim"))


class Executor:
    def __init__(self, conn: psycopg.AsyncConnection, producer: AIOKafkaProducer) -> None:
        self._conn = conn
        self._cursor, self._claims = conn.cursor(binary=True), conn.cursor(binary=True)
        self._producer = producer
        self._results: list[list[Any]] = []
        self._commands: list[int] = []
        self._live: set[int] = set()
        self._work, self._room = asyncio.Event(), asyncio.Event()
        self._host = Frames(self._heard, self._host_is_lost)

    async def run(self, consumer: AIOKafkaConsumer) -> None:
        await self._start_host()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._feed(consumer))
            group.create_task(self._work_on())

    async def _start_host(self) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        descriptor = theirs.fileno()
        command = (sys.executable, "-m", "benchmarks.bare_path.host", str(descriptor))
        self._child = subprocess.Popen(command, pass_fds=[descriptor])  # noqa: ASYNC220, S603  ours, once
        theirs.close()
        await asyncio.get_running_loop().create_connection(lambda: self._host, sock=ours)

    def _heard(self, message: list[Any]) -> None:
        self._results.append(message)
        self._work.set()

    def _host_is_lost(self) -> None:
        raise SystemExit("the step host is gone")

    async def _feed(self, consumer: AIOKafkaConsumer) -> None:
        while True:
            while len(self._live) >= MOST_LIVE:
                self._room.clear()
                await self._room.wait()
            polled = await consumer.getmany(timeout_ms=IDLE_MS, max_records=MOST_RECORDS)
            if polled:
                self._commands += [int(record.value) for records in polled.values() for record in records]
                self._work.set()
                await consumer.commit()

    async def _work_on(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            results, commands = self._results, self._commands
            self._results, self._commands = [], []
            if results or commands:
                await self._carry_on(results, await self._commit(results, commands))

    async def _commit(self, results: Sequence[list[Any]], commands: Sequence[int]) -> Sequence[tuple[int]]:
        """One transaction; the runs that are ours from now on."""
        ended = [run for run, _, _, is_last in results if is_last]
        async with self._conn.pipeline(), self._conn.transaction():
            if results:
                runs, steps, values, _ = zip(*results, strict=True)
                await self._cursor.execute(RECORD, (list(runs), list(steps), [text(value) for value in values]))
            if ended:
                names = [str(run) for run in ended]
                await self._cursor.execute(FINISH, (ended,))
                await self._cursor.execute(TELL, (RUN_EVENTS, names, names))
            if not commands:
                return ()
            await self._claims.execute(CLAIM, (commands,))
            return await self._claims.fetchall()

    async def _carry_on(self, results: Sequence[list[Any]], claimed: Sequence[tuple[int]]) -> None:
        """What waits for the commit: bodies begin and go on, ends are told."""
        for (run,) in claimed:
            self._live.add(run)
            self._host.send(run)
        for run, step, _, is_last in results:
            if is_last:
                self._live.discard(run)
                await self._producer.send(RUN_EVENTS, str(run).encode())
            else:
                self._host.send(run, step)
        if len(self._live) < MOST_LIVE:
            self._room.set()


async def main() -> None:
    async with surroundings(COMMANDS) as (conn, consumer, producer):
        await Executor(conn, producer).run(consumer)


if __name__ == "__main__":
    asyncio.run(main())
