"""Nodes that know each other by their certificates, and no token at all."""

from __future__ import annotations

import ssl
from contextlib import ExitStack
from pathlib import Path

import trustme

from sluicegate.kernels.hash_ring import Rendezvous
from sluicegate.policies.access import token_digest
from tests.apps.pubsub.cluster import token_of
from tests.apps.pubsub.process import PubSubProcess
from tests.engines.child import free_port, until

NAMES = ("n1", "n2")


def test_nodes_know_each_other_by_their_certificates_and_a_stranger_gets_nowhere(
    tmp_path: Path,
) -> None:
    ca, stranger = trustme.CA(), trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    callers = [
        f'name = "{name}"\ncertificate = "{name}.nodes"\ngrants = ["report"]' for name in NAMES
    ]
    callers.append(
        f'name = "ann"\ntoken_sha256 = "{token_digest(token_of("ann"))}"\n'
        'grants = ["publish", "subscribe", "audit"]'
    )
    access = tmp_path / "access.toml"
    access.write_text("\n".join(f"[[callers]]\n{one}" for one in callers))
    ports = {name: free_port("127.0.0.1") for name in NAMES}
    members = ",".join(f"{name}=127.0.0.1:{port}" for name, port in ports.items())
    context = ssl.create_default_context()
    ca.configure_trust(context)
    with ExitStack() as stack:
        nodes = {}
        for name in NAMES:
            folder = tmp_path / name
            folder.mkdir()
            certificate = ca.issue_cert("127.0.0.1", f"{name}.nodes")
            certificate.private_key_pem.write_to_path(folder / "key.pem")
            certificate.cert_chain_pems[0].write_to_path(folder / "chain.pem")
            flags = (
                "--access", str(access), "--node", name, "--members", members,
                "--tls-cert", str(folder / "chain.pem"), "--tls-key", str(folder / "key.pem"),
                "--tls-client-ca", str(tmp_path / "ca.pem"), "--tls-client-optional", "on",
                "--node-ca", str(tmp_path / "ca.pem"),
            )  # fmt: skip
            nodes[name] = stack.enter_context(PubSubProcess(folder, *flags, port=ports[name]))
        ring = Rendezvous(dict.fromkeys(NAMES, 1.0))
        of_n2 = next(f"c{n}" for n in range(100) if ring.owner(f"ann/c{n}") == "n2")
        path, token = f"/v1/channels/{of_n2}/messages", token_of("ann")

        def ask(name: str, body: object = None, where: str = path) -> tuple[int, object]:
            return nodes[name].ask(where, body, token=token, context=context)

        until(lambda: ask("n1", {"data": 1})[0] == 200, "n1 to reach n2")
        assert ask("n2")[1]["messages"][0]["data"] == 1  # type: ignore[index]

        def reported() -> bool:
            ask("n1", {"data": 1})
            ask("n2", {"data": 1})
            return all(
                not (cluster := ask(name, where="/v1/state")[1]["cluster"])["failing"]  # type: ignore[index]
                and all(one["heard_us"] >= 0 for one in cluster["accounts"])
                for name in NAMES
            )

        until(reported, "the account's master to answer both")
        forged = ssl.create_default_context()
        ca.configure_trust(forged)
        stranger.issue_cert("n1.nodes").configure_cert(forged)
        try:
            status, _ = nodes["n2"].ask(path, {"data": 2}, context=forged)
        except (ssl.SSLError, ConnectionError):
            status = 0
        assert status in (0, 401)
