"""Quotas while their Redis pauses: a slow store must not be worse than a dead one."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.apps.kv.process import KvProcess

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer

PAUSE_S = 0.15
RUN_S = 0.35
PAUSES = 12


@contextmanager
def pauses(server: RedisServer) -> Iterator[threading.Event]:
    """Stop the server 150 ms of each 500 ms; the event is set after `PAUSES` of them."""
    over = threading.Event()

    def work() -> None:
        try:
            for _ in range(PAUSES):
                server.pause()
                time.sleep(PAUSE_S)
                server.resume()
                time.sleep(RUN_S)
        finally:
            over.set()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield over
    finally:
        thread.join()
        server.resume()


@pytest.mark.engine
def test_caller_below_quota_is_served_while_redis_pauses(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    """Two dispatchers; a caller that spends a few percent of its quota is never refused for it."""
    flags = ("--engine", "memory:", "--quota-ru", "1000000")
    store = ("--store", redis_server.url)
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    served = refused = 0
    with KvProcess(folders[0], *flags, *store) as one, KvProcess(folders[1], *flags, *store) as two:
        clients = [one.redis(), two.redis()]
        with pauses(redis_server) as over:
            while not over.is_set():
                for client in clients:
                    pipe = client.pipeline(transaction=False)
                    for _ in range(5):
                        pipe.set("t:1", "x")
                    for reply in pipe.execute(raise_on_error=False):
                        if reply is True:
                            served += 1
                        else:
                            assert str(reply).startswith("LIMITED"), reply
                            refused += 1
                time.sleep(0.005)
    assert served > 0
    assert refused == 0, f"{refused} refused, {served} served"
