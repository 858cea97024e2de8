"""WSGI threads: how many threads a WSGI server has, as seen from a request that it serves.

WSGI does not tell. `wsgi.multithread` is false where there is one. A pool is found in the frames
below the request: that of `concurrent.futures`, which gunicorn's gthread workers use, and those of
waitress and cheroot. Where nothing is found, the answer is None.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import FrameType, MappingProxyType
from typing import Any, Final

FRAMES_MAX: Final = 200  # between a server's loop and its application


def server_threads(environ: Mapping[str, Any]) -> int | None:
    """Return the number of threads that serve requests in this process, if it can be found."""
    if not environ.get("wsgi.multithread", True):
        return 1
    frame: FrameType | None = sys._getframe()
    for _ in range(FRAMES_MAX):
        if frame is None:
            return None
        name = frame.f_globals.get("__name__"), frame.f_code.co_name
        find = _POOLS.get(name)
        if find is not None:
            found = find(frame.f_locals)
            return found if isinstance(found, int) and found > 0 else None
        frame = frame.f_back
    return None


def _of_executor(names: Mapping[str, Any]) -> object:
    reference = names.get("executor_reference")
    executor = reference() if callable(reference) else None
    return getattr(executor, "_max_workers", None)


def _of_waitress(names: Mapping[str, Any]) -> object:
    return len(getattr(names.get("self"), "threads", ()))


def _of_cheroot(names: Mapping[str, Any]) -> object:
    return getattr(
        getattr(getattr(names.get("self"), "server", None), "requests", None), "max", None
    )


_POOLS: Final[Mapping[tuple[object, str], Callable[[Mapping[str, Any]], object]]] = (
    MappingProxyType(
        {
            ("concurrent.futures.thread", "_worker"): _of_executor,
            ("waitress.task", "handler_thread"): _of_waitress,
            ("cheroot.workers.threadpool", "run"): _of_cheroot,
        }
    )
)
