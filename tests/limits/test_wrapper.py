from __future__ import annotations

import asyncio
from inspect import iscoroutinefunction

import pytest

from sluicegate import BadValue, Limiter, Refused
from sluicegate.testing import HandClock


def test_a_function_runs_until_its_limit_and_is_then_refused() -> None:
    limiter, ran = Limiter(clock=HandClock()), list[int]()

    @limiter.limit("2/minute", key="mail")
    def send(number: int) -> int:
        """Send it."""
        ran.append(number)
        return number * 10

    assert [send(1), send(number=2)] == [10, 20]
    with pytest.raises(Refused) as error:
        send(3)
    assert ran == [1, 2]
    assert error.value.decision.retry_after_s == 30
    assert (send.__name__, send.__doc__) == ("send", "Send it.")


def test_key_and_cost_may_be_functions_of_the_call() -> None:
    limiter = Limiter("10/minute", clock=HandClock())

    @limiter.limit(key=lambda user, pages=1: f"user:{user}", cost=lambda user, pages=1: pages)
    def print_out(user: str, pages: int = 1) -> str:
        return f"{user} {pages}"

    assert print_out("ann", pages=9) == "ann 9"
    with pytest.raises(Refused):
        print_out("ann", 2)
    assert print_out("bob") == "bob 1"
    assert limiter.peek("user:ann", 0).remaining == 1


def test_a_coroutine_function_stays_one() -> None:
    limiter = Limiter("1/minute", clock=HandClock())

    @limiter.limit(key="a")
    async def work() -> str:
        await asyncio.sleep(0)
        return "done"

    async def story() -> str:
        first = await work()
        with pytest.raises(Refused):
            await work()
        return first

    assert iscoroutinefunction(work)
    assert asyncio.run(story()) == "done"


def test_a_failure_of_the_function_is_its_own() -> None:
    limiter = Limiter("5/minute", clock=HandClock())

    @limiter.limit(key="a")
    def fail() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()
    assert limiter.peek("a", 0).remaining == 4


def test_a_block_is_limited_plain_or_async() -> None:
    limiter = Limiter("2/minute", clock=HandClock())
    with limiter.limit(key="a", cost=1) as decision:
        assert decision.remaining == 1

    async def story() -> None:
        async with limiter.limit(key="a"):
            pass
        async with limiter.limit(key="a"):
            raise AssertionError("must not be reached")

    with pytest.raises(Refused):
        asyncio.run(story())


def test_a_block_has_no_arguments_to_make_a_key_of() -> None:
    limiter = Limiter("2/minute", clock=HandClock())
    with pytest.raises(BadValue, match="a block has no arguments"), limiter.limit(key=str):
        pass


def test_mistakes_are_told_where_the_limit_is_written() -> None:
    with pytest.raises(BadValue, match="rule: 'often'"):
        Limiter().limit("often", key="a")
    with pytest.raises(BadValue, match="rule: None"):
        Limiter().limit(key="a")
    with pytest.raises(BadValue, match="key: 7 cannot be used"):
        Limiter("1/s").limit(key=7)  # type: ignore[arg-type]
