from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker
from celery.exceptions import Retry

from sluicegate import Limiter, Refused
from sluicegate.contracts.arrival import Arrival
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.guard import Judgement
from sluicegate.contracts.reasons import COST_ABOVE_LIMIT
from sluicegate.doors.celery import Refusing, limit, limited
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


def test_a_refused_task_is_put_off_until_the_refusal_says() -> None:
    app = celery()

    @app.task(shared=False)
    @limited(ByTask("1/minute"), spread=0)
    def mail() -> str:
        return "sent"

    assert mail.apply().get() == "sent"
    put_off = mail.apply(throw=False)
    # Eager tasks retry at once; each try is refused again, until the bound is reached.
    assert put_off.state == "FAILURE"
    assert isinstance(put_off.result, Refused)


class Task:
    """As much of a task as a refusal needs: it tells what it is asked to do."""

    name = "t"

    class request:  # noqa: N801 - celery's own name
        id = "0a1b"

    def retry(self, **how: Any) -> Retry:
        self.how = how
        return Retry()


def refusal(retry_us: int) -> Judgement:
    from sluicegate.contracts.reasons import RATE_LIMITED

    return Judgement(Decision(False, 0, retry_us, 0, RATE_LIMITED, "r"), ())


def test_the_wait_is_spread_bounded_and_never_too_short() -> None:
    refusing = Refusing("retry", 7, 900, 0.25)
    waits = {refusing.wait_s(10, f"task {n}") for n in range(100)}
    assert len(waits) > 90, "each task has its own"
    assert 10 <= min(waits) < 10.5
    assert 12 < max(waits) <= 12.5
    assert refusing.wait_s(10, "task 1") == refusing.wait_s(10, "task 1")
    assert refusing.wait_s(1e9, "x") == 900
    assert refusing.wait_s(0.001, "x") >= 1
    task = Task()
    with pytest.raises(Retry):
        refusing.enter(task, refusal(10_000_000))
    assert task.how["max_retries"] == 7
    assert 10 <= task.how["countdown"] <= 12.5
    assert isinstance(task.how["exc"], Refused)


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


@pytest.fixture
def worked() -> Iterator[tuple[Celery, Any, list[int]]]:
    app, ran = celery(), []
    limiter = Limiter("2/second")

    @app.task(name="work", shared=False)
    @limit(limiter, key="all", spread=0)
    def work(n: int) -> int:
        ran.append(n)
        return n

    root = logging.getLogger()
    level = root.level  # a worker sets it for the whole process, other tests included
    try:
        with start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=30):
            yield app, work, ran
    finally:
        root.setLevel(level)


def test_a_real_worker_runs_every_task_in_the_end_and_none_too_early(
    worked: tuple[Celery, Any, list[int]],
) -> None:
    _, work, ran = worked
    results = [work.delay(n) for n in range(4)]
    assert sorted(result.get(timeout=20) for result in results) == [0, 1, 2, 3]
    assert sorted(ran) == [0, 1, 2, 3], "each ran once"
    assert ran[:2] == [0, 1], "those beyond the limit came later"
