"""What `deploy/` has for all services, and for those that have no folder of tests for it.

Each file is run as it stands, but for ports, folders, and where its Redis and its bucket are.
`make check` holds the same files against the schemas of Kubernetes and of compose.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shlex
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from sluicegate.service.common_settings import ServiceSettings
from tests.apps.console.process import ConsoleProcess
from tests.apps.images.pictures import picture
from tests.apps.kv.process import KvProcess, access_file, token_of
from tests.apps.limiter.process import NATIVE, LimiterProcess, rules_file
from tests.apps.manifest import Manifest
from tests.apps.server_process import ServerProcess
from tests.engines.child import free_port, until
from tests.stores.blobs.s3_server import SECRETS, S3Server

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer

DEPLOY = Path(__file__).parents[2] / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
SERVICES = [name for name in COMPOSE["services"] if name != "redis"]
LEAVE_S, GRACE_S = ServiceSettings().leave_s, ServiceSettings().grace_s
MANIFESTS = sorted(DEPLOY.glob("*/kubernetes.yaml"))
PUBSUB_MEMBER = "sluicegate-pubsub-{0}.sluicegate-pubsub.default.svc.cluster.local:7090"


class ImagesServer(ServerProcess):
    """An image service that takes what it keeps, and where, from its environment or its flags."""

    app = "images"

    def command(self) -> list[str]:
        return [sys.executable, "-m", "sluicegate.cli", "images", "serve"]


class RulesServer(ServerProcess):
    """A rulebook that takes where it is from its environment."""

    app = "rules"

    def command(self) -> list[str]:
        return [sys.executable, "-m", "sluicegate.cli", "rules", "serve"]


SERVERS: dict[str, type[ServerProcess]] = {
    "limiter": LimiterProcess, "kv": KvProcess, "images": ImagesServer, "console": ConsoleProcess,
}  # fmt: skip


class PubSubServer(ServerProcess):
    """A node that takes what it keeps, and where, from its environment or its flags."""

    app = "pubsub"


def test_nodes_of_the_manifest_find_each_other_and_serve_each_others_channels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"sluicegate-pubsub-{number}" for number in range(3)]
    grants = dict.fromkeys(names, 'grants = ["report"]')
    callers = access_file(tmp_path, {"shop": 'grants = ["publish", "subscribe"]'} | grants)
    manifest = Manifest(
        DEPLOY / "pubsub" / "kubernetes.yaml",
        tmp_path,
        callers=Path(callers).read_text(encoding="utf-8"),
        secrets={f"{name}.toml": f'node_token = "{token_of(name)}"\n' for name in names},
    )
    manifest.check_labels()
    ports = [free_port("127.0.0.1") for _ in names]
    members = {
        PUBSUB_MEMBER.format(number): f"127.0.0.1:{port}" for number, port in enumerate(ports)
    }
    context, token = manifest.context, token_of("shop")
    with ExitStack() as stack:
        nodes = []
        for name, port in zip(names, ports, strict=True):
            # Each pod has a disk of its own.
            here = members | {"/var/lib/sluicegate": str(tmp_path / name)}
            flags = manifest.set_environment("SLUICEGATE_PUBSUB_", monkeypatch, pod=name, here=here)
            nodes.append(stack.enter_context(PubSubServer(tmp_path, *flags, port=port)))
        for node in nodes:
            assert [node.ask(path, context=context)[0] for path in manifest.probes()] == [200, 200]
        for number in range(6):  # at home at one node or another
            messages = f"/v1/channels/c{number}/messages"

            def published(at: str = messages) -> bool:
                asked = nodes[0].ask(at, {"data": 1}, token=token, context=context)
                return bool(asked[0] == 200)

            until(published, "a message to be accepted")
            status, page = nodes[1].ask(messages + "?after=0", token=token, context=context)
            assert status == 200, page
            assert [message["data"] for message in page["messages"]] == [1]
        assert nodes[2].ask(messages, {"data": 1}, context=context)[0] == 401


def test_the_image_service_of_the_manifest_keeps_images_in_its_bucket(
    tmp_path: Path, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    callers = Path(access_file(tmp_path, {"shop": 'grants = ["fetch", "upload"]'}))
    manifest = Manifest(
        DEPLOY / "images" / "kubernetes.yaml", tmp_path, callers=callers.read_text(encoding="utf-8")
    )
    manifest.check_labels()
    (tmp_path / "s3").mkdir()
    s3 = S3Server(tmp_path / "s3")
    try:
        for name, value in SECRETS.items():
            monkeypatch.setenv(name, value)
        bucket = s3.url()
        manifest.set_environment(
            "SLUICEGATE_IMAGES_",
            monkeypatch,
            redis_port=redis_server.port,
            here={"s3://images/sluicegate": bucket},
        )
        context = manifest.context
        monkeypatch.chdir(tmp_path / "s3")
        with ImagesServer(tmp_path) as server:
            assert [server.ask(path, context=context)[0] for path in manifest.probes()] == [200] * 2
            connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=context)
            headers = {"Authorization": f"Bearer {token_of('shop')}", "Content-Type": "image/png"}
            connection.request("POST", "/v1/images", picture(1), headers)
            uploaded = json.load(connection.getresponse())
            connection.request("GET", f"/img/w=8,format=png/{uploaded['id']}", headers=headers)
            answer = connection.getresponse()
            assert (answer.status, answer.read()[:8]) == (200, b"\x89PNG\r\n\x1a\n")
            connection.close()
        assert not [*(tmp_path / "s3").glob("sluicegate*")]  # nothing is kept beside the bucket
    finally:
        s3.stop()


def test_the_rulebook_of_the_manifest_is_made_once_and_then_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    callers = Path(access_file(tmp_path, {"ann": 'grants = ["read-rules"]'}))
    manifest = Manifest(
        DEPLOY / "rulebook" / "kubernetes.yaml",
        tmp_path,
        callers=callers.read_text(encoding="utf-8"),
        rules=DEPLOY / "limiter" / "rules",
    )
    manifest.check_labels()
    (tmp_path / "s3").mkdir()
    s3 = S3Server(tmp_path / "s3")
    try:
        for name, value in SECRETS.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        here = {"s3://rules/sluicegate": shlex.quote(s3.url())}
        manifest.set_environment("SLUICEGATE_RULES_", monkeypatch, here=here)
        make = manifest.init_command(here)
        assert "version 1" in subprocess.check_output(make, text=True)
        assert subprocess.check_output(make, text=True) == ""  # a restart makes nothing anew
        context = manifest.context
        with RulesServer(tmp_path) as server:
            assert [server.ask(path, context=context)[0] for path in manifest.probes()] == [200] * 2
            status = server.ask("/v1/rules/status", token=token_of("ann"), context=context)[1]
            assert status["live"]["version"] == 1
    finally:
        s3.stop()


def test_the_console_of_the_manifest_finds_a_limiter_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    callers = Path(access_file(tmp_path, {"ops": 'grants = ["audit"]'}))
    manifest = Manifest(
        DEPLOY / "console" / "kubernetes.yaml",
        tmp_path,
        callers=callers.read_text(encoding="utf-8"),
        secrets={"token": token_of("ops")},
    )
    manifest.check_labels()
    tls = [f"--tls-cert={tmp_path}/tls/tls.crt", f"--tls-key={tmp_path}/tls/tls.key"]
    rules = rules_file(tmp_path, NATIVE)
    with LimiterProcess(tmp_path, "--rules", rules, "--access", str(callers), *tls) as limiter:
        manifest.set_environment(
            "SLUICEGATE_CONSOLE_",
            monkeypatch,
            here={
                "dns+https://sluicegate-limiter:7070": f"dns+https://localhost:{limiter.port}",
                "dns+https://sluicegate-kv:7080": f"dns+https://localhost:{free_port('127.0.0.1')}",
            },
        )
        with ConsoleProcess(tmp_path) as console:

            def shown() -> list[bool]:
                asked = console.ask("/v1/state", token=token_of("ops"), context=manifest.context)
                return sorted(not node["error"] for node in asked[1]["nodes"])

            until(lambda: shown() == [False, True], "one to answer and the other to be gone")
            paths = manifest.probes()
            assert [console.ask(path, context=manifest.context)[0] for path in paths] == [200, 200]


@pytest.mark.parametrize("name", SERVICES)
def test_each_service_of_the_compose_file_starts_and_answers_to_its_name(
    name: str, tmp_path: Path, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = COMPOSE["services"][name]
    monkeypatch.chdir(tmp_path)  # the working folder of the image is a volume
    (published,) = service["ports"]
    address, port, inside = published.rsplit(":", 2)
    assert (address, port) == ("127.0.0.1", inside)  # nobody but this machine
    here = {
        "redis://redis:6379": f"redis://127.0.0.1:{redis_server.port}?timeout_ms=5000",
        "/var/lib/sluicegate": str(tmp_path / "kept"),
    }
    for volume in service.get("volumes", ()):
        source, _, at = volume.removesuffix(":ro").partition(":")
        if source.startswith("./"):
            here[at] = str(DEPLOY / source)
    verb = [name, "serve"] if name == "images" else [name]
    assert service["command"][: len(verb)] == verb
    flags = service["command"][len(verb) :]
    text = "\0".join(flags).replace(f"0.0.0.0:{inside}", "127.0.0.1:PORT")
    for there, found in here.items():
        text = text.replace(there, found)
    chosen = free_port("127.0.0.1")
    flags = text.replace("PORT", str(chosen)).split("\0")
    servers = SERVERS | {"pubsub": PubSubServer}
    with servers[name](tmp_path, *flags, port=chosen) as server:
        assert server.ask("/readyz")[0] == 200
        if name != "console":  # people open it by the published address
            assert server.ask("/v1/state", headers={"Host": f"{name}:{inside}"})[0] == 200
            assert f"http://{name}:{inside}" in COMPOSE["services"]["console"]["command"]


@pytest.mark.parametrize(("name", "server"), [("pubsub", PubSubServer), ("images", ImagesServer)])
def test_a_dashboard_and_its_alerts_ask_only_for_metrics_that_there_are(
    name: str, server: type[ServerProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    dashboard = (DEPLOY / name / "grafana-dashboard.json").read_text(encoding="utf-8")
    alerts = (DEPLOY / name / "alerts.yml").read_text(encoding="utf-8")
    with server(tmp_path) as running:
        page = str(running.ask("/metrics")[1])
    there = set(re.findall(r"^# TYPE (sluicegate_[a-z_]+)", page, re.MULTILINE))
    names = re.findall(rf"\bsluicegate_{name}_[a-z_]+\b", dashboard + alerts)
    asked = {one.removesuffix("_bucket") for one in names}
    assert len(asked) > 15
    assert asked - there == set()
    assert all(panel["targets"] for panel in json.loads(dashboard)["panels"])
    (group,) = yaml.safe_load(alerts)["groups"]
    assert all(rule["annotations"]["what_to_do"] for rule in group["rules"])


def test_one_image_has_what_all_manifests_ask_of_it() -> None:
    recipe = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    exposed = next(line for line in recipe.splitlines() if line.startswith("EXPOSE")).split()[1:]
    for file in DEPLOY.glob("*/kubernetes.yaml"):
        pod = next(yaml.safe_load_all(file.read_text(encoding="utf-8")))["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert f"-t {container['image']} " in recipe
        assert str(container["ports"][0]["containerPort"]) in exposed
        user = pod.get("securityContext", {}).get("runAsUser", 10001)
        assert f"USER {user}\n" in recipe


@pytest.mark.parametrize(
    "file", sorted(DEPLOY.glob("*/kubernetes.yaml")), ids=lambda one: one.parent.name
)
def test_pod_has_time_to_leave_and_to_drain(file: Path) -> None:
    pod = next(iter(yaml.safe_load_all(file.read_text())))["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert "preStop" not in container.get("lifecycle", {})
    set_here = {one["name"]: one.get("value", "") for one in container.get("env", ())}
    grace = [value for name, value in set_here.items() if name.endswith("_GRACE_S")]
    leave = [value for name, value in set_here.items() if name.endswith("_LEAVE_S")]
    needed_s = float(next(iter(leave), LEAVE_S)) + float(next(iter(grace), GRACE_S))
    assert pod["terminationGracePeriodSeconds"] >= needed_s


def test_compose_gives_time_to_leave_and_to_drain() -> None:
    for name in SERVICES:
        period = str(COMPOSE["services"][name]["stop_grace_period"])
        assert float(period.removesuffix("s")) >= LEAVE_S + GRACE_S


def _containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod.get("initContainers", ()), *pod["containers"]]


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: str(file.parent.name))
def test_manifest_confines_its_pods(file: Path) -> None:
    workload, *_ = yaml.safe_load_all(file.read_text(encoding="utf-8"))
    pod = workload["spec"]["template"]["spec"]
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "fsGroup": 10001,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    for container in _containers(pod):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    # Services write to volumes only: the root file system is read-only.
    writable = {
        mount["mountPath"]
        for container in _containers(pod)
        for mount in container["volumeMounts"]
        if not mount.get("readOnly")
    }
    variables = [one.get("value", "") for one in pod["containers"][0]["env"]]
    for value in variables:
        path = value.removeprefix("files:")
        if path.startswith("/var/lib/"):
            assert any(path.startswith(f"{at}/") for at in writable), value


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: str(file.parent.name))
def test_manifest_mounts_secrets_closed_to_others(file: Path) -> None:
    workload, *_ = yaml.safe_load_all(file.read_text(encoding="utf-8"))
    volumes = workload["spec"]["template"]["spec"]["volumes"]
    modes = {one["name"]: one["secret"]["defaultMode"] for one in volumes if "secret" in one}
    assert {"access", "tls"} <= modes.keys()
    assert set(modes.values()) == {0o440}


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: str(file.parent.name))
def test_manifest_limits_network_and_disruption(file: Path) -> None:
    workload, *others = yaml.safe_load_all(file.read_text(encoding="utf-8"))
    by_kind = {one["kind"]: one["spec"] for one in others}
    labels = workload["spec"]["template"]["metadata"]["labels"]
    (port,) = workload["spec"]["template"]["spec"]["containers"][0]["ports"]
    policy = by_kind["NetworkPolicy"]
    assert policy["podSelector"]["matchLabels"] == labels
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["ingress"] == [{"ports": [{"protocol": "TCP", "port": port["name"]}]}]
    names, needed = policy["egress"]
    assert {one["port"] for one in names["ports"]} == {53}
    opened = {one["port"] for one in needed["ports"]}
    text = yaml.safe_dump(workload)
    asked = {int(one) for one in re.findall(r"(?:://|local|kv|limiter)[a-z0-9.-]*:(\d+)", text)}
    assert opened >= asked - {port["containerPort"]} | ({443} if "s3://" in text else set())
    if workload["spec"]["replicas"] > 1:
        budget = by_kind["PodDisruptionBudget"]
        assert budget["selector"]["matchLabels"] == labels
        assert 1 in (budget.get("minAvailable"), budget.get("maxUnavailable"))
    else:
        assert "PodDisruptionBudget" not in by_kind
