"""Celery: a limit in front of a task.

    @app.task
    @limited(guard)
    def send_mail(address): ...

A worker asks the guard when a task begins; the arrival's method is TASK, its path the task's name,
its headers those of the message. What is refused is put off: the task retries when the refusal
says, a bounded number of times. Tasks that were refused together are spread, each by its own id, so
that they do not come back as one herd. `refused="fail"` fails the task at once with `Refused`, and
`refused="drop"` ignores it with a line in the log.

`limit` is the same for one rule of a limiter. A key may be a function of the task's arguments.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, ParamSpec, SupportsIndex, TypeVar, final

from sluicegate.contracts.errors import BadValue, MissingPackage, Refused, Unavailable
from sluicegate.contracts.guard import Guard, Judgement, check_guard, check_limiter
from sluicegate.doors.endpoint_limit import EndpointLimiter, judge_claim
from sluicegate.doors.headers import unavailable

try:
    from celery import current_task
    from celery.exceptions import Ignore
    from celery.utils.log import get_task_logger
except ModuleNotFoundError as error:
    raise MissingPackage(error.name or "celery", "celery") from None

P = ParamSpec("P")
R = TypeVar("R")

TASK: Final = "TASK"
RETRIES_MAX: Final = 100
# A worker holds what is put off in memory, and brokers lose patience: Redis after an hour.
WAIT_S_MAX: Final = 900.0
SPREAD: Final = 0.25
_ACTIONS: Final = ("retry", "fail", "drop")

_log = get_task_logger(__name__)


@final
class _TaskArrival:
    """A task that a worker is about to run, as an arrival."""

    __slots__ = ("_task",)

    def __init__(self, task: Any) -> None:
        self._task = task

    @property
    def method(self) -> str:
        """TASK."""
        return TASK

    @property
    def path(self) -> str:
        """The name of the task."""
        return str(self._task.name)

    def address(self) -> str:
        """Nobody calls a worker; a task that has its caller's address says so by a header."""
        return ""

    def header(self, name: str) -> str:
        """The message's header of that name, as `apply_async(headers=...)` has set it."""
        value = (self._task.request.headers or {}).get(name)
        return "" if value is None else str(value)

    def user(self) -> str:
        """A header again: `sluicegate-user`."""
        return self.header("sluicegate-user")


@final
class Refusing:
    """What is done with a refused task."""

    __slots__ = ("retries_max", "spread", "then", "wait_s_max")

    def __init__(self, then: str, retries_max: int, wait_s_max: float, spread: float) -> None:
        if then not in _ACTIONS:
            raise BadValue("refused", then, f"give one of {', '.join(_ACTIONS)}")
        if retries_max < 0:
            raise BadValue("retries_max", retries_max, "give a number of retries, 0 or more")
        if not wait_s_max > 0:
            raise BadValue("wait_s_max", wait_s_max, "give seconds above 0")
        if not 0 <= spread <= 1:
            raise BadValue("spread", spread, "give a share of the wait, 0 to 1")
        self.then = then
        self.retries_max = retries_max
        self.wait_s_max = wait_s_max
        self.spread = spread

    def enter(self, task: Any, judgement: Judgement | None) -> None:
        """Return if the task may run."""
        if judgement is None or judgement.decision.allowed:
            return
        decision = judgement.decision
        refusal = Refused(decision)
        if self.then == "drop":
            _log.warning("%s[%s] is dropped: %s", task.name, task.request.id, decision.explain())
            raise Ignore(str(refusal))
        reason = decision.reason
        if self.then == "fail" or decision.retry_after_us < 0 or not (reason and reason.retryable):
            raise refusal
        raise task.retry(
            exc=refusal,  # what it fails with when its retries are used up
            countdown=self.wait_s(decision.retry_after_s, task.request.id or ""),
            max_retries=self.retries_max,
        )

    def wait_s(self, retry_after_s: float, task_id: str) -> float:
        """How long to put a task off: as long as it must, and a share more that is its own."""
        own = zlib.crc32(task_id.encode()) / 0xFFFF_FFFF
        return min(max(retry_after_s, 1.0) * (1 + self.spread * own), self.wait_s_max)


def limited(
    guard: Guard,
    *,
    refused: str = "retry",
    retries_max: int = RETRIES_MAX,
    wait_s_max: float = WAIT_S_MAX,
    spread: float = SPREAD,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Ask a guard before each run of a task; it stands below `@app.task`."""
    check_guard(guard)
    refusing = Refusing(refused, retries_max, wait_s_max, spread)

    def judge(task: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Judgement | None:
        try:
            return guard.judge(_TaskArrival(task))
        except Unavailable:
            return unavailable()

    return _around(judge, refusing)


def limit(
    limiter: EndpointLimiter,
    rule: Any = None,
    *,
    key: str | Callable[..., str] = "",
    cost: SupportsIndex | Callable[..., SupportsIndex] = 1,
    scope: str | None = None,
    refused: str = "retry",
    retries_max: int = RETRIES_MAX,
    wait_s_max: float = WAIT_S_MAX,
    spread: float = SPREAD,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Take `cost` from `rule` for `key` before each run; both may be functions of the arguments.

    Without a key, all runs of the task share the limit. Each task counts by itself; those that give
    the same `scope` count together.
    """
    check_limiter(limiter)
    limiter.limits_of(rule)  # a bad rule is an error here, not at the first run
    refusing = Refusing(refused, retries_max, wait_s_max, spread)

    def judge(task: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Judgement:
        who = key(*args, **kwargs) if callable(key) else key
        units = cost(*args, **kwargs) if callable(cost) else cost
        return judge_claim(limiter, task.name if scope is None else scope, who, rule, units)

    return _around(judge, refusing)


def _around(
    judge: Callable[[Any, tuple[Any, ...], dict[str, Any]], Judgement | None], refusing: Refusing
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    def around(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def limited_run(*args: P.args, **kwargs: P.kwargs) -> R:
            task: Any = current_task
            if task and task.request.called_directly is False:
                bound = args[1:] if args and args[0] is task._get_current_object() else args
                refusing.enter(task, judge(task, bound, kwargs))
            return function(*args, **kwargs)

        return limited_run

    return around
