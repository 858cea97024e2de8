"""A real Envoy in front of a real service, asking `sluicegate limiter` each time."""

from __future__ import annotations

import http.client
import json
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.apps.limiter.conftest import Service
from tests.apps.limiter.process import LimiterProcess, rules_file
from tests.engines.child import PATIENCE_S, until
from tests.engines.envoy import GET, SHIPPED_S, EnvoyProxy, envoy_binary

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer

pytestmark = pytest.mark.skipif(envoy_binary() is None, reason=f"there is no envoy; get it: {GET}")

RULES = """\
domain: edge
descriptors:
  - key: user
    value: tried
    shadow_mode: true
    rate_limit: {unit: hour, requests_per_unit: 1}
  - key: user
    value: free
    rate_limit: {unlimited: true}
  - key: user
    value: vast
    rate_limit: {unit: hour, requests_per_unit: 1000000}
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 3}
    metadata: {plan: basic}
  - key: sms
    rate_limit: {unit: hour, requests_per_unit: 1}
"""
BY_USER = {"actions": [{"request_headers": {"header_name": "x-user", "descriptor_key": "user"}}]}
BY_SMS = {"actions": [{"request_headers": {"header_name": "x-sms", "descriptor_key": "sms"}}]}


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: Any
    took_ms: float


def get(proxy: EnvoyProxy, **headers: str) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=PATIENCE_S)
    began = time.perf_counter()
    connection.request("GET", "/", headers={f"x-{key}": value for key, value in headers.items()})
    answer = connection.getresponse()
    text = answer.read().decode()
    took_ms = (time.perf_counter() - began) * 1_000
    connection.close()
    answer_headers = {key.lower(): value for key, value in answer.getheaders()}
    return Answer(
        answer.status,
        answer_headers,
        json.loads(text) if text and answer.status == 200 else None,
        took_ms,
    )


@contextmanager
def limiter(folder: Path, *flags: str) -> Iterator[LimiterProcess]:
    rules = rules_file(folder, RULES)
    with LimiterProcess(folder, "--rules", rules, "--shed", "off", *flags) as process:
        yield process


@pytest.fixture(scope="module")
def front(
    tmp_path_factory: pytest.TempPathFactory, service: Service
) -> Iterator[tuple[EnvoyProxy, LimiterProcess]]:
    folder = tmp_path_factory.mktemp("envoy")
    with (
        limiter(folder, "--rls-metadata", "on", "--rls-headers", "on") as process,
        EnvoyProxy(
            folder,
            limiter_port=process.port,
            service_port=service.port,
            rate_limits=[BY_USER, BY_SMS],
            health_checks=True,
        ) as proxy,
    ):
        # The first calls find the limiter's connection not made yet, and Envoy fails open.
        until(lambda: "x-ratelimit-limit" in get(proxy, user="vast").headers, "asked")
        yield proxy, process


def test_beyond_the_limit_the_client_gets_429_with_its_headers(
    front: tuple[EnvoyProxy, LimiterProcess],
) -> None:
    proxy, _ = front
    answers = [get(proxy, user="ann") for _ in range(5)]
    assert [answer.status for answer in answers] == [200, 200, 200, 429, 429]
    first, refused = answers[0], answers[-1]
    assert first.headers["x-ratelimit-limit"] == "3, 3;w=3600"
    assert [answer.headers["x-ratelimit-remaining"] for answer in answers] == list("21000")
    assert 0 < int(first.headers["x-ratelimit-reset"]) <= 7200
    assert refused.headers["x-envoy-ratelimited"] == "true"
    assert refused.headers["ratelimit-limit"].startswith("3")
    assert "x-ratelimit-error" not in first.body


def test_a_refused_request_takes_nothing_from_its_other_limits(
    front: tuple[EnvoyProxy, LimiterProcess],
) -> None:
    proxy, _ = front
    assert get(proxy, user="carl", sms="carl").status == 200
    # The second limit is spent; the first must not be charged for what it refuses.
    assert [get(proxy, user="carl", sms="carl").status for _ in range(5)] == [429] * 5
    assert [get(proxy, user="carl").status for _ in range(3)] == [200, 200, 429]


def test_a_rule_in_shadow_is_counted_and_refuses_nobody(
    front: tuple[EnvoyProxy, LimiterProcess],
) -> None:
    proxy, process = front
    assert [get(proxy, user="tried").status for _ in range(4)] == [200] * 4
    assert process.metric("sluicegate_mesh_shadow_mode_total", rule="edge.user_tried") == 3


def test_an_unlimited_rule_tells_no_limit(front: tuple[EnvoyProxy, LimiterProcess]) -> None:
    proxy, _ = front
    answers = [get(proxy, user="free") for _ in range(5)]
    assert {answer.status for answer in answers} == {200}
    assert "x-ratelimit-limit" not in answers[0].headers


def test_who_matches_no_rule_is_not_asked_about(
    front: tuple[EnvoyProxy, LimiterProcess],
) -> None:
    proxy, process = front
    before = process.metric("sluicegate_limiter_decisions_total")
    assert get(proxy).status == 200
    assert process.metric("sluicegate_limiter_decisions_total") == before


def test_envoys_own_health_check_finds_it_well(
    front: tuple[EnvoyProxy, LimiterProcess],
) -> None:
    proxy, _ = front
    until(lambda: proxy.stat("limiter.health_check.success") > 0, "a health check")
    assert proxy.stat("limiter.health_check.failure") == 0


@pytest.mark.prove
def test_every_answer_comes_within_envoys_20_ms_under_load(
    tmp_path: Path, service: Service, front: tuple[EnvoyProxy, LimiterProcess]
) -> None:
    _, process = front

    def late(proxy: EnvoyProxy) -> int:
        before = proxy.stat("ratelimit.error")
        threads = [
            threading.Thread(target=lambda: [get(proxy, user="vast") for _ in range(100)])
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return proxy.stat("ratelimit.error") - before  # a late answer counts as an error

    with EnvoyProxy(
        tmp_path,
        limiter_port=process.port,
        service_port=service.port,
        timeout_s=SHIPPED_S,
        rate_limits=[BY_USER],
    ) as proxy:
        # Other tests run beside this one, and the machine may stall: more than one in a hundred is
        # ours, if it is so each time. Alone it is timed in tests/engines.
        assert any(late(proxy) <= 8 for _ in range(3))


@pytest.mark.parametrize("size", [10, 20_000, 61_000])
def test_what_a_client_says_of_its_trace_is_no_way_past_the_limit(
    tmp_path: Path, service: Service, size: int
) -> None:
    """Envoy passes it on with its question: beyond our bound of headers it was not decided."""
    trace = {
        "x-user": "traced",
        "traceparent": f"00-{1:032x}-{1:016x}-01",
        "tracestate": "a=" + "~" * size,
    }
    with (
        limiter(tmp_path) as process,
        EnvoyProxy(
            tmp_path,
            limiter_port=process.port,
            service_port=service.port,
            filter_settings={"failure_mode_deny": False},
            rate_limits=[BY_USER],
            tracing=True,
        ) as proxy,
    ):
        until(lambda: "x-ratelimit-limit" in get(proxy, user="vast").headers, "asked")
        statuses = []
        for _ in range(4):
            connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=PATIENCE_S)
            connection.request("GET", "/", headers=trace)
            statuses.append(connection.getresponse().status)
            connection.close()
    assert statuses == [200, 200, 200, 429]


def test_dynamic_metadata_reaches_envoys_access_log(tmp_path: Path, service: Service) -> None:
    log = tmp_path / "access.log"
    with (
        limiter(tmp_path, "--rls-metadata", "on") as process,
        EnvoyProxy(
            tmp_path,
            limiter_port=process.port,
            service_port=service.port,
            rate_limits=[BY_USER],
            access_log=(log, "%DYNAMIC_METADATA(envoy.filters.http.ratelimit)%\n"),
        ) as proxy,
    ):
        until(lambda: "x-ratelimit-limit" in get(proxy, user="bob").headers, "asked")
        until(lambda: log.exists() and "basic" in log.read_text(), "the log")
        said = next(json.loads(line) for line in log.read_text().splitlines() if "basic" in line)
        assert said["domain"] == "edge"
        assert said["descriptors"][0]["entries"] == ["user=bob"]
        assert said["metadata"] == {"plan": "basic"}


@pytest.mark.parametrize(("failure", "status"), [("open", 200), ("closed", 429), ("local", 200)])
def test_with_redis_stopped_the_failure_policy_answers_and_says_so(
    tmp_path: Path, service: Service, redis_server: RedisServer, failure: str, status: int
) -> None:
    with (
        limiter(
            tmp_path,
            "--store", f"redis://127.0.0.1:{redis_server.port}",
            "--failure", failure,
            "--dlq", f"files:{tmp_path / 'letters'}",
        ) as process,
        EnvoyProxy(
            tmp_path,
            limiter_port=process.port,
            service_port=service.port,
            filter_settings={"failure_mode_deny": True},
            rate_limits=[BY_USER],
        ) as proxy,
    ):  # fmt: skip
        until(lambda: "x-ratelimit-limit" in get(proxy, user="vast").headers, "asked")
        # The first call may find the limiter's connection not made yet. How soon the policy answers
        # is timed alone, in tests/engines.
        errors = proxy.stat("ratelimit.error")
        redis_server.pause()
        try:
            paused = [get(proxy, user="vast") for _ in range(20)]
        finally:
            redis_server.resume()
        # In deny mode it would be a 500 if Envoy had to do without an answer.
        assert {answer.status for answer in paused} == {status}
        if status == 200:
            assert all("x-ratelimit-error" in answer.body for answer in paused)
        assert proxy.stat("ratelimit.error") == errors
        until(
            lambda: process.metric("sluicegate_dead_letters_written_total") >= len(paused),
            "the letters",
        )
        redis_server.kill()
        killed = [get(proxy, user="vast") for _ in range(20)]
        assert {answer.status for answer in killed} == {status}
        assert proxy.stat("ratelimit.error") == errors
        redis_server.restart()

        def well() -> bool:
            answer = get(proxy, user="vast")
            return answer.status == 200 and "x-ratelimit-error" not in answer.body

        until(well, "well again")


def test_with_the_limiter_itself_gone_envoys_own_mode_decides(
    tmp_path: Path, service: Service
) -> None:
    with (
        limiter(tmp_path) as process,
        EnvoyProxy(
            tmp_path,
            limiter_port=process.port,
            service_port=service.port,
            filter_settings={"failure_mode_deny": True},
            rate_limits=[BY_USER],
        ) as proxy,
    ):
        until(lambda: get(proxy, user="vast").status == 200, "asked")
        process.end()
        until(lambda: get(proxy, user="vast").status == 500, "denied")


UNASKED = "limiter_unavailable"
FORGED = {"sluicegate-answered": "1", "ratelimit-error": "made up"}


def test_a_request_that_nobody_answered_for_is_marked_and_any_other_is_not(
    tmp_path: Path, service: Service
) -> None:
    with (
        limiter(tmp_path) as process,
        EnvoyProxy(
            tmp_path, limiter_port=process.port, service_port=service.port, rate_limits=[BY_USER]
        ) as proxy,
    ):
        until(lambda: "x-ratelimit-error" not in get(proxy, user="vast").body, "asked")
        for user in ("vast", "free", "ann"):
            body = get(proxy, user=user).body
            assert not {"x-ratelimit-error", "x-sluicegate-answered"} & body.keys()
        forged = get(proxy, user="vast", **FORGED).body
        assert not {"x-ratelimit-error", "x-sluicegate-answered"} & forged.keys()
        process.end()
        until(lambda: get(proxy, user="vast").body.get("x-ratelimit-error") == UNASKED, "gone")
        forged = get(proxy, user="vast", **FORGED).body
        assert forged["x-ratelimit-error"] == UNASKED
        assert "x-sluicegate-answered" not in forged


def test_a_limiter_that_is_late_leaves_the_same_mark(tmp_path: Path, service: Service) -> None:
    with (
        limiter(tmp_path) as process,
        EnvoyProxy(
            tmp_path,
            limiter_port=process.port,
            service_port=service.port,
            timeout_s=SHIPPED_S,
            rate_limits=[BY_USER],
        ) as proxy,
    ):
        until(lambda: "x-ratelimit-error" not in get(proxy, user="vast").body, "asked")
        process.signal(signal.SIGSTOP)
        try:
            until(lambda: get(proxy, user="vast").body.get("x-ratelimit-error") == UNASKED, "late")
        finally:
            process.signal(signal.SIGCONT)
        until(lambda: "x-ratelimit-error" not in get(proxy, user="vast").body, "back")


def test_a_limiter_without_the_mark_says_so_and_has_each_request_marked(
    tmp_path: Path, service: Service
) -> None:
    with (
        limiter(tmp_path, "--rls-mark", "off", "--rls-headers", "on") as process,
        EnvoyProxy(
            tmp_path, limiter_port=process.port, service_port=service.port, rate_limits=[BY_USER]
        ) as proxy,
    ):
        until(lambda: "x-ratelimit-limit" in get(proxy, user="vast").headers, "asked")
        assert get(proxy, user="vast").body["x-ratelimit-error"] == UNASKED
