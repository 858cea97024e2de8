"""A follower in this process: what it shows, what it logs, how it starts and ends."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from sluicegate import BadValue, Unavailable
from sluicegate.limits.glass import follower as glass_follower
from sluicegate.limits.glass.break_glass import Glass, Opening
from sluicegate.limits.glass.follower import GlassFollower
from sluicegate.limits.glass.page import GlassPage
from sluicegate.limits.glass.sources import GlassSource, memory_source, open_source
from sluicegate.testing import HandClock, SeededChance
from sluicegate.wire.timestamps import utc_text
from tests.engines.child import until

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer

FAST_S = 0.01


class Odd:
    """A shelf that does as it is told: a page, an error, or no answer at all."""

    what = "the odd shelf"

    def __init__(self, clock: HandClock) -> None:
        self.clock = clock
        self.answer: bytes | Exception | None = b""
        self.reads = 0
        self.closed = 0

    async def read(self) -> GlassPage:
        self.reads += 1
        if self.answer is None:
            await asyncio.Event().wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return GlassPage(self.clock.now_us(), self.answer or b"")

    async def swap(self, *_: Any) -> bool:
        raise NotImplementedError

    async def lines(self, last: int) -> list[bytes]:
        raise NotImplementedError

    async def close(self) -> None:
        self.closed += 1


@pytest.fixture
def followers() -> Iterator[list[GlassFollower]]:
    made: list[GlassFollower] = []
    yield made
    for follower in made:
        follower.close()


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.DEBUG, "sluicegate.glass")
    return lambda: [
        record.getMessage()
        for record in caplog.records
        if record.name == "sluicegate.glass" and record.levelno >= logging.WARNING
    ]


def soon(ready: Callable[[], bool], what: str = "it comes") -> None:
    until(ready, what)


def threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name == "sluicegate glass"]


def break_(source: GlassSource, for_s: float = 60, **target: str) -> Opening:
    return asyncio.run(source.break_(for_s=for_s, by="ann", why="the rule is wrong", **target))


def test_what_is_opened_is_shown_and_what_is_mended_is_not(
    followers: list[GlassFollower], log: Callable[[], list[str]]
) -> None:
    there, here = HandClock(), HandClock(5_000_000)
    source, glass = memory_source(there, SeededChance(1)), Glass()
    follower = GlassFollower(source, glass, FAST_S, clock=here, chance=SeededChance(2))
    followers.append(follower)
    follower.start()
    soon(lambda: follower.reached)
    opened = break_(source, rule="login")
    soon(lambda: glass.opening_for("login", "bob", here.now_us()) == opened)
    assert glass.opening_for("api", "bob", here.now_us()) is None
    asyncio.run(source.mend(opened.id, by="bob"))
    soon(lambda: not glass.broken)
    soon(lambda: len(log()) == 2)
    end = utc_text(opened.until_us)
    what, who = f"{opened.id} {{}} rule 'login' for every key", "by ann: the rule is wrong"
    assert log() == [
        f"glass broken: {what.format('stops')} until {end} (for 60 s), {who}",
        f"glass whole again: {what.format('no longer stops')}; it was open until {end}, {who}",
    ]


def test_it_ends_here_while_the_source_cannot_be_asked(
    followers: list[GlassFollower], log: Callable[[], list[str]]
) -> None:
    clock = HandClock()
    shelf, glass = Odd(clock), Glass()
    follower = GlassFollower(GlassSource(shelf, SeededChance()), glass, FAST_S, clock=clock)
    followers.append(follower)
    source = memory_source(clock, SeededChance(3))
    opened = break_(source, for_s=60)
    shelf.answer = asyncio.run(source._store.read()).text
    follower.start()
    soon(lambda: glass.opening_for("x", "y", clock.now_us()) == opened)
    shelf.answer = Unavailable("the odd shelf", "it is away")
    soon(lambda: follower.failure != "")
    reads_before = shelf.reads
    soon(lambda: shelf.reads > reads_before + 3)
    clock.advance(us=59_999_999)
    assert glass.opening_for("x", "y", clock.now_us()) == opened
    clock.advance(us=1)
    assert glass.opening_for("x", "y", clock.now_us()) is None
    soon(lambda: not glass.broken)
    shelf.answer = b""
    soon(lambda: follower.failure == "")
    lines = [line.partition(":")[0] for line in log()]
    assert lines == [
        "glass broken",
        "break-glass is not followed",  # once, however often it was asked
        "glass whole again",
        "break-glass is followed again",
    ]


def test_while_the_source_was_never_reached_nothing_is_open(followers: list[GlassFollower]) -> None:
    clock = HandClock()
    shelf, glass = Odd(clock), Glass()
    shelf.answer = Unavailable("the odd shelf", "it is away")
    follower = GlassFollower(GlassSource(shelf, SeededChance()), glass, FAST_S, clock=clock)
    followers.append(follower)
    assert glass.opening_for("x", "y", clock.now_us()) is None
    soon(lambda: shelf.reads > 3)
    assert (glass.broken, follower.reached) == (False, False)
    assert "it is away" in follower.failure


def test_what_cannot_be_understood_closes_what_was_open_and_is_told_once(
    followers: list[GlassFollower], log: Callable[[], list[str]]
) -> None:
    clock = HandClock()
    shelf, glass = Odd(clock), Glass()
    source = memory_source(clock, SeededChance(3))
    break_(source)
    shelf.answer = asyncio.run(source._store.read()).text
    follower = GlassFollower(GlassSource(shelf, SeededChance()), glass, FAST_S, clock=clock)
    followers.append(follower)
    follower.start()
    soon(lambda: follower.reached and glass.broken)
    shelf.answer = b"*"
    soon(lambda: not glass.broken)
    reads_before = shelf.reads
    soon(lambda: shelf.reads > reads_before + 3)
    assert sum("cannot be understood, so nothing is open" in line for line in log()) == 1


def test_a_bug_in_a_source_ends_nothing_and_is_logged_once(
    followers: list[GlassFollower], log: Callable[[], list[str]]
) -> None:
    clock = HandClock()
    shelf, glass = Odd(clock), Glass()
    shelf.answer = ZeroDivisionError("oh")
    follower = GlassFollower(GlassSource(shelf, SeededChance()), glass, FAST_S, clock=clock)
    followers.append(follower)
    follower.start()
    soon(lambda: shelf.reads > 3)
    assert sum("looking at the odd shelf failed" in line for line in log()) == 1
    shelf.answer = b""
    soon(lambda: follower.reached)


def test_a_source_that_says_nothing_is_given_up_and_asked_again(
    followers: list[GlassFollower], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(glass_follower, "LOOK_S_MAX", 0.02)
    clock = HandClock()
    shelf, glass = Odd(clock), Glass()
    shelf.answer = None
    follower = GlassFollower(GlassSource(shelf, SeededChance()), glass, FAST_S, clock=clock)
    followers.append(follower)
    follower.start()
    soon(lambda: "has not answered" in follower.failure)
    shelf.answer = b""
    soon(lambda: follower.reached and not follower.failure)


def test_what_is_left_is_counted_from_before_the_source_was_asked(
    followers: list[GlassFollower],
) -> None:
    clock, glass = HandClock(), Glass()
    source = memory_source(clock, SeededChance(3))
    opened = break_(source, for_s=60)
    page = asyncio.run(source._store.read())

    class Slow(Odd):
        async def read(self) -> GlassPage:
            clock.advance(s=2)  # on the way there, and on the way back
            return GlassPage(opened.opened_at_us + 10_000_000, page.text)

    began_us = clock.now_us()
    follower = GlassFollower(GlassSource(Slow(clock), SeededChance()), glass, 60, clock=clock)
    followers.append(follower)
    follower.start()
    soon(lambda: follower.reached and glass.broken)
    assert glass.opening_for("x", "y", began_us + 50_000_000 - 1) == opened
    assert glass.opening_for("x", "y", began_us + 50_000_000) is None


def test_it_starts_with_the_first_question_and_not_before(followers: list[GlassFollower]) -> None:
    before = len(threads())
    glass = Glass()
    follower = GlassFollower(memory_source(), glass, FAST_S)
    followers.append(follower)
    assert glass.broken
    assert len(threads()) == before
    assert glass.opening_for("x", "y", 0) is None
    assert len(threads()) == before + 1
    soon(lambda: not glass.broken)
    follower.start()
    assert len(threads()) == before + 1


def test_closing_ends_the_thread_the_source_and_all_that_was_open() -> None:
    before = len(threads())
    clock = HandClock()
    source = memory_source(clock, SeededChance(3))
    break_(source)
    shelf = Odd(clock)
    shelf.answer = asyncio.run(source._store.read()).text
    glass = Glass()
    with GlassFollower(GlassSource(shelf, SeededChance()), glass, 60, clock=clock) as follower:
        soon(lambda: glass.opening_for("x", "y", clock.now_us()) is not None)
    assert len(threads()) == before
    assert shelf.closed == 1
    assert not glass.broken
    assert glass.opening_for("x", "y", clock.now_us()) is None
    follower.start()
    follower.close()
    assert len(threads()) == before


def test_closing_does_not_wait_for_a_source_that_says_nothing() -> None:
    before = len(threads())
    shelf = Odd(HandClock())
    shelf.answer = None
    follower = GlassFollower(GlassSource(shelf, SeededChance()), Glass(), FAST_S)
    follower.start()
    soon(lambda: shelf.reads == 1)
    follower.close()
    assert len(threads()) == before
    assert shelf.closed == 1


def test_without_threads_to_be_had_the_question_is_answered_and_asked_again_later(
    followers: list[GlassFollower], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    glass = Glass()
    follower = GlassFollower(memory_source(), glass, FAST_S)
    followers.append(follower)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        assert glass.opening_for("x", "y", 0) is None
    assert "no thread" in follower.failure
    assert glass.opening_for("x", "y", 0) is None
    soon(lambda: follower.reached)


@pytest.mark.parametrize("interval_s", [0, 0.001, 61, float("nan")])
def test_an_interval_out_of_bounds_is_refused(interval_s: float) -> None:
    with pytest.raises(BadValue, match="interval_s"):
        GlassFollower(memory_source(), Glass(), interval_s)


def test_a_fleet_does_not_ask_in_one_beat() -> None:
    waits: list[float] = []
    real, thread = asyncio.sleep, threading.get_ident()

    class WatchedError(Exception):
        pass

    async def sleep(seconds: float) -> None:
        if threading.get_ident() != thread:  # loops of other tests may still run in threads
            await real(seconds)
            return
        waits.append(seconds)
        if len(waits) == 50:
            raise WatchedError

    follower = GlassFollower(memory_source(), Glass(), 1.0, chance=SeededChance(4))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(asyncio, "sleep", sleep)
        with pytest.raises(WatchedError):
            asyncio.run(follower._follow())
    follower.close()
    assert 0.8 <= min(waits) < 0.85
    assert 1.15 < max(waits) <= 1.2


def test_closing_while_a_server_does_not_answer_leaves_no_complaint(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    glass = Glass()
    url = f"{redis_server.url}?timeout_ms=5000&silence_ms_max=5000"
    follower = GlassFollower(open_source(url), glass, FAST_S)
    follower.start()
    soon(lambda: follower.reached)
    redis_server.pause()
    asking = threading.Event()
    asking.wait(0.1)  # by now it has asked
    follower.close()
    gc.collect()
    assert [one for one in caplog.records if one.name == "asyncio"] == []


def test_a_forked_child_follows_anew_and_keeps_what_its_parent_knew(
    redis_server: RedisServer,
) -> None:
    parent_glass = Glass()
    source = open_source(redis_server.url)
    opened = asyncio.run(_opened(redis_server.url, "login"))
    clock = SystemLike()
    with GlassFollower(source, parent_glass, 0.05) as follower:
        soon(lambda: follower.reached and parent_glass.broken)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:  # pragma: no cover - in the child
            verdict = b"?"
            try:
                first = parent_glass.opening_for("login", "ann", clock.now_us())
                verdict = b"kept " if first == opened else b"lost "
                os.write(write, verdict)
                soon(lambda: parent_glass.opening_for("api", "x", clock.now_us()) is not None)
                os.write(write, b"followed")
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            assert pipe.read(5) == b"kept "
            later = asyncio.run(_opened(redis_server.url, "api"))
            assert pipe.read() == b"followed"
        os.waitpid(child, 0)
        # The parent's own connection has not suffered.
        soon(lambda: parent_glass.opening_for("api", "x", clock.now_us()) == later)
        assert follower.failure == ""
    gc.collect()


async def _opened(url: str, rule: str) -> Opening:
    source = open_source(url)
    try:
        return await source.break_(rule=rule, for_s=60, by="ann", why="test")
    finally:
        await source.close()


class SystemLike:
    """The real clock, as a limiter has it."""

    def now_us(self) -> int:
        from sluicegate.system import now_us

        return now_us()
