"""First code of a step host, run before the SDK is imported; standard library only, never imported by us.

Takes descriptor, pid of the parent, uid and gid (-1: keep), most bytes of memory (0: no limit), home folder. Moves the
socket to descriptor 3, gives up privileges, asks to die with the parent, limits its memory, then becomes
`python -m anthares44.automation.host`.
"""

import contextlib
import os
import runpy
import signal
import sys

HOST = "anthares44.automation.host"
DESCRIPTOR = 3
PR_SET_PDEATHSIG = 1


def move(descriptor: int) -> None:
    """Not inheritable: a child of the author's code that lives on must not keep the socket open."""
    if descriptor == DESCRIPTOR:
        os.set_inheritable(DESCRIPTOR, False)
        return
    os.dup2(descriptor, DESCRIPTOR, inheritable=False)
    os.close(descriptor)


def give_up(uid: int, gid: int) -> None:
    if uid >= 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)


def die_with(parent: int) -> None:
    """After `give_up`: a change of account clears the signal. The end of descriptor 3 covers other systems."""
    if sys.platform == "linux":
        with contextlib.suppress(ImportError, OSError, AttributeError):  # an interpreter built without ctypes
            import ctypes  # noqa: PLC0415  only here, and only on Linux

            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def limit_memory(most: int) -> None:
    """Data alone: address space is reserved freely and costs nothing. Else the executor's look at us has to do."""
    if most:
        with contextlib.suppress(ImportError, OSError, ValueError):  # ValueError: a lower limit holds already
            import resource  # noqa: PLC0415  only here, and only where there is one

            resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def main() -> None:
    descriptor, parent, uid, gid, memory = (int(text) for text in sys.argv[1:6])
    move(descriptor)
    give_up(uid, gid)
    die_with(parent)
    limit_memory(memory)
    os.umask(0o077)
    os.chdir(sys.argv[6])
    sys.argv[:] = [HOST]
    runpy.run_module(HOST, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
