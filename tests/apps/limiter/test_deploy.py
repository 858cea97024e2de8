"""All of `deploy/limiter/` as shipped, but for ports and folders: what its README promises."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trustme
import yaml

from sluicegate.policies.access import token_digest
from sluicegate.rules.service_rule_set import ServiceRuleSet
from tests.apps.limiter.conftest import Service
from tests.apps.limiter.process import LimiterProcess
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
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

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
    """Envoy and the limiter as shipped. The minute in which a test counts is this test's alone.

    A test's machine may be slower than 20 ms, so Envoy waits longer here.
    """
    with (
        LimiterProcess(tmp_path, "--rules", str(RULES), "--shed", "off") as limiter,
        EnvoyProxy(
            tmp_path,
            limiter_port=limiter.port,
            service_port=service.port,
            filter_settings={"timeout": "10s"},
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
    deployment, service = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    pod = deployment["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    assert container["command"] == ["sluicegate", "limiter"]
    name, port = service["metadata"]["name"], service["spec"]["ports"][0]["port"]
    labels = pod["metadata"]["labels"].items()
    assert service["spec"]["selector"].items() <= labels
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels
    (own,) = container["ports"]
    assert service["spec"]["ports"][0]["targetPort"] == own["name"]

    folders = mounted(tmp_path, pod["spec"], container)
    environment = {one["name"]: one["value"] for one in container["env"]}
    listen = environment.pop("SLUICEGATE_LIMITER_LISTEN")
    assert listen == f"0.0.0.0:{own['containerPort']}"
    for variable, value in environment.items():
        found = value
        for there, here in folders.items():
            found = found.replace(there, here)
        if value.startswith("redis://"):
            found = f"redis://127.0.0.1:{redis_server.port}?timeout_ms=5000"
        monkeypatch.setenv(variable, found)
    # What Kubernetes says of a service of this name to the pods beside it.
    prefix = name.replace("-", "_").upper()
    for variable, value in {
        "SERVICE_HOST": "10.0.0.1",
        "SERVICE_PORT": str(port),
        f"SERVICE_PORT_{own['name'].upper()}": str(port),
        "PORT": f"tcp://10.0.0.1:{port}",
        f"PORT_{port}_TCP": f"tcp://10.0.0.1:{port}",
        f"PORT_{port}_TCP_PROTO": "tcp",
        f"PORT_{port}_TCP_PORT": str(port),
        f"PORT_{port}_TCP_ADDR": "10.0.0.1",
    }.items():
        monkeypatch.setenv(f"{prefix}_{variable}", value)

    authority = next(iter(folders.values()))
    context = ssl.create_default_context(cafile=str(Path(authority).parent / "ca.pem"))
    with LimiterProcess(tmp_path, "--shed", "off") as limiter:
        for probe in ("readinessProbe", "livenessProbe"):
            asked = container[probe]["httpGet"]
            assert (asked["port"], asked["scheme"]) == (own["name"], "HTTPS")
            assert limiter.ask(asked["path"], context=context)[0] == 200
        ask = {"user_id": "ann", "resource_path": "/login"}
        statuses = [
            limiter.ask("/v1/check?status=http", ask, token=TOKEN, context=context)[0]
            for _ in range(14)
        ]
        assert statuses == [200] * 12 + [429] * 2  # ten and a fifth, by `burst_capacity`
        assert redis_server.ask("DBSIZE") > 0


def mounted(tmp_path: Path, pod: dict[str, Any], container: dict[str, Any]) -> dict[str, str]:
    """What a pod's volumes hold, as the manifest's head says how to make them, by mount path."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    chain = authority.issue_cert("127.0.0.1", "localhost")
    folders: dict[str, str] = {}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    for mount in container["volumeMounts"]:
        volume = volumes.pop(mount["name"])
        folder = tmp_path / mount["name"]
        folder.mkdir()
        folders[mount["mountPath"]] = str(folder)
        if "configMap" in volume:
            for file in RULES.iterdir():
                (folder / file.name).write_bytes(file.read_bytes())
        elif volume.get("secret", {}).get("secretName") == "sluicegate-tls":
            for pem in chain.cert_chain_pems:
                pem.write_to_path(folder / "tls.crt", append=True)
            chain.private_key_pem.write_to_path(folder / "tls.key")
        elif "secret" in volume:
            (folder / "callers.toml").write_text(
                f'[[callers]]\nname = "gateway"\ntoken_sha256 = "{token_digest(TOKEN)}"\n'
                'grants = ["check"]\n'
            )
    assert not volumes
    return folders
