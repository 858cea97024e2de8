"""Writes that an engine commits together are admitted together, at the default settings."""

from __future__ import annotations

import threading
from pathlib import Path

from tests.apps.kv.process import KvProcess

CONNECTIONS = 50
PIPELINED = 16


def test_pipelined_writes_of_50_connections_are_all_accepted(tmp_path: Path) -> None:
    refused: list[object] = []

    def write(process: KvProcess, number: int) -> None:
        client = process.redis()
        for turn in range(4):
            pipe = client.pipeline(transaction=False)
            for at in range(PIPELINED):
                pipe.set(f"t:{number}-{turn}-{at}", b"v" * 100)
            refused.extend(one for one in pipe.execute(raise_on_error=False) if one is not True)

    flags = ("--engine", f"lmdb:{tmp_path / 'data'}")
    with KvProcess(tmp_path, *flags) as kv:
        threads = [
            threading.Thread(target=write, args=(kv, number)) for number in range(CONNECTIONS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert refused == []
        assert kv.redis().get(f"t:49-3-{PIPELINED - 1}") == b"v" * 100
