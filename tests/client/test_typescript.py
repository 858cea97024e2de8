"""The TypeScript client, built as its users build it: in Node, against real services."""

from __future__ import annotations

import re
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.apps.pubsub.process import PubSubProcess
from tests.apps.pubsub.test_whole import ANN, UNLIMITED
from tests.apps.pubsub.tokens import EVERY, signed, token_server
from tests.client.typescript import (
    SOURCE,
    Commands,
    build,
    compile_with,
    control,
    guide_example,
    run_node,
    site_of,
)
from tests.engines.child import free_port

BLOCK = re.compile(r"^```ts\n(.*?)^```", re.DOTALL | re.MULTILINE)
# How an application compiles a file that imports the package.
APPLICATION = ("--ignoreConfig", "--strict", "--module", "nodenext", "--target", "es2022")
# Globals of the page in the guide, for Node.
PAGE_IN_NODE = """
const fetchAt = globalThis.fetch;
globalThis.fetch = (path) => fetchAt(new URL(path, "%s"));
globalThis.show = (text) => process.stdout.write(`${text}\\n`, () => process.exit());
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("client"))


def run_at(server: PubSubProcess, package: Path, name: str, commands: Commands) -> None:
    with control(commands) as address:
        socket = server.url.replace("http", "ws")
        file = f"tests/service/{name}.test.js"
        run_node(package, file, SLUICEGATE_URL=socket, SLUICEGATE_CONTROL=address)


def token_of(argument: dict[str, Any]) -> str:
    return signed(argument.get("channels", EVERY), for_s=argument.get("for_s", 600.0))


@pytest.mark.parametrize("file", sorted(one.name for one in SOURCE.glob("tests/*.test.js")))
def test_client_on_simulated_socket_passes(package: Path, file: str) -> None:
    run_node(package, f"tests/{file}")


def test_client_publishes_subscribes_and_enters(package: Path, tmp_path: Path) -> None:
    with token_server(tmp_path) as server:
        run_at(server, package, "talk", {"token": token_of, "account": lambda _: ANN})


def test_client_renews_tokens_and_stops_when_revoked(package: Path, tmp_path: Path) -> None:
    def revoke(_: object) -> None:
        access = next(tmp_path.glob("*.toml"))
        access.write_text(access.read_text().replace('"ann"', '"carl"'))
        server.signal(signal.SIGHUP)

    with token_server(tmp_path) as server:
        run_at(server, package, "tokens", {"token": token_of, "revoke": revoke})


def test_client_resumes_after_kill_without_loss(package: Path, tmp_path: Path) -> None:
    port = free_port("127.0.0.1")
    with ExitStack() as stack:
        running = [stack.enter_context(PubSubProcess(tmp_path, *UNLIMITED, port=port))]

        def restart(_: object) -> None:
            running[-1].signal(signal.SIGKILL)
            running[-1].child.wait(60)
            running[-1].log.unlink()  # the next one reports by itself when it is ready
            running.append(stack.enter_context(PubSubProcess(tmp_path, *UNLIMITED, port=port)))

        run_at(running[0], package, "resume", {"restart": restart})


def test_client_reports_gaps_and_limits(package: Path, tmp_path: Path) -> None:
    flags = ("--account-rate", "0", "--channel-rate", "50", "--history-bytes", "20_000")
    with PubSubProcess(tmp_path, *flags) as server:
        run_at(server, package, "bounds", {})


def test_example_of_readme_compiles_and_runs(package: Path, tmp_path: Path) -> None:
    (text,) = BLOCK.findall((SOURCE / "README.md").read_text())
    with PubSubProcess(tmp_path) as server:
        socket = server.url.replace("http", "ws")
        (package / "example.ts").write_text(text.replace("ws://127.0.0.1:7090", socket))
        compile_with(package, *APPLICATION, "example.ts")
        shown = run_node(package, "example.js")
    assert shown.splitlines() == ["connecting ", "connected ", "hello", "closed "]


def test_example_of_guide_runs(package: Path, tmp_path: Path) -> None:
    with token_server(tmp_path) as server, site_of(package, signed()) as site:
        (package / "page.js").write_text(PAGE_IN_NODE % site)
        (package / "guide.js").write_text(f'import "./page.js";\n{guide_example(server.url)}')
        assert run_node(package, "guide.js") == "hello\n"
