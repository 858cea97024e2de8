"""Threads of workers: never more than each has, in arrival order."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from sluicegate.apps.resilience.serve.upstream import Upstream
from sluicegate.apps.resilience.serve.workers import ThreadBook, Worker
from sluicegate.contracts.errors import Unavailable

NO_PROCESS: Any = None


def workers(count: int) -> list[Worker]:
    return [Worker(number, Path(str(number)), NO_PROCESS) for number in range(count)]


async def hold(book: ThreadBook, stack: AsyncExitStack) -> Worker:
    return await stack.enter_async_context(book.thread())


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_threads_of_all_workers_are_given_evenly() -> None:
    async def one() -> None:
        book = ThreadBook(2, 10)
        for worker in workers(2):
            book.add(worker)
        async with AsyncExitStack() as stack:
            numbers = [(await hold(book, stack)).number for _ in range(4)]
            assert numbers == [0, 1, 0, 1]
            waiting = asyncio.create_task(hold(book, stack))
            await turn()
            assert not waiting.done()
            waiting.cancel()

    asyncio.run(one())


def test_threads_are_given_in_arrival_order() -> None:
    async def one() -> None:
        book, given = ThreadBook(1, 10), list[str]()

        async def use(name: str) -> None:
            async with book.thread():
                given.append(name)

        async with AsyncExitStack() as stack:
            for worker in workers(1):
                book.add(worker)
            await hold(book, stack)
            tasks = [asyncio.create_task(use(name)) for name in "abc"]
            await turn()
            assert given == []
        await asyncio.gather(*tasks)
        assert given == ["a", "b", "c"]

    asyncio.run(one())


def test_threads_of_ended_worker_are_replaced() -> None:
    async def one() -> None:
        book = ThreadBook(1, 10)
        old, new = workers(2)
        book.add(old)
        async with AsyncExitStack() as stack:
            assert await hold(book, stack) is old
            waiting = asyncio.create_task(hold(book, stack))
            await turn()
            book.remove(old)
            book.add(new)
            assert await waiting is new

    asyncio.run(one())


def test_cancelled_wait_returns_the_thread() -> None:
    async def one() -> None:
        book = ThreadBook(1, 10)
        for worker in workers(1):
            book.add(worker)
        async with AsyncExitStack() as other:
            async with AsyncExitStack() as stack:
                await hold(book, stack)
                waiting = asyncio.create_task(hold(book, other))
                await turn()
            waiting.cancel()  # its thread is granted, and it has not run since
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await hold(book, other)

    asyncio.run(one())


def test_too_many_waiting_raises_unavailable() -> None:
    async def one() -> None:
        book = ThreadBook(1, 1)
        async with AsyncExitStack() as stack:
            waiting = asyncio.create_task(hold(book, stack))
            await turn()
            with pytest.raises(Unavailable, match="1 requests wait for a thread"):
                await hold(book, stack)
            waiting.cancel()

    asyncio.run(one())


def test_connection_that_was_just_aborted_serves_no_other_request(tmp_path: Path) -> None:
    """Its transport ends one turn of the loop later; a request sent before that was a 502."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline():
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    async def exchange(upstream: Upstream) -> int:
        await upstream.begin("GET", b"GET / HTTP/1.1\r\nhost: shop\r\n\r\n")
        return (await upstream.head()).status

    async def one() -> None:
        path = tmp_path / "worker"
        async with await asyncio.start_unix_server(answer, path):
            worker = Worker(1, path, NO_PROCESS)
            kept, aborted = await worker.connect(), await worker.connect()
            for upstream in (kept, aborted):
                assert await exchange(upstream) == 200
            worker.release(kept)
            aborted.abort()
            worker.release(aborted)
            again = await worker.connect()
            assert again is kept
            assert await exchange(again) == 200
            again.abort()
            await asyncio.sleep(0.05)  # the server's connections end

    asyncio.run(one())
