"""All of `deploy/limiter/` as shipped, but for ports and folders: what its README promises."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from sluicegate.policies.access import token_digest
from sluicegate.rules.service_rule_set import ServiceRuleSet
from tests.apps.limiter.conftest import Service
from tests.apps.limiter.process import LimiterProcess
from tests.apps.manifest import Manifest
from tests.engines.child import until
from tests.engines.envoy import GET, SHIPPED, EnvoyProxy, envoy_binary

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer

DEPLOY = SHIPPED.parent
RULES = DEPLOY / "rules"
TOKEN = "a gateway's own and long enough secret"

with_envoy = pytest.mark.skipif(envoy_binary() is None, reason=f"there is no envoy; get it: {GET}")


class Client:
    """Asks Envoy over one connection."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def close(self) -> None:
        self._connection.close()

    def get(self, path: str = "/", **headers: str) -> http.client.HTTPResponse:
        sent = {f"x-{name}": value for name, value in headers.items()}
        self._connection.request("GET", path, headers=sent)
        answer = self._connection.getresponse()
        answer.read()
        return answer

    def statuses(self, count: int, path: str = "/", **headers: str) -> list[int]:
        return [self.get(path, **headers).status for _ in range(count)]


@pytest.fixture
def client(tmp_path: Path, service: Service) -> Iterator[Client]:
    """Envoy and the limiter as shipped. The minute in which a test counts is this test's alone."""
    with (
        LimiterProcess(tmp_path, "--rules", str(RULES), "--shed", "off") as limiter,
        EnvoyProxy(
            tmp_path,
            limiter_port=limiter.port,
            service_port=service.port,
            health_checks=True,
        ) as proxy,
        closing(Client(proxy.port)) as asker,
    ):
        # The first calls find the limiter's connection not made yet, and Envoy lets them pass.
        until(lambda: "x-ratelimit-limit" in asker.get().headers, "Envoy to ask the limiter")
        yield asker


@with_envoy
def test_the_eleventh_login_of_an_address_is_refused_however_it_is_spelt(client: Client) -> None:
    assert client.statuses(10, "/login") == [200] * 10
    refused = client.get("/login")
    assert refused.status == 429
    assert refused.headers["x-envoy-ratelimited"] == "true"
    assert refused.headers["x-ratelimit-limit"].startswith("10,")
    assert refused.headers["x-ratelimit-remaining"] == "0"
    assert int(refused.headers["x-ratelimit-reset"]) > 0
    spellings = ["/login?again", "//login", "/LOGIN", "/./login", "/x/../login", "/%6cogin"]
    assert {path: client.get(path).status for path in spellings} == dict.fromkeys(spellings, 429)
    assert client.get("/elsewhere").status == 200


@with_envoy
@pytest.mark.parametrize(
    ("user", "other"),
    [("ann", "bob"), ("\xff", "\xfe"), ("zo\xeb", "zo\xea"), ("", "-"), ("a" * 9_000, "a" * 9_001)],
    ids=["plain", "a byte", "latin-1", "empty", "long"],
)
def test_the_61st_request_of_a_user_is_refused_whatever_its_name(
    client: Client, user: str, other: str
) -> None:
    assert client.statuses(62, user=user) == [200] * 60 + [429] * 2
    assert client.get(user=other).status == 200


@with_envoy
def test_the_601st_request_of_an_address_is_refused_whoever_it_is(client: Client) -> None:
    # Some were sent while Envoy made its connection.
    statuses = [client.get(user=str(number % 20)).status for number in range(602)]
    assert statuses[0] == 200
    assert statuses[-1] == 429
    assert 200 not in statuses[statuses.index(429) :]
    assert statuses.index(429) > 500


def test_envoy_asks_of_each_domain_only_what_the_rules_limit() -> None:
    book = ServiceRuleSet.load([RULES]).mesh
    config = yaml.safe_load(SHIPPED.read_text())
    manager = config["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]
    filters = {it["name"]: it["typed_config"] for it in manager["typed_config"]["http_filters"]}
    domain = filters["envoy.filters.http.ratelimit"]["domain"]
    assert book.domains == [domain]
    (host,) = manager["typed_config"]["route_config"]["virtual_hosts"]
    asked = [*host["rate_limits"]]
    for route in host["routes"]:
        asked += route["route"].get("rate_limits", [])
    rules = [
        book.find(domain, [entry_of(action) for action in limit["actions"]]) for limit in asked
    ]
    assert None not in rules
    assert len({rule.rule_id for rule in rules if rule is not None}) == len(book)


def entry_of(action: dict[str, Any]) -> tuple[str, str]:
    """The entry that an action makes of some request."""
    ((kind, said),) = action.items()
    if kind == "remote_address":
        return kind, "10.0.0.1"
    if kind == "generic_key":
        return said["descriptor_key"], said["descriptor_value"]
    assert kind == "request_headers"
    return said["descriptor_key"], "any value"


def test_the_kubernetes_manifest_starts_a_limiter_that_is_ready(
    tmp_path: Path, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    callers = (
        f'[[callers]]\nname = "gateway"\ntoken_sha256 = "{token_digest(TOKEN)}"\n'
        'grants = ["check"]\n'
    )
    manifest = Manifest(DEPLOY / "kubernetes.yaml", tmp_path, rules=RULES, callers=callers)
    assert manifest.container["command"] == ["sluicegate", "limiter"]
    manifest.check_labels()
    manifest.set_environment("SLUICEGATE_LIMITER_", monkeypatch, redis_port=redis_server.port)
    context = manifest.context
    with LimiterProcess(tmp_path, "--shed", "off") as limiter:
        for path in manifest.probes():
            assert limiter.ask(path, context=context)[0] == 200
        ask = {"user_id": "ann", "resource_path": "/login"}
        statuses = [
            limiter.ask("/v1/check?status=http", ask, token=TOKEN, context=context)[0]
            for _ in range(14)
        ]
        assert statuses == [200] * 12 + [429] * 2  # ten and a fifth, by `burst_capacity`
        assert redis_server.ask("DBSIZE") > 0
