"""A forgotten `await` is an error in a condition and a warning elsewhere, in every build."""

from __future__ import annotations

import asyncio
import gc
import pickle
import warnings
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sluicegate import Claim, Client, Limiter, Permits, SluicegateError
from sluicegate.contracts.errors import NotAwaited

LIMITER = Limiter("100/minute")
PERMITS = Permits(5)
CLIENT = Client("sluicegate://127.0.0.1:9", timeout_ms=100)
ASKS: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
    "Limiter.atake": lambda: LIMITER.atake("ann"),
    "Limiter.apeek": lambda: LIMITER.apeek("ann"),
    "Limiter.await_": lambda: LIMITER.await_("ann", timeout_s=1),
    "Limiter.atake_all": lambda: LIMITER.atake_all(Claim("ann")),
    "Limiter.ajudge": lambda: LIMITER.ajudge(Claim("ann")),
    "Limiter.areserve": lambda: LIMITER.areserve("ann"),
    "Limiter.areserve_all": lambda: LIMITER.areserve_all(Claim("ann")),
    "Limiter.ready": LIMITER.ready,
    "Reservations.asettle": lambda: LIMITER.reserve_all(Claim("ann")).asettle(1),
    "Reservations.acancel": lambda: LIMITER.reserve_all(Claim("ann")).acancel(),
    "Limiter.arefund": lambda: LIMITER.arefund("ann"),
    "Limiter.acharge": lambda: LIMITER.acharge("ann"),
    "Limiter.areset": lambda: LIMITER.areset("ann"),
    "Limiter.aclose": LIMITER.aclose,
    "Reservation.asettle": lambda: LIMITER.reserve("ann").asettle(1),
    "Reservation.acancel": lambda: LIMITER.reserve("ann").acancel(),
    "Permits.aacquire": lambda: PERMITS.aacquire("ann"),
    "Permits.apeek": lambda: PERMITS.apeek("ann"),
    "Client.check": lambda: CLIENT.check("ann", "/"),
    "Client.peek": lambda: CLIENT.peek("ann", "/"),
    "Client.reset": lambda: CLIENT.reset("ann", "/"),
    "Client.connect": CLIENT.connect,
    "Client.close": CLIENT.close,
}
every_ask = pytest.mark.parametrize("name", ASKS)
# A client belongs to one event loop, and there is nobody at its address; `tests/client` awaits it.
every_answered_ask = pytest.mark.parametrize(
    "name", [name for name in ASKS if not name.startswith("Client.")]
)


def warnings_of(call: Callable[[], object]) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
        gc.collect()
    return found


@every_ask
def test_a_forgotten_await_in_a_condition_raises_with_the_remedy(name: str) -> None:
    def ask() -> None:
        with pytest.raises(NotAwaited, match=rf"write `await {name}\(\.\.\.\)`"):
            assert not ASKS[name]()  # type: ignore[truthy-bool]

    assert warnings_of(ask) == []  # the error has said it


@every_ask
def test_what_is_never_awaited_warns(name: str) -> None:
    (found,) = warnings_of(lambda: _drop(ASKS[name]()))
    assert found.category is RuntimeWarning
    assert str(found.message) == f"coroutine '{name}' was never awaited"


def _drop(coroutine: object) -> None:
    del coroutine


@every_answered_ask
def test_what_is_awaited_is_as_ever(name: str) -> None:
    async def story() -> None:
        await ASKS[name]()
        await asyncio.wait_for(ASKS[name](), 60)
        await asyncio.create_task(ASKS[name]())
        await asyncio.gather(ASKS[name](), ASKS[name]())

    assert warnings_of(lambda: asyncio.run(story())) == []
    assert warnings_of(lambda: asyncio.run(ASKS[name]())) == []


@every_answered_ask
def test_a_task_of_it_can_be_printed_before_and_after_its_steps(name: str) -> None:
    async def story() -> None:
        task = asyncio.create_task(ASKS[name]())
        assert "pending" in repr(task)
        await task
        assert "finished" in repr(task)

    asyncio.run(story())


def test_asyncio_may_ask_whether_it_is_there() -> None:
    # As asyncio.base_tasks does since Python 3.12; in a program's own condition it is a mistake.
    condition = "present = bool(coroutine)"
    coroutine = LIMITER.atake("ann")
    asking = {"__name__": "asyncio.base_tasks", "coroutine": coroutine}
    exec(condition, asking)
    assert asking["present"]
    with pytest.raises(NotAwaited):
        exec(condition, {"__name__": "asyncio_program", "coroutine": coroutine})


def test_a_task_that_is_cancelled_before_its_first_step_says_nothing_more() -> None:
    async def story() -> None:
        task = asyncio.create_task(LIMITER.atake("ann"))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    assert warnings_of(lambda: asyncio.run(story())) == []


def test_a_coroutine_that_is_closed_says_nothing() -> None:
    assert warnings_of(lambda: LIMITER.atake("ann").close()) == []


def test_the_error_is_ours_and_travels() -> None:
    error = pickle.loads(pickle.dumps(NotAwaited("Limiter.atake")))
    assert isinstance(error, SluicegateError)
    assert isinstance(error, TypeError)
    assert "Limiter.atake" in str(error)
