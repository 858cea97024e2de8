"""A disk that fails once: the write is reported, reads go on, and later writes succeed again."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from sluicegate.contracts.engine import Change, health_of
from sluicegate.contracts.errors import OutcomeUnknown, Unavailable
from sluicegate.stores.engines.group_commit import (
    CommitCall,
    GroupCommitSettings,
    GroupCommitter,
)
from sluicegate.stores.engines.recovery import Recovery
from sluicegate.stores.open_engine import open_engine
from tests.prove.disk.shim import faults

WRITES = 5
RECOVERY_S_MAX = 60.0  # on a machine that is very busy; it takes milliseconds
# Writes while the disk fails once; then until one succeeds. Prints what became of each.
CHILD = """
import asyncio, sys, time
from pathlib import Path
from sluicegate.contracts.engine import Change, health_of
from sluicegate.contracts.errors import SluicegateError
from sluicegate.stores.open_engine import open_engine

async def main():
    engine = open_engine(sys.argv[1])
    await engine.write([Change("t", b"before", b"", b"v")])
    Path(sys.argv[2]).touch()
    until_s = time.monotonic() + float(sys.argv[3])
    good = number = 0
    while good < 5 and time.monotonic() < until_s:
        number += 1
        try:
            await engine.write([Change("t", b"p", b"%d" % number, b"v")])
            good += 1
            print("ok", number)
        except SluicegateError as error:
            print(type(error).__name__, number)
            await asyncio.sleep(0.02)
        assert engine.read("t", [(b"before", b"")]) == [b"v"]
    print("health", health_of(engine).unusable or "good")
    await engine.close()

asyncio.run(main())
"""


def lines_of(url: str, folder: Path, schedule: str) -> list[str]:
    arm = folder.with_name("arm")
    arm.unlink(missing_ok=True)
    program = [sys.executable, "-c", CHILD, url, str(arm), str(RECOVERY_S_MAX)]
    env = faults(folder, arm=arm, schedule=schedule)
    done = subprocess.run(program, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def check_after(url: str, lines: list[str]) -> None:
    """Every acknowledged row is there."""

    async def story() -> None:
        engine = open_engine(url)
        for line in lines:
            word, number = line.split(" ", 1)
            if word == "ok":
                assert engine.read("t", [(b"p", number.encode())]) == [b"v"]
        await engine.close()

    asyncio.run(story())


def test_lmdb_recovers_after_failed_meta_write(tmp_path: Path) -> None:
    seen: set[str] = set()
    for number in range(1, 5):  # one of them is that of the meta page
        folder = tmp_path / f"kv{number}"
        url = f"lmdb:{folder}"
        lines = lines_of(url, folder, f"write@{number}=eio")
        assert lines[-1] == "health good"
        assert sum(line.startswith("ok") for line in lines) == WRITES
        check_after(url, lines)
        seen.update(line.split()[0] for line in lines)
    assert "OutcomeUnknown" in seen


def test_rocksdb_recovers_after_failed_sync(tmp_path: Path) -> None:
    url = f"rocksdb:{tmp_path}/kv"
    lines = lines_of(url, tmp_path / "kv", "sync@2=eio")
    assert lines[1] == "OutcomeUnknown 2"
    assert lines[-1] == "health good"
    assert sum(line.startswith("ok") for line in lines) == WRITES
    check_after(url, lines)


@pytest.mark.parametrize("scheme", ["lmdb", "rocksdb"])
def test_engine_that_recovers_late_fails_health_until_then(
    scheme: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    timers: list[float] = []

    def make_timer(pause_s: float, _: object) -> SimpleNamespace:
        timers.append(pause_s)
        return SimpleNamespace(start=lambda: None)

    monkeypatch.setattr("sluicegate.stores.engines.recovery.threading.Timer", make_timer)
    caplog.set_level(logging.WARNING)

    async def story() -> None:
        engine = open_engine(f"{scheme}:{tmp_path}/kv")
        state: Recovery = engine._recovery  # type: ignore[attr-defined]
        state.lose("a test")
        assert state.begin_attempt()  # as one that failed
        with pytest.raises(Unavailable, match="opened again"):
            await engine.write([Change("t", b"p", b"", b"v")])
        assert health_of(engine).unusable
        state._due.set()
        await engine.write([Change("t", b"p", b"", b"v")])
        assert health_of(engine) == ("", 0)
        await engine.close()

    asyncio.run(story())
    assert timers == [0.1, 0.2]
    assert "is unusable" in caplog.messages[0]
    assert "is usable again" in caplog.messages[-1]


def test_group_of_unknown_outcome_is_not_tried_again() -> None:
    sizes: list[int] = []

    def commit(calls: object) -> list[bool]:
        sizes.append(len(calls))  # type: ignore[arg-type]
        if len(sizes) == 1:
            return [True]
        raise OutcomeUnknown("the engine", "it failed late")

    async def story() -> None:
        committer = GroupCommitter("the engine", commit, GroupCommitSettings())
        await committer.commit(CommitCall((), 0))
        calls = [committer.commit(CommitCall((), 0)) for _ in range(50)]
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(one, OutcomeUnknown) for one in found)
        await committer.close()

    asyncio.run(story())
    assert sum(sizes) == 51, "each call is in one commit alone"
