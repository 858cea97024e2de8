"""Nodes that know each other by their certificates, and no token at all."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import trustme

from sluicegate.kernels.hash_ring import Rendezvous
from sluicegate.policies.access import token_digest
from tests.apps.pubsub.cluster import token_of
from tests.apps.pubsub.process import PubSubProcess
from tests.apps.pubsub.test_members import QUICK, NamedProcess, may_mount
from tests.engines.child import free_port, until

NAMES = ("n1", "n2")
ANN = token_of("ann")


class Certificates:
    """Of an authority: for each node one that says its name, and that of its host."""

    def __init__(self, folder: Path, host: str) -> None:
        self.ca = trustme.CA()
        self.context = ssl.create_default_context()
        self.ca.configure_trust(self.context)
        self._folder = folder
        self._host = host
        self.ca.cert_pem.write_to_path(folder / "ca.pem")
        callers = [
            f'name = "{name}"\ncertificate = "{name}.nodes"\ngrants = ["report"]' for name in NAMES
        ]
        callers.append(
            f'name = "ann"\ntoken_sha256 = "{token_digest(ANN)}"\n'
            'grants = ["publish", "subscribe", "audit"]'
        )
        (folder / "access.toml").write_text("\n".join(f"[[callers]]\n{one}" for one in callers))

    def flags_of(self, name: str, members: str, host: str = "") -> tuple[str, ...]:
        folder, ca = self._folder / name, str(self._folder / "ca.pem")
        folder.mkdir(exist_ok=True)
        certificate = self.ca.issue_cert(host or self._host, f"{name}.nodes")
        certificate.private_key_pem.write_to_path(folder / "key.pem")
        certificate.cert_chain_pems[0].write_to_path(folder / "chain.pem")
        return (
            "--access", str(self._folder / "access.toml"), "--node", name, "--members", members,
            "--tls-cert", str(folder / "chain.pem"), "--tls-key", str(folder / "key.pem"),
            "--tls-client-ca", ca, "--tls-client-optional", "on", "--node-ca", ca,
        )  # fmt: skip


def path_of(home: str) -> str:
    """The messages of a channel whose home is that node."""
    ring = Rendezvous(dict.fromkeys(NAMES, 1.0))
    return next(
        f"/v1/channels/c{n}/messages" for n in range(100) if ring.owner(f"ann/c{n}") == home
    )


def check_publish_and_reports(nodes: Mapping[str, PubSubProcess], context: ssl.SSLContext) -> None:
    """Messages are passed on, and usage is reported."""

    def ask(name: str, body: object = None, where: str = path_of("n2")) -> tuple[int, Any]:
        return nodes[name].ask(where, body, token=ANN, context=context)

    until(lambda: ask("n1", {"data": 1})[0] == 200, "n1 to reach n2")
    assert ask("n2")[1]["messages"][0]["data"] == 1

    def reported() -> bool:
        ask("n1", {"data": 1})
        ask("n2", {"data": 1})
        return all(
            not (cluster := ask(name, where="/v1/state")[1]["cluster"])["failing"]
            and all(one["heard_us"] >= 0 for one in cluster["accounts"])
            for name in NAMES
        )

    until(reported, "the account's master to answer both")


def test_nodes_know_each_other_by_their_certificates_and_a_stranger_gets_nowhere(
    tmp_path: Path,
) -> None:
    stranger = trustme.CA()
    ports = {name: free_port("127.0.0.1") for name in NAMES}
    members = ",".join(f"{name}=127.0.0.1:{port}" for name, port in ports.items())
    with ExitStack() as stack:
        tls = Certificates(tmp_path, "127.0.0.1")
        nodes = {
            name: stack.enter_context(
                PubSubProcess(tmp_path / name, *tls.flags_of(name, members), port=ports[name])
            )
            for name in NAMES
        }
        check_publish_and_reports(nodes, tls.context)
        forged = ssl.create_default_context()
        tls.ca.configure_trust(forged)
        stranger.issue_cert("n1.nodes").configure_cert(forged)
        try:
            status, _ = nodes["n2"].ask(path_of("n2"), {"data": 2}, context=forged)
        except (ssl.SSLError, ConnectionError):
            status = 0
        assert status in (0, 401)


def test_nodes_that_a_name_finds_know_each_other_by_certificates_for_the_name(
    tmp_path: Path,
) -> None:
    if not may_mount():
        pytest.skip("a process may not have an /etc/hosts of its own here")
    host, port = "nodes.internal", free_port("127.0.0.1")
    addresses = {"n1": "127.0.0.1", "n2": "127.0.0.2"}
    NamedProcess.hosts = tmp_path / "hosts"
    NamedProcess.hosts.write_text(
        "127.0.0.1 localhost\n" + "".join(f"{one} {host}\n" for one in addresses.values())
    )
    tls = Certificates(tmp_path, host)
    tls.context.check_hostname = False  # the test asks by addresses

    def start(name: str, certified_host: str = "") -> NamedProcess:
        flags = tls.flags_of(name, f"dns://{host}:{port}", certified_host)
        return NamedProcess(tmp_path / name, addresses[name], port, *flags, *QUICK)

    def members(node: NamedProcess) -> list[str]:
        _, state = node.ask("/v1/state", token=ANN, context=tls.context)
        found: list[str] = state["cluster"]["members"]
        return found

    with start("n1") as n1:
        # The control: who has a certificate for another host is not the node that the name says.
        with start("n2", "elsewhere.internal") as stranger:
            until(lambda: members(stranger) == list(NAMES), "the stranger to find n1")
            assert members(n1) == ["n1"]
        stranger.log.unlink()
        with start("n2") as n2:
            until(lambda: members(n1) == members(n2) == list(NAMES), "both to find each other")
            check_publish_and_reports({"n1": n1, "n2": n2}, tls.context)
