"""What a run's loop does not do: input and output, threads, and being run or changed by the body.

Each of these raises E_IO_OUTSIDE_STEP in the body, which blocks the run: on replay nothing of it would
come out the same.
"""

import asyncio
from typing import Any, Never, Protocol

from anthares44.automation.errors import BlockedRun


class Owner(Protocol):
    """What the loop asks of its run."""

    def request_timer(self, timer: Any, seconds: float) -> None: ...
    def abandon(self, item_id: str) -> None: ...
    def elapsed(self) -> float: ...
    def refuse_io(self, what: str) -> Never: ...
    def spins(self, rounds: int) -> None: ...
    def warn(self, text: str) -> None: ...


class _PutAway:
    """In the place of a run that has left; its body may still hold futures, and a loop."""

    def request_timer(self, _timer: Any, _seconds: float) -> Never:
        raise _gone()

    def abandon(self, item_id: str) -> None:
        """Nobody waits for it."""

    def elapsed(self) -> Never:
        raise _gone()

    def refuse_io(self, _what: str) -> Never:
        raise _gone()

    def spins(self, rounds: int) -> None:
        """Nothing runs any more."""

    def warn(self, text: str) -> None:
        """There is no log to write to."""


def _gone() -> BlockedRun:
    return BlockedRun("the run has been put away; nothing more can be asked for")


PUT_AWAY = _PutAway()


def _refused(name: str) -> Any:
    def refuse(self: "ClosedLoop", *_: Any, **__: Any) -> Never:
        self.owner.refuse_io(f"loop.{name}")

    return refuse


class ClosedLoop(asyncio.AbstractEventLoop):
    """An event loop without a way out."""

    owner: Owner

    run_in_executor = _refused("run_in_executor")
    set_default_executor = _refused("set_default_executor")
    getaddrinfo = _refused("getaddrinfo")
    getnameinfo = _refused("getnameinfo")
    create_connection = _refused("create_connection")
    create_server = _refused("create_server")
    create_unix_connection = _refused("create_unix_connection")
    create_unix_server = _refused("create_unix_server")
    create_datagram_endpoint = _refused("create_datagram_endpoint")
    connect_accepted_socket = _refused("connect_accepted_socket")
    start_tls = _refused("start_tls")
    sendfile = _refused("sendfile")
    sock_sendfile = _refused("sock_sendfile")
    sock_recv = _refused("sock_recv")
    sock_recv_into = _refused("sock_recv_into")
    sock_recvfrom = _refused("sock_recvfrom")
    sock_recvfrom_into = _refused("sock_recvfrom_into")
    sock_sendall = _refused("sock_sendall")
    sock_sendto = _refused("sock_sendto")
    sock_connect = _refused("sock_connect")
    sock_accept = _refused("sock_accept")
    connect_read_pipe = _refused("connect_read_pipe")
    connect_write_pipe = _refused("connect_write_pipe")
    subprocess_exec = _refused("subprocess_exec")
    subprocess_shell = _refused("subprocess_shell")
    add_reader = _refused("add_reader")
    remove_reader = _refused("remove_reader")
    add_writer = _refused("add_writer")
    remove_writer = _refused("remove_writer")
    add_signal_handler = _refused("add_signal_handler")
    remove_signal_handler = _refused("remove_signal_handler")
    call_soon_threadsafe = _refused("call_soon_threadsafe")
    run_forever = _refused("run_forever")
    run_until_complete = _refused("run_until_complete")
    stop = _refused("stop")
    close = _refused("close")
    shutdown_asyncgens = _refused("shutdown_asyncgens")
    shutdown_default_executor = _refused("shutdown_default_executor")
    set_task_factory = _refused("set_task_factory")
    get_task_factory = _refused("get_task_factory")
    set_exception_handler = _refused("set_exception_handler")
    get_exception_handler = _refused("get_exception_handler")
    set_debug = _refused("set_debug")
