"""An interrupt (Ctrl-C, a task's time limit) at every point where Python lets one in."""

from __future__ import annotations

import dis
import sys
import threading
from collections.abc import Callable
from functools import partial
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import pytest

from sluicegate.contracts.rule import Algorithm
from sluicegate.contracts.store import Charge
from sluicegate.limits.wait_lines import finish
from sluicegate.stores.redis import batch, store, thread_client, thread_connection, thread_waiter
from sluicegate.stores.redis import threads as threads_module
from sluicegate.stores.redis.threads import RedisThreads
from tests.prove.seeds import first
from tests.stores.redis.storing import limit_of
from tests.stores.redis.test_threads import PATIENT, threads_on

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer

MODULES = (batch, store, thread_client, thread_connection, thread_waiter, threads_module)
FILES = {str(module.__file__) for module in MODULES}
# A signal's handler runs after a call, at the begin of a function and at the end of a loop's round.
LETS_IN = {"RESUME", "CALL", "CALL_FUNCTION_EX", "CALL_KW", "JUMP_BACKWARD"}
# No window ends amid a story: it takes minutes on a busy machine.
LIMIT = limit_of(Algorithm.FIXED_WINDOW, 1_000, period_us=365 * 24 * 3_600_000_000)

pytestmark = pytest.mark.skipif(
    any(not name.endswith(".py") for name in FILES), reason="compiled code lets no trace in"
)


class Interrupter:
    """Raises KeyboardInterrupt at the `at`th point where a signal could."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.points = 0
        self.place = ""
        self._names: dict[CodeType, dict[int, str]] = {}
        self._before: dict[FrameType, int] = {}

    def trace(self, frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        if frame.f_code.co_filename not in FILES:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            before = self._before.get(frame)
            self._before[frame] = frame.f_lasti
            if before is not None and self._name(frame.f_code, before) in LETS_IN:
                self.points += 1
                if self.points == self.at:
                    self.place = f"{frame.f_code.co_qualname}:{frame.f_lineno}"
                    raise KeyboardInterrupt
        return self.trace

    def _name(self, code: CodeType, at: int) -> str:
        names = self._names.get(code)
        if names is None:
            names = self._names[code] = {
                one.offset: one.opname for one in dis.get_instructions(code)
            }
        return names[at]


def interrupted(work: Callable[[str], object], key: str, at: int) -> Interrupter:
    """Do it with an interrupt at this point; the points that there were."""
    interrupter = Interrupter(at)
    before = sys.gettrace()
    # Connected, and just replied to. Traced as well: from 3.12 on, code that runs under a trace for
    # the first time only asks for its instructions, and tells of them the next time.
    sys.settrace(Interrupter(at=0).trace)
    try:
        work("warm")
        sys.settrace(interrupter.trace)
        work(key)
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return interrupter


def alone(store: RedisThreads, key: str) -> object:
    return finish(store.take([Charge("r", LIMIT, key, 1)]))


def in_a_batch(store: RedisThreads, key: str) -> object:
    return finish(store.take([Charge("r", LIMIT, key, 1), Charge("s", LIMIT, key, 1)]))


def by_others(store: RedisThreads, key: str) -> list[int]:
    """What two other threads have left, one after another and by both ways."""
    left: list[int] = []

    def ask() -> None:
        ruling = finish(store.take([Charge("r", LIMIT, key, 1)]))
        left.append(ruling.decisions[0].remaining)
        ruling = finish(store.take([Charge("r", LIMIT, key, 1), Charge("s", LIMIT, key, 1)]))
        left.append(ruling.decisions[0].remaining)

    for _ in range(2):
        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(60)
    return left


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize(("work", "step"), first(2, [(alone, 1), (in_a_batch, 5), (in_a_batch, 1)]))
def test_an_interrupt_at_any_point_leaves_the_turn_to_others(
    redis_server: RedisServer, work: Callable[[RedisThreads, str], object], step: int
) -> None:
    """At each point, or at one of `step`."""
    with threads_on(redis_server.url + PATIENT) as store:
        alone(store, "warm")
        # Of several, the fewest: a reply that comes in pieces has more points.
        points = min(interrupted(partial(work, store), "warm", at=0).points for _ in range(5))
        assert points > 20
        missed = 0
        tried = range(1, points + 1, step)
        for at in tried:
            key = f"{work.__name__} {at}"
            interrupter = interrupted(partial(work, store), key, at)
            missed += not interrupter.place
            left = by_others(store, key)
            # It is counted now, later or never, and nobody gets another's answer.
            assert left == sorted({*left}, reverse=True), interrupter.place
            assert len(left) == 4, interrupter.place
            assert left[0] in {999, 998}, interrupter.place
            assert left[-1] in {996, 995}, interrupter.place
        assert missed * 4 <= len(tried)


def test_one_interrupt_after_the_turn_was_taken_is_where_a_lock_would_stay_locked(
    redis_server: RedisServer,
) -> None:
    """The control: the points that are tried include that one."""
    with threads_on(redis_server.url + PATIENT) as store:
        alone(store, "warm")
        places = set()
        for at in range(1, interrupted(partial(alone, store), "warm", at=0).points + 1):
            alone(store, "warm")  # connected again
            places.add(interrupted(partial(alone, store), "warm", at).place.partition(":")[0])
        assert {"SendTurn.take", "ThreadClient.begin_alone", "SendTurn.give_back"} <= places
