from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.policies.client.call_result import ResultKind
from sluicegate.resilience import soft
from sluicegate.testing import HandClock

LONG_S = 60.0


def test_soft_coroutine_that_fails_returns_default() -> None:
    @soft(default=list)
    async def reviews(listing: str) -> list[str]:
        """Of a listing."""
        raise KeyError(listing)

    assert asyncio.run(reviews("lamp")) == []
    found = asyncio.run(reviews.result(listing="lamp"))
    assert found.degraded
    assert isinstance(found.error, KeyError)
    assert reviews.__doc__ == "Of a listing."


def test_soft_function_that_hangs_returns_default() -> None:
    hangs = threading.Event()

    @soft(default=lambda: "none", timeout_s=0.02)
    def trends() -> str:
        hangs.wait(30)
        return "late"

    found = trends.result()
    hangs.set()
    assert (found.unwrap(), found.stop_reason) == ("none", "timed_out")


def test_soft_function_that_succeeds_returns_its_value() -> None:
    @soft(default=lambda: 0, timeout_s=LONG_S)
    def count(*numbers: int) -> int:
        return sum(numbers)

    assert count(1, 2) == 3
    assert not count.result(1, 2).degraded


def test_soft_function_without_default_raises_its_error() -> None:
    @soft(timeout_s=LONG_S)
    def broken() -> str:
        raise KeyError("a bug")

    with pytest.raises(KeyError):
        broken()


def test_good_value_replaces_failure_of_same_arguments() -> None:
    clock, works = HandClock(), [True]

    @soft(default=lambda: "none", stale_s=10, clock=clock)
    async def price(item: str, *, shop: int = 1) -> str:
        if not works:
            raise ConnectionResetError
        return f"{item} at {shop}"

    assert asyncio.run(price("lamp")) == "lamp at 1"
    works.clear()
    assert asyncio.run(price("lamp")) == "lamp at 1"
    assert asyncio.run(price("lamp", shop=2)) == "none"
    assert asyncio.run(price("1")) == "none"
    clock.advance(us=11_000_000)
    assert asyncio.run(price("lamp")) == "none"


def test_good_value_is_not_kept_unless_asked_for() -> None:
    works = [True]

    @soft(default=lambda: "none")
    async def price() -> str:
        if not works:
            raise ConnectionResetError
        return "fresh"

    assert asyncio.run(price()) == "fresh"
    works.clear()
    assert asyncio.run(price()) == "none"


def test_argument_without_name_needs_a_key() -> None:
    """The address of an object may be another object's later."""

    @soft(default=lambda: "none", stale_s=10)
    async def page(user: object) -> str:
        return "fresh"

    @soft(default=lambda: "none", stale_s=10, key=lambda user: str(id(type(user))))
    async def named(user: object) -> str:
        return "fresh"

    with pytest.raises(BadValue, match="give `key`"):
        asyncio.run(page(object()))
    assert asyncio.run(named(object())) == "fresh"


def test_soft_coroutine_without_free_slot_returns_default() -> None:
    @soft(default=lambda: "none", slots=1, timeout_s=LONG_S)
    async def trends() -> str:
        await asyncio.Event().wait()
        return "late"

    async def story() -> str:
        first = asyncio.create_task(trends())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        found = await trends.result()
        assert found.stop_reason == ResultKind.OVERLOADED.value
        first.cancel()
        return found.unwrap()

    assert asyncio.run(story()) == "none"


def generator() -> Any:
    yield 1


@pytest.mark.parametrize(
    "use",
    [
        lambda: soft(default=3),  # type: ignore[arg-type]
        lambda: soft(default=list)(generator),
        lambda: soft(timeout_s=-1),
        lambda: soft(timeout_s="1"),  # type: ignore[arg-type]
        lambda: soft()(None),  # type: ignore[call-overload]
    ],
)
def test_bad_argument_of_soft_is_refused(use: Any) -> None:
    with pytest.raises(BadValue):
        use()


def test_soft_without_brackets_raises_with_the_fix() -> None:
    with pytest.raises(BadValue, match=r"'generator' cannot be used; write @soft\(\)"):
        soft(generator)  # type: ignore[arg-type]
