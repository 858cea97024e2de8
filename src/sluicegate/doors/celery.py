"""Celery: a limit in front of a task.

    @app.task
    @limit(limiter, "mail")
    def send_mail(address): ...

The worker asks the limit when a task begins. A task beyond a rate books the next free instant,
leaves the worker, and runs at that instant without asking again: one wait, at any backlog. A task
that starts later than its instant, by more than a second and than the spacing of the limit, books
again: after a stop of the worker the overdue tasks would start together. Rules with a window, and
guards, have no such instant. Their tasks retry after the rejection's delay plus a share that
differs by task, so that they do not return at the same time. A task never fails for waiting unless
`retries_max` is set.

`refused="fail"` fails the task with `Refused` instead, and `refused="drop"` ignores it with a line
in the log. A key or a cost may be a function of the task's arguments.

A wait does not count as one of the task's own retries. `task.apply()` cannot wait: it fails.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import wraps
from operator import index
from typing import Any, Final, ParamSpec, SupportsIndex, TypeVar, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue, MissingPackage, Refused, Unavailable
from sluicegate.contracts.guard import Guard, Judgement, check_guard, check_limiter
from sluicegate.contracts.reasons import RATE_LIMITED
from sluicegate.contracts.rule import Limit
from sluicegate.doors.endpoint_limit import EndpointLimiter, check_rule, judge_claim, scoped_key
from sluicegate.doors.headers import unavailable

try:
    from celery import current_task
    from celery.exceptions import Ignore, Retry
    from celery.utils.log import get_task_logger
except ModuleNotFoundError as error:
    raise MissingPackage(error.name or "celery", "celery") from None

P = ParamSpec("P")
R = TypeVar("R")

TASK: Final = "TASK"
# A worker holds waiting tasks in memory, and Redis delivers one again that is older than an hour.
WAIT_S_MAX: Final = 900.0
SPREAD: Final = 0.25
LATE_US: Final = 1_000_000  # no reason to book again: timers of a busy worker are late
_MARK: Final = "sluicegate-waits"
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
    """The action for a task that is beyond its limit."""

    __slots__ = ("retries_max", "spread", "then", "wait_s_max")

    def __init__(
        self, then: str, retries_max: int | None, wait_s_max: float, spread: float
    ) -> None:
        if then not in _ACTIONS:
            raise BadValue("refused", then, f"give one of {', '.join(_ACTIONS)}")
        if retries_max is not None and retries_max < 0:
            raise BadValue("retries_max", retries_max, "give 0 or more, or None for no bound")
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
        wait_s = self.wait_s(decision.retry_after_us / 1e6, task.request.id or "")
        raise self._wait(task, refusal, wait_s, _due_us(task))

    def enter_booked(
        self,
        task: Any,
        claim: str,
        book: Callable[[], Decision | None],
        spacing_us: Callable[[], int],
    ) -> bool:
        """Return whether the task has booked its instant and this has come; else wait for it.

        False: the rule cannot be booked. `spacing_us` returns the time between two such tasks.
        """
        due_us = _due_us(task)
        due = due_us.get(claim)
        late_us = 0 if due is None else _now_us(task) - due
        if due is None or (late_us > LATE_US and late_us > spacing_us()):
            decision = book()
            if decision is None:
                return False
            if not decision.allowed:
                self.enter(task, Judgement(decision, ()))
            if decision.retry_after_us <= 0:
                return True
            due = due_us[claim] = _now_us(task) + decision.retry_after_us
        wait_s = (due - _now_us(task)) / 1e6
        if wait_s <= 0:
            return True
        refusal = Refused(Decision(False, 0, round(wait_s * 1e6), 0, RATE_LIMITED, claim))
        raise self._wait(task, refusal, min(wait_s, self.wait_s_max), due_us)

    def _wait(self, task: Any, refusal: Refused, wait_s: float, due_us: dict[str, int]) -> Retry:
        """Send the task again for later, and return what ends this run of it."""
        request = task.request
        waits = _mark(task).get("waits", 0) + 1
        if request.is_eager or (self.retries_max is not None and waits > self.retries_max):
            raise refusal
        # task.retry() would use up the retries that the task has for its own errors.
        mark = {"waits": waits, "retries": request.retries, "due_us": due_us}
        headers = {**(request.headers or {}), _MARK: mark}
        again = task.signature_from_request(request, countdown=wait_s, headers=headers)
        again.apply_async()
        return Retry(exc=refusal, when=wait_s, sig=again)  # type: ignore[arg-type]  # a Real

    def wait_s(self, retry_after_s: float, task_id: str) -> float:
        """How long to put a task off: as long as it must, and a share more that is its own."""
        own = zlib.crc32(task_id.encode()) / 0xFFFF_FFFF
        return min(max(retry_after_s, 1.0) * (1 + self.spread * own), self.wait_s_max)


def _now_us(task: Any) -> int:
    """Return the instant by the clock that Celery starts delayed tasks by."""
    now_s: float = task.app.now().timestamp()
    return round(now_s * 1e6)


def spacing_us(limits: Sequence[Limit], units: SupportsIndex) -> int:
    """Return the time between two tasks of this cost at the rate of the slowest limit."""
    return max((index(units) * one.period_us // one.count for one in limits), default=0)


def _mark(task: Any) -> dict[str, Any]:
    """Return the notes of an earlier wait of this run; none after a retry by the task itself."""
    mark = (task.request.headers or {}).get(_MARK)
    if not isinstance(mark, dict) or mark.get("retries") != task.request.retries:
        return {}
    return mark


def _due_us(task: Any) -> dict[str, int]:
    """Return the instants that this run has booked, by claim."""
    return dict(_mark(task).get("due_us", {}))


def limited(
    guard: Guard,
    *,
    refused: str = "retry",
    retries_max: int | None = None,
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
    retries_max: int | None = None,
    wait_s_max: float = WAIT_S_MAX,
    spread: float = SPREAD,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Take `cost` from `rule` for `key` before each run; all may be functions of the arguments.

    A function that returns None as the rule lets the task run and counts nothing.
    Without a key, all runs of the task share the limit. Each task counts by itself; those that give
    the same `scope` count together.
    """
    check_limiter(limiter)
    check_rule(limiter, rule)
    refusing = Refusing(refused, retries_max, wait_s_max, spread)
    book = getattr(limiter, "book", None) if refused == "retry" else None

    def judge(task: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Judgement | None:
        said = rule(*args, **kwargs) if callable(rule) else rule
        if said is None and callable(rule):
            return None
        who = key(*args, **kwargs) if callable(key) else key
        units = cost(*args, **kwargs) if callable(cost) else cost
        name = task.name if scope is None else scope
        if book is not None:
            whole = scoped_key(name, who)
            try:
                if refusing.enter_booked(
                    task,
                    f"{whole} {said}",
                    lambda: book(whole, units, said),
                    lambda: spacing_us(limiter.limits_of(said), units),
                ):
                    return None
            except Unavailable:
                return unavailable()
        return judge_claim(limiter, name, who, said, units)

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
