"""The TypeScript client as its users build it, and a Node that runs tests of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeAlias

from tests.engines.child import PATIENCE_S
from tests.engines.need import LookedUpNeed, Missing, Program, engine

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "clients" / "typescript"
GUIDE = ROOT / "docs" / "guides" / "pubsub-browser.md"
PAGE = """<!doctype html><title>a site</title>
<script type="importmap">{"imports": {"@sluicegate/pubsub": "/dist/index.js"}}</script>"""
INSTALL = ("install", "--prefer-offline", "--no-audit", "--no-fund")
INSTALL_S_MAX = 120.0
OLDEST_NODE = 20
NODE_WITH_SOCKETS = 22  # the first one whose WebSocket needs no flag
Commands: TypeAlias = Mapping[str, Callable[[Any], object]]


@dataclass(frozen=True)
class Node(LookedUpNeed):
    """A Node that has WebSockets, by a flag at least."""

    def present(self) -> str | Missing:
        get = f"install Node from version {OLDEST_NODE} on, from nodejs.org"
        version = node_version()
        if version < OLDEST_NODE:
            return Missing(f"Node {version} on the PATH" if version else "no node on the PATH", get)
        return f"Node {version}"


@dataclass(frozen=True)
class NpmPackages(LookedUpNeed):
    """The development dependencies of the package in a folder."""

    folder: Path

    def present(self) -> str | Missing:
        get = "connect to a registry of npm"
        try:
            done = _run(["npm", *INSTALL], self.folder, INSTALL_S_MAX)
        except subprocess.TimeoutExpired:
            return Missing(f"npm got no typescript in {INSTALL_S_MAX:g} s", get)
        if done.returncode:
            return Missing(f"npm got no typescript: {done.stderr.partition(chr(10))[0]}", get)
        return "typescript"


def build(folder: Path) -> Path:
    """Return a copy of the package, built there; skip with one line if that is not possible.

    There is no lock file: it would hold addresses of a registry. The one package is pinned.
    """
    package = folder / "typescript"
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("node_modules", "dist"))
    needs = (Node(), Program("npm", "apt-get install -y npm"), NpmPackages(package))
    engine("typescript", needs)
    compile_with(package)
    return package


def compile_with(package: Path, *arguments: str) -> None:
    """Run the package's compiler: the package itself, or the files in `arguments`."""
    built = _run([str(package / "node_modules" / ".bin" / "tsc"), *arguments], package)
    assert built.returncode == 0, built.stdout


@cache
def node_version() -> int:
    """Return the major version of Node, 0 without Node."""
    if shutil.which("node") is None:
        return 0
    return int(_run(["node", "--version"], Path.cwd()).stdout.lstrip("v").partition(".")[0])


def run_node(package: Path, file: str, **environment: str) -> str:
    """Run a file in the package with Node, return its output, and fail with its report."""
    # Without `--test`, which would start another process that a time-out does not end.
    done = _run(["node", file], package, environment=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _run(
    command: list[str],
    folder: Path,
    timeout_s: float = 2 * PATIENCE_S,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    every = {**os.environ, **(environment or {})}
    if command[0] == "node" and "--version" not in command and node_version() < NODE_WITH_SOCKETS:
        every["NODE_OPTIONS"] = "--experimental-websocket"
    return subprocess.run(
        command,
        cwd=folder,
        env=every,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def guide_example(url: str) -> str:
    """Return the guide's example with this service; it calls `show` with the text it receives."""
    (text,) = re.findall(r"^```js\n(.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    assert isinstance(text, str)
    return text.replace("wss://pubsub.example.com", url.replace("http", "ws"))


@contextmanager
def site_of(package: Path, token: str) -> Iterator[str]:
    """Serve a page that can import the package, and `/pubsub-token`; give its origin."""

    class Page(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path not in ("/", "/pubsub-token"):
                super().do_GET()
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/html" if self.path == "/" else "text/plain")
            self.end_headers()
            self.wfile.write((PAGE if self.path == "/" else token).encode())

        def log_message(self, *_: object) -> None:
            pass

    with _serve(partial(Page, directory=str(package))) as origin:
        yield origin


@contextmanager
def _serve(handler: Callable[..., BaseHTTPRequestHandler]) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@contextmanager
def control(commands: Commands) -> Iterator[str]:
    """Give the address at which a test in Node can call these functions."""

    class Caller(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            argument = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                status, result = 200, json.dumps(commands[self.path[1:]](argument))
            except Exception as error:  # the test in Node shows it
                status, result = 500, repr(error)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(result.encode())

        def log_message(self, *_: object) -> None:
            pass

    with _serve(Caller) as address:
        yield address
