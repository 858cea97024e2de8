"""Rolling updates of two replicas behind a real load balancer: no request fails."""

from __future__ import annotations

import http.client
import itertools
import json
import re
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

import grpc
import pytest
import redis

from sluicegate.protos import key_values_pb2 as kv_pb
from sluicegate.protos import rate_limiter_pb2 as limiter_pb
from sluicegate.protos.key_values_pb2_grpc import KeyValuesStub
from sluicegate.protos.rate_limiter_pb2_grpc import RateLimiterStub
from tests.apps.console.process import ConsoleProcess
from tests.apps.images.origin_server import Page
from tests.apps.images.pictures import picture
from tests.apps.images.process import ImagesProcess, origin_in_thread, path
from tests.apps.kv.process import KvProcess
from tests.apps.limiter.process import NATIVE, LimiterProcess, rules_file
from tests.apps.pubsub.process import PubSubProcess
from tests.apps.resilience.serve.service import ROOT, SHOP
from tests.apps.server_process import ServerProcess
from tests.engines.child import PATIENCE_S
from tests.engines.envoy import GET, envoy_binary
from tests.engines.need import Program, engine
from tests.engines.rolling import HOST, LEAVE_S, SHOWN, Call, Connect, EnvoyPair, Fleet, HaproxyPair
from tests.prove.seeds import in_slice
from tests.redis.server import RedisServer

FLAGS = ("--leave-s", f"{LEAVE_S:g}", "--hosts", HOST, "--log", "warning")
SHORT, LONG = 2, 20
COUNTER = "counters:one"


class Case(NamedTuple):
    """A service, and a client of one of its protocols."""

    name: str
    mode: str
    start: Callable[[ExitStack, Path], Callable[[Path, int], ServerProcess]]
    connect: Connect


def over_http(method: str, target: str, body: object = None) -> Connect:
    """A client that keeps its connection."""

    def connect(stack: ExitStack, port: int) -> Call:
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        stack.callback(link.close)
        data = None if body is None else json.dumps(body).encode()
        headers = {"Host": HOST}
        if body is not None:
            headers["Content-Type"] = "application/json"

        def call() -> None:
            link.request(method, target, data, headers)
            answer = link.getresponse()
            text = answer.read()
            if answer.status >= 300:
                raise RuntimeError(f"{answer.status} {text[:200]!r}")

        return call

    return connect


def over_grpc(call_on: Callable[[grpc.Channel], Call]) -> Connect:
    def connect(stack: ExitStack, port: int) -> Call:
        return call_on(stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{port}")))

    return connect


def check(channel: grpc.Channel) -> Call:
    request = limiter_pb.RateLimitRequest(user_id="ann", resource_path="/free")
    return partial(RateLimiterStub(channel).Check, request, timeout=PATIENCE_S)


def get(channel: grpc.Channel) -> Call:
    request = kv_pb.GetRequest(table="homes", partition=b"1")
    return partial(KeyValuesStub(channel).Get, request, timeout=PATIENCE_S)


def over_resp(stack: ExitStack, port: int) -> Call:
    """A client as a user has it: it connects again when its connection ends."""
    client = redis.Redis(port=port, socket_timeout=PATIENCE_S)
    stack.callback(client.close)
    return partial(client.incr, COUNTER)


def limiters(_: ExitStack, folder: Path) -> Callable[[Path, int], ServerProcess]:
    rules = rules_file(folder, NATIVE)
    return lambda own, port: LimiterProcess(own, "--rules", rules, *FLAGS, port=port)


def dispatchers(stack: ExitStack, _: Path) -> Callable[[Path, int], ServerProcess]:
    server = stack.enter_context(RedisServer())
    return lambda own, port: KvProcess(own, "--engine", server.url, *FLAGS, port=port)


def nodes(_: ExitStack, __: Path) -> Callable[[Path, int], ServerProcess]:
    return lambda own, port: PubSubProcess(own, "--channel-rate", "0", *FLAGS, port=port)


def image_servers(_: ExitStack, __: Path) -> Callable[[Path, int], ServerProcess]:
    return lambda own, port: ImagesProcess(own, *FLAGS, port=port)


def consoles(stack: ExitStack, folder: Path) -> Callable[[Path, int], ServerProcess]:
    shown = stack.enter_context(LimiterProcess(folder, "--rules", rules_file(folder, NATIVE)))
    return lambda own, port: ConsoleProcess(own, "--services", shown.url, *FLAGS, port=port)


def picture_of(stack: ExitStack, port: int) -> Call:
    origin = stack.enter_context(origin_in_thread())
    origin.pages["/a.png"] = Page(picture(1), headers={"Content-Type": "image/png"})
    return over_http("GET", path(origin.url("/a.png")))(stack, port)


class ServeProcess(ServerProcess):
    """`sluicegate resilience serve` with the shop of its tests."""

    app = "resilience"

    def command(self) -> list[str]:
        return [*super().command(), "serve", SHOP, "--leave-s", f"{LEAVE_S:g}"]

    @property
    def ready_line(self) -> str:
        found = re.search(r"^http://.* workers x .*$", self.log.read_text(), re.MULTILINE)
        return found[0] if found else ""


def shops(stack: ExitStack, folder: Path) -> Callable[[Path, int], ServerProcess]:
    patch = stack.enter_context(pytest.MonkeyPatch.context())
    patch.setenv("SHOP_FOLDER", str(folder))
    patch.chdir(ROOT)
    return lambda own, port: ServeProcess(own, port=port)


CHECK_BODY = {"user_id": "ann", "resource_path": "/free"}
CASES = [
    Case("limiter-http", "http", limiters, over_http("POST", "/v1/check", CHECK_BODY)),
    Case("limiter-grpc", "grpc", limiters, over_grpc(check)),
    Case(
        "kv-http", "http", dispatchers, over_http("PUT", "/v1/tables/homes/rows/1", {"value": ""})
    ),
    Case("kv-resp", "tcp", dispatchers, over_resp),
    Case("kv-grpc", "grpc", dispatchers, over_grpc(get)),
    Case("pubsub", "http", nodes, over_http("POST", "/v1/channels/c/messages", {"data": 1})),
    Case("images", "http", image_servers, picture_of),
    Case("resilience-serve", "http", shops, over_http("GET", "/work")),
    Case("console", "http", consoles, over_http("GET", "/")),
]
PROXIES: dict[str, type[HaproxyPair | EnvoyPair]] = {"haproxy": HaproxyPair, "envoy": EnvoyPair}


@pytest.fixture(params=list(PROXIES))
def proxy(request: pytest.FixtureRequest) -> type[HaproxyPair | EnvoyPair]:
    if request.param == "haproxy":
        engine("haproxy", [Program("haproxy", "apt-get install -y haproxy")])
    elif envoy_binary() is None:
        pytest.skip(f"there is no envoy; get it: {GET}")
    return PROXIES[request.param]


def rolls(count: int, case: Case, proxy: type[HaproxyPair | EnvoyPair], folder: Path) -> None:
    with ExitStack() as stack:
        start = case.start(stack, folder)
        with Fleet(folder, start, case.connect, proxy, case.mode) as fleet:
            for _ in range(count):
                fleet.update()
        failed = len(fleet.failures)
        assert not fleet.failures, f"{failed} of {fleet.answered + failed}: " + "; ".join(
            itertools.islice(fleet.failures, SHOWN)
        )


@pytest.mark.engine
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_two_rolling_updates_fail_no_request(
    case: Case, proxy: type[HaproxyPair | EnvoyPair], tmp_path: Path
) -> None:
    rolls(SHORT, case, proxy, tmp_path)


@pytest.mark.prove
@pytest.mark.parametrize(
    "case",
    [case for number, case in enumerate(CASES) if in_slice(number, len(CASES))],
    ids=lambda case: case.name,
)
def test_twenty_rolling_updates_fail_no_request(
    case: Case, proxy: type[HaproxyPair | EnvoyPair], tmp_path: Path
) -> None:
    rolls(LONG, case, proxy, tmp_path)
