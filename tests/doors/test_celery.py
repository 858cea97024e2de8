from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker
from celery.exceptions import Retry
from celery.signals import task_retry

from sluicegate import Limiter, Refused
from sluicegate.contracts.arrival import Arrival
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.guard import Judgement
from sluicegate.contracts.reasons import COST_ABOVE_LIMIT, RATE_LIMITED
from sluicegate.doors.celery import Refusing, limit, limited, spacing_us
from sluicegate.testing import HandClock
from tests.doors.guards import Broken, ByAddress


def celery() -> Celery:
    app = Celery("t", broker="memory://", backend="cache+memory://", set_as_current=False)
    app.conf.update(worker_hijack_root_logger=False, broker_connection_retry_on_startup=False)
    return app


class ByTask(ByAddress):
    """Counts each task by its name."""

    def key(self, arrival: Arrival) -> str:
        return f"{arrival.method} {arrival.path} {arrival.user()}{arrival.header('tenant')}"


def test_a_task_is_judged_by_its_name_and_headers() -> None:
    app, guard = celery(), ByTask("1/minute")

    @app.task(name="mail", shared=False)
    @limited(guard, refused="fail")
    def mail(to: str) -> str:
        return f"sent to {to}"

    assert mail.apply(("ann",)).get() == "sent to ann"
    with pytest.raises(Refused) as refused:
        mail.apply(("ann",)).get()
    assert refused.value.decision.retry_after_s == 60
    assert mail.apply(("ann",), headers={"tenant": "b"}).get() == "sent to ann"
    assert mail.apply(("ann",), headers={"sluicegate-user": "c"}).get() == "sent to ann"
    assert guard.lines[0] == "TASK mail"


def test_who_calls_the_function_itself_is_not_limited() -> None:
    @limited(Broken(KeyError("nobody asks")))
    def bare() -> str:
        return "done"

    task = celery().task(shared=False)(bare)
    assert bare() == task() == "done"


def test_eager_task_beyond_its_limit_fails() -> None:
    """An eager task cannot be delayed, because nothing sends it again."""
    limiter = Limiter("1/minute", clock=HandClock())
    app = celery()

    @app.task(shared=False)
    @limit(limiter)
    def mail() -> str:
        return "sent"

    assert mail.apply().get() == "sent"
    late = mail.apply(throw=False)
    assert late.state == "FAILURE"
    assert isinstance(late.result, Refused)
    assert late.result.decision.retry_after_s == pytest.approx(60, abs=1)


class Again:
    """A message that would be sent."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options

    def apply_async(self) -> None: ...


class Task:
    """The parts of a task that a wait needs: its message, its clock, and sending it again."""

    name = "t"

    def __init__(self, headers: dict[str, Any] | None = None) -> None:
        self.request = SimpleNamespace(id="0a1b", retries=0, is_eager=False, headers=headers)
        self.app = SimpleNamespace(now=lambda: datetime.fromtimestamp(1e9, UTC))

    def signature_from_request(self, request: Any, **options: Any) -> Again:
        self.sent = options
        return Again(options)


def refusal(retry_us: int) -> Judgement:
    return Judgement(Decision(False, 0, retry_us, 0, RATE_LIMITED, "r"), ())


def test_wait_of_rejected_task_is_spread_and_bounded() -> None:
    refusing = Refusing("retry", 2, 900, 0.25)
    waits = {refusing.wait_s(10, f"task {n}") for n in range(100)}
    assert len(waits) > 90, "each task has its own"
    assert 10 <= min(waits) < 10.5
    assert 12 < max(waits) <= 12.5
    assert refusing.wait_s(10, "task 1") == refusing.wait_s(10, "task 1")
    assert refusing.wait_s(1e9, "x") == 900
    assert refusing.wait_s(0.001, "x") >= 1
    headers: dict[str, Any] = {"tenant": "b"}
    for waits_before in range(2):
        task = Task(headers)
        with pytest.raises(Retry):
            refusing.enter(task, refusal(10_000_000))
        assert 10 <= task.sent["countdown"] <= 12.5
        headers = task.sent["headers"]
        assert headers["tenant"] == "b"
        assert headers["sluicegate-waits"]["waits"] == waits_before + 1
    with pytest.raises(Refused):  # as retries_max asks
        refusing.enter(Task(headers), refusal(10_000_000))
    unbounded = Refusing("retry", None, 900, 0.25)
    with pytest.raises(Retry):
        unbounded.enter(Task(headers), refusal(10_000_000))


def test_booked_task_waits_in_hops_and_then_runs() -> None:
    """A broker delivers a message again that is delayed for longer than `wait_s_max`."""
    refusing, booked = Refusing("retry", None, 900, 0), []

    def book() -> Decision:
        booked.append(1)
        return Decision(True, 0, 1_000_000_000, 0, None, "r")

    task = Task()
    with pytest.raises(Retry):
        refusing.enter_booked(task, "mail:ann", book, lambda: 1)
    assert task.sent["countdown"] == 900
    later = Task(task.sent["headers"])
    later.app.now = lambda: datetime.fromtimestamp(1e9 + 900, UTC)
    with pytest.raises(Retry):
        refusing.enter_booked(later, "mail:ann", book, lambda: 1)
    assert later.sent["countdown"] == pytest.approx(100)
    due = Task(later.sent["headers"])
    due.app.now = lambda: datetime.fromtimestamp(1e9 + 1_000, UTC)
    assert refusing.enter_booked(due, "mail:ann", book, lambda: 1)
    assert booked == [1]
    due.request.retries = 1  # the task's own retry is new work
    with pytest.raises(Retry):
        refusing.enter_booked(due, "mail:ann", book, lambda: 1)
    assert booked == [1, 1]


def test_overdue_tasks_book_again_and_keep_the_rate() -> None:
    """Twenty tasks at 1/s, and the worker stops from the third second to the tenth."""
    clock = HandClock()
    limiter = Limiter("1/second burst 1", clock=clock)
    refusing = Refusing("retry", None, 900, 0)
    ran_us: list[int] = []
    waiting: list[tuple[int, dict[str, Any]]] = [(0, {}) for _ in range(20)]
    for now_us in range(0, 60_000_000, 250_000):
        clock.advance(us=250_000)
        if 2_000_000 < now_us < 10_000_000:
            continue
        due = [one for one in waiting if one[0] <= now_us]
        waiting = [one for one in waiting if one[0] > now_us]
        for _, headers in due:
            task = Task(headers)
            task.app.now = lambda: datetime.fromtimestamp(1e9 + now_us / 1e6, UTC)  # noqa: B023 - used at once
            try:
                assert refusing.enter_booked(
                    task,
                    "all",
                    lambda: limiter.book("all"),
                    lambda: spacing_us(limiter.limits_of(), 1),
                )
                ran_us.append(now_us)
            except Retry:
                wait_us = round(task.sent["countdown"] * 1e6)
                waiting.append((now_us + wait_us, task.sent["headers"]))
    assert len(ran_us) == 20
    together = [sum(at <= other < at + 1_000_000 for other in ran_us) for at in ran_us]
    assert max(together) <= 2


def test_what_no_wait_will_turn_fails_at_once() -> None:
    never = Judgement(Decision(False, 5, -1, 0, COST_ABOVE_LIMIT, "r"), ())
    for hopeless in (never, refusal(-1)):
        with pytest.raises(Refused):
            Refusing("retry", 7, 900, 0.25).enter(Task(), hopeless)


def test_a_task_may_be_dropped_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    app = celery()
    ran: list[int] = []

    @app.task(shared=False)
    @limited(ByTask("1/minute"), refused="drop")
    def mail() -> None:
        ran.append(1)

    mail.apply()
    with caplog.at_level("WARNING"):
        mail.apply(throw=False)
    assert ran == [1]
    assert "is dropped: Refused by rule 'pages'" in caplog.text


def test_one_rule_of_a_limiter_by_the_arguments_of_a_task() -> None:
    limiter = Limiter(rules={"mail": "10/minute"}, clock=HandClock())
    app = celery()

    @app.task(bind=True, shared=False)
    @limit(
        limiter,
        "mail",
        key=lambda to, size=1: to,
        cost=lambda to, size=1: size,
        refused="fail",
    )
    def mail(self: Any, to: str, size: int = 1) -> str:
        return f"{self.name}: {to}"

    assert mail.apply(("ann",), {"size": 7}).get().endswith("mail: ann")
    assert mail.apply(("bob",), {"size": 7}).get().endswith("mail: bob")
    with pytest.raises(Refused):
        mail.apply(("ann",), {"size": 7}).get()


def test_tasks_count_apart_unless_they_share_a_scope() -> None:
    limiter = Limiter("1/minute", clock=HandClock())
    app = celery()

    def task(name: str, scope: str | None) -> Any:
        @app.task(name=name, shared=False)
        @limit(limiter, scope=scope, refused="fail")
        def run() -> None: ...

        return run

    apart = [task("a", None), task("b", None)]
    states = [one.apply(throw=False).state for one in (*apart, *apart)]
    assert states == ["SUCCESS", "SUCCESS", "FAILURE", "FAILURE"]
    assert [task(name, "s").apply(throw=False).state for name in ("c", "d")] == [
        "SUCCESS",
        "FAILURE",
    ]


def test_a_guard_without_an_answer_puts_a_task_off_as_well() -> None:
    app = celery()

    @app.task(shared=False)
    @limited(Broken(), refused="fail")
    def mail() -> None: ...

    with pytest.raises(Refused, match="cannot be counted"):
        mail.apply().get()


@pytest.mark.parametrize(
    "more", [{"refused": "ignore"}, {"retries_max": -1}, {"wait_s_max": 0}, {"spread": 2}]
)
def test_mistakes_are_told_at_once(more: dict[str, Any]) -> None:
    with pytest.raises(BadValue):
        limited(Broken(), **more)
    with pytest.raises(BadValue, match="nosuch"):
        limit(Limiter(), "nosuch")


@contextmanager
def working(rate: str, **how: Any) -> Iterator[Any]:
    """A task under a rate, and a real worker for it."""
    app = celery()
    root = logging.getLogger()
    level = root.level  # a worker sets it for the whole process, other tests included

    @app.task(name="work", shared=False, max_retries=0)
    @limit(Limiter(rate, **how), key="all", spread=0)
    def work(n: int) -> float:
        return time.monotonic()

    try:
        with start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=60):
            yield work
    finally:
        root.setLevel(level)


def test_backlog_of_tasks_succeeds_with_one_wait_each() -> None:
    waits: list[str] = []

    def count(sender: Any = None, request: Any = None, **_: Any) -> None:
        waits.append(request.id)

    task_retry.connect(count)
    with working("20/second burst 1") as work:
        began_s = time.monotonic()
        results = [work.delay(n) for n in range(40)]
        ran_s = sorted(result.get(timeout=60) for result in results)
    ahead = [n for n, at_s in enumerate(ran_s) if at_s < began_s + n / 20 - 0.01]
    assert ahead == [], "none runs before its instant"
    assert 0 < len(waits) < 40
    assert len(set(waits)) == len(waits), "no task waits twice"


def test_task_under_a_window_waits_and_never_fails() -> None:
    with working("2/second", algorithm="sliding_window") as work:
        results = [work.delay(n) for n in range(5)]
        assert all(result.get(timeout=60) for result in results)
