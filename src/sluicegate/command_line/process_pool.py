"""Process pool: a pool of processes that end with whoever made them, whatever ends first."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import wait as wait_for
from threading import Thread


@contextmanager
def process_pool(count: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of fresh processes, all of which are gone at the end."""
    others = {child.pid for child in multiprocessing.active_children()}
    # A fork would copy whatever threads and loops there are here.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=_begin)
    try:
        yield pool
        pool.shutdown()
    finally:
        for child in multiprocessing.active_children():
            if child.pid not in others:
                child.terminate()
        pool.shutdown(wait=True, cancel_futures=True)


def _begin() -> None:
    """Start a child: Ctrl-C is for the parent, and a child without its parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait_for([parent.sentinel])
        os._exit(1)
