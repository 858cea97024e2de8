"""Threads of a WSGI server, counted from a request, and the warning if they are too few."""

from __future__ import annotations

import contextlib
import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, final

import pytest
from waitress.task import ThreadedTaskDispatcher

from sluicegate.resilience.server.wsgi import protect
from sluicegate.resilience.server.wsgi_threads import server_threads
from sluicegate.resilience.settings import Resilience

MULTI: dict[str, Any] = {"wsgi.multithread": True}
EIGHT = Resilience(slots=8)


def app(environ: Any, start_response: Any) -> list[bytes]:
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]


def environ(**more: object) -> dict[str, Any]:
    return {"REQUEST_METHOD": "GET", "PATH_INFO": "/", "SCRIPT_NAME": "", **MULTI, **more}


def call(protected: Any) -> bytes:
    with contextlib.closing(protected(environ(), lambda *_: None)) as chunks:
        return b"".join(chunks)


@final
class Task:
    """One request, as waitress gives it to a thread."""

    def __init__(self, protected: Any) -> None:
        self._protected = protected
        self.body: Future[bytes] = Future()

    def service(self) -> None:
        self.body.set_result(call(self._protected))


def test_single_threaded_server_has_one() -> None:
    assert server_threads({"wsgi.multithread": False}) == 1


def test_threads_of_executor_are_its_max() -> None:
    with ThreadPoolExecutor(5) as pool:
        assert pool.submit(server_threads, MULTI).result() == 5


def test_thread_of_no_pool_is_unknown() -> None:
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(server_threads(MULTI)))
    thread.start()
    thread.join()
    assert found == [None]


@pytest.mark.parametrize(("threads", "warns"), [(8, True), (9, False)])
def test_waitress_with_threads_up_to_limit_warns_once(
    threads: int, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    protected = protect(app, EIGHT)
    dispatcher = ThreadedTaskDispatcher()
    dispatcher.set_thread_count(threads)
    try:
        for task in (Task(protected), Task(protected)):
            dispatcher.add_task(task)
            assert task.body.result(30) == b"ok"
    finally:
        dispatcher.shutdown()
    words = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    named = [one for one in words if "8 threads of the server and slots of 8 leave none" in one]
    assert len(named) == int(warns)
    assert all("run `sluicegate resilience serve MODULE:APP --threads 8`" in one for one in named)


@pytest.mark.parametrize(("threads", "warns"), [(8, True), (9, False)])
def test_executor_with_threads_up_to_limit_warns(
    threads: int, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    protected = protect(app, EIGHT)
    with ThreadPoolExecutor(threads) as pool:
        assert pool.submit(call, protected).result() == b"ok"
    assert bool(caplog.records) is warns


def test_threads_without_slots_reject_nobody_and_warn(caplog: pytest.LogCaptureFixture) -> None:
    protected = protect(app)
    with ThreadPoolExecutor(100) as pool:
        assert {*pool.map(lambda _: call(protected), range(200))} == {b"ok"}
    (warning,) = [one.getMessage() for one in caplog.records]
    assert "no slots are set" in warning
    assert protected.protection.slots == 0


def test_unknown_server_warns_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert call(protect(app, EIGHT)) == b"ok"
    assert caplog.records == []
