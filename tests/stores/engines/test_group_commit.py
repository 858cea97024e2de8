from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
import rocksdict

from sluicegate.contracts.engine import Change
from sluicegate.contracts.errors import OutcomeUnknown, Unavailable
from sluicegate.stores.engines import group_commit
from sluicegate.stores.engines.group_commit import CommitCall, GroupCommitSettings, GroupCommitter
from sluicegate.stores.open_engine import open_engine
from sluicegate.testing.engines import resolve


def test_a_call_that_fails_in_a_group_fails_alone() -> None:
    sizes: list[int] = []

    def commit(calls: Sequence[CommitCall]) -> list[bool]:
        sizes.append(len(calls))
        if any(call.weight == 13 for call in calls):
            raise OSError("thirteen")
        return [True] * len(calls)

    async def story() -> None:
        committer = GroupCommitter("the test", commit, GroupCommitSettings())
        results = await asyncio.gather(
            *(committer.commit(CommitCall((), weight)) for weight in range(20)),
            return_exceptions=True,
        )
        assert [one is True for one in results] == [weight != 13 for weight in range(20)]
        assert max(sizes) > 1, "they were a group at first"
        await committer.close()

    asyncio.run(story())


def test_a_group_is_bounded_in_bytes_and_one_call_may_be_larger() -> None:
    weights: list[int] = []

    def commit(calls: Sequence[CommitCall]) -> list[bool]:
        weights.append(sum(call.weight for call in calls))
        return [True] * len(calls)

    async def story() -> None:
        committer = GroupCommitter("the test", commit, GroupCommitSettings(bytes_max=100))
        await asyncio.gather(*(committer.commit(CommitCall((), 30)) for _ in range(50)))
        await committer.commit(CommitCall((), 500))
        await committer.close()

    asyncio.run(story())
    assert max(weights[:-1]) <= 100
    assert weights[-1] == 500


def test_a_step_that_fails_is_told_once_and_tried_again_and_holds_up_no_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    steps = 0

    def step() -> bool:
        nonlocal steps
        steps += 1
        if steps < 3:
            raise RuntimeError("as it happens")
        return False

    async def story() -> None:
        committer = GroupCommitter("the test", _all_made, GroupCommitSettings(), step=step)
        async with asyncio.timeout(60):
            for _ in range(5):
                assert await committer.commit(CommitCall((), 1))
        await committer.close()

    with caplog.at_level(logging.ERROR, "sluicegate.kv"):
        asyncio.run(story())
    assert steps >= 3
    assert len(caplog.records) == 1


def test_a_step_that_fails_is_tried_again_if_nobody_commits(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(group_commit, "_FAILED_PAUSE_S", 0.001)
    again = threading.Event()
    steps = 0

    def step() -> bool:
        nonlocal steps
        steps += 1
        if steps == 1:
            raise RuntimeError("as it happens")
        again.set()
        return False

    async def story() -> None:
        committer = GroupCommitter("the test", _all_made, GroupCommitSettings(), step=step)
        committer.start()
        assert await asyncio.to_thread(again.wait, 10)
        await committer.close()

    asyncio.run(story())
    assert "as it happens" in caplog.text


def test_a_writer_that_ends_fails_what_waits_and_whatever_comes_later() -> None:
    def commit(calls: Sequence[CommitCall]) -> list[bool]:
        raise SystemExit(3)  # what no guard of a single commit takes for its own

    async def story() -> None:
        committer = GroupCommitter("the test", commit, GroupCommitSettings(calls_max=1))
        async with asyncio.timeout(60):
            results = await asyncio.gather(
                *(committer.commit(CommitCall((), 1)) for _ in range(3)), return_exceptions=True
            )
            # The call in the commit may be on the disk; the other two had not begun.
            assert [type(one) for one in results] == [OutcomeUnknown, Unavailable, Unavailable]
            with pytest.raises(Unavailable, match="its writer ended"):
                await committer.commit(CommitCall((), 1))
        await committer.close()

    asyncio.run(story())


def _all_made(calls: Sequence[CommitCall]) -> list[bool]:
    return [True] * len(calls)


@pytest.mark.parametrize("scheme", ["lmdb", "rocksdb"])
def test_a_drop_between_two_writes_of_one_group_takes_the_first_alone(
    scheme: str, tmp_path: Path
) -> None:
    async def story() -> None:
        engine = open_engine(f"{scheme}:{tmp_path}/kv")
        # The first keeps the committer busy; the others gather behind it, in their order.
        await asyncio.gather(
            engine.write([Change("other", b"p", b"", b"v" * 1_000_000)]),
            engine.write([Change("t", b"p", b"a", b"before")]),
            engine.drop("t"),
            engine.write([Change("t", b"p", b"b", b"after")]),
        )
        rows = await resolve(engine.read("t", [(b"p", b"a"), (b"p", b"b")]))
        assert list(rows) == [None, b"after"]
        await engine.close()
        engine = open_engine(f"{scheme}:{tmp_path}/kv")
        assert list(await engine.walk("t", None, 9)) == [(b"p", b"b", b"after")]
        await engine.close()

    asyncio.run(story())


def test_rocksdb_keeps_no_row_of_a_dropped_space(tmp_path: Path) -> None:
    async def story() -> None:
        engine = open_engine(f"rocksdb:{tmp_path}/kv")
        await engine.write([Change("t", b"p", b"%d" % row, b"v") for row in range(20)])
        await engine.drop("t")
        await engine.close()

    asyncio.run(story())
    database = rocksdict.Rdict(f"{tmp_path}/kv", rocksdict.Options(raw_mode=True))
    keys = [key for key in database.keys() if isinstance(key, bytes)]  # noqa: SIM118
    assert keys, "what it must remember"
    assert all(key.startswith(b"\0\0\0\0") for key in keys)
    database.close()
