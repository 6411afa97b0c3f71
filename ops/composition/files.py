"""How many files this process may have open, which is what bounds its connections in the end."""

import resource

import structlog

_OTHERS = 256  # what a process has open beside the connections of callers
_log = structlog.get_logger(__name__)


def within_files(wanted: int) -> int:
    """Raise this process's limit so that as many connections fit, or say how many do."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + _OTHERS
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(most, soft), hard))
        soft = max(most, soft)
    except (OSError, ValueError):  # some systems allow less than they say
        pass
    if soft >= needed:
        return wanted
    fits = max(soft - _OTHERS, 1)
    _log.warning("connections_bounded_by_files", wanted=wanted, fits=fits, files=soft)
    return fits
