from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import INVALID_SPAN, StatusCode, get_current_span

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue, Refused, Unavailable
from sluicegate.contracts.reasons import RATE_LIMITED
from sluicegate.telemetry.request_spans import RequestSpans
from sluicegate.testing import HandClock, SeededChance

TRACE, ASKING = 0xABC, 0xDEF
SAMPLED = f"00-{TRACE:032x}-{ASKING:016x}-01".encode()
NOT_SAMPLED = SAMPLED[:-2] + b"00"
REFUSAL = Decision(False, 0, 1_000, 0, RATE_LIMITED, "rule")


class World:
    def __init__(self, share: float = 0.0, per_s: int = 100) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.clock = HandClock()
        self.spans = RequestSpans(provider, self.clock, SeededChance(1), share=share, per_s=per_s)

    def trace(
        self, work: Callable[[], str | Awaitable[str]], parent: bytes = SAMPLED, state: bytes = b""
    ) -> str | Awaitable[str]:
        return self.spans.trace("ask", {}, parent, state, work, described, nothing)

    @property
    def ended(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()


def described(answer: str) -> Mapping[str, str]:
    return {"answer": answer}


def nothing(_: BaseException) -> Mapping[str, str]:
    return {}


def answer() -> str:
    return "yes"


def test_a_sampled_parent_is_followed_and_one_that_is_not_sampled_is_not() -> None:
    world = World(share=1.0)
    assert world.trace(answer, NOT_SAMPLED) == "yes"
    assert not world.ended
    assert world.trace(answer, SAMPLED, b"vendor=1") == "yes"
    (span,) = world.ended
    assert span.context is not None
    assert span.parent is not None
    assert (span.context.trace_id, span.parent.span_id) == (TRACE, ASKING)
    assert span.context.trace_state.get("vendor") == "1"
    assert dict(span.attributes or {}) == {"answer": "yes"}


@pytest.mark.parametrize(
    "parent",
    [b"x", SAMPLED[:-1], b"00-" + b"0" * 32 + SAMPLED[35:], b"ff" + SAMPLED[2:], b"1" * 600],
)
def test_what_is_no_parent_is_not_traced(parent: bytes) -> None:
    world = World(share=1.0)
    assert world.trace(answer, parent) == "yes"
    assert not world.ended


def test_without_a_parent_a_share_is_traced_and_no_more_than_so_many_a_second() -> None:
    world = World(share=0.5, per_s=10)
    for _ in range(100):
        world.trace(answer, b"")
    assert (len(world.ended), world.spans.begun) == (10, 10)
    assert 30 < world.spans.over < 55
    world.clock.advance(s=1)
    world.trace(answer, SAMPLED)
    assert len(world.ended) == 11
    world.spans.share = 0.0
    world.trace(answer, b"")
    assert len(world.ended) == 11


def test_what_waits_has_its_own_span_on_each_of_its_turns_and_nobody_else_has() -> None:
    async def story() -> None:
        world = World()
        seen: dict[str, set[int]] = {"a": set(), "b": set()}

        async def work(name: str) -> str:
            for _ in range(3):
                seen[name].add(get_current_span().get_span_context().span_id)
                await asyncio.sleep(0)
                async with asyncio.timeout(60):
                    await asyncio.sleep(0)
            return name

        both = [world.trace(partial(work, name)) for name in seen]
        assert get_current_span() is INVALID_SPAN
        answers = await asyncio.gather(*[one for one in both if isinstance(one, Awaitable)])
        assert answers == ["a", "b"]
        assert get_current_span() is INVALID_SPAN
        ids = {
            str((span.attributes or {})["answer"]): {span.context.span_id}
            for span in world.ended
            if span.context is not None
        }
        assert ids == seen

    asyncio.run(story())


def test_a_cancelled_request_ends_its_span_and_its_work() -> None:
    async def story() -> None:
        world, ended = World(), []

        async def work() -> str:
            try:
                await asyncio.sleep(60)
            finally:
                ended.append("work")
            return ""

        traced = world.trace(work)
        assert isinstance(traced, Awaitable)
        task = asyncio.ensure_future(traced)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == ["work"]
        (span,) = world.ended
        assert span.status.status_code is StatusCode.UNSET

    asyncio.run(story())


@pytest.mark.parametrize(
    ("error", "failed"),
    [
        (Refused(REFUSAL), False),
        (BadValue("key", "k", "give another"), False),
        (Unavailable("Redis", "it is gone"), True),
        (ZeroDivisionError(), True),
    ],
)
def test_a_refusal_is_no_failure_and_what_we_fail_at_is_one(
    error: BaseException, failed: bool
) -> None:
    def work() -> str:
        raise error

    world = World()
    with pytest.raises(type(error)):
        world.trace(work)
    (span,) = world.ended
    assert (span.status.status_code is StatusCode.ERROR) is failed
    attributes = span.attributes or {}
    if isinstance(error, Refused):
        assert attributes["sluicegate.reason"] == "rate_limited"
        assert attributes["sluicegate.allowed"] is False
    else:
        assert attributes["error.type"] == type(error).__name__
