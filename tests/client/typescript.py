"""The TypeScript client as its users build it, and a Node that runs tests of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.engines.child import PATIENCE_S

SOURCE = Path(__file__).parents[2] / "clients" / "typescript"
INSTALL = ("install", "--no-package-lock", "--prefer-offline", "--no-audit", "--no-fund")
INSTALL_S_MAX = 120.0
OLDEST_NODE = 20
NODE_WITH_SOCKETS = 22  # the first one whose WebSocket needs no flag
Commands: TypeAlias = Mapping[str, Callable[[Any], object]]


def build(folder: Path) -> Path:
    """Return a copy of the package, built there; skip with one line if that needs what is missing.

    There is no lock file: it would hold addresses of a registry. The one package is pinned.
    """
    if node_version() < OLDEST_NODE or shutil.which("npm") is None:
        pytest.skip(f"no Node from version {OLDEST_NODE} on with npm; get it: apt-get install npm")
    package = folder / "typescript"
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("node_modules", "dist"))
    try:
        installed = _run(["npm", *INSTALL], package, INSTALL_S_MAX)
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm could not get typescript in {INSTALL_S_MAX:g} s: connect to a registry")
    if installed.returncode:
        pytest.skip(f"npm cannot get typescript: {installed.stderr.strip().splitlines()[:1]}")
    built = _run([str(package / "node_modules" / ".bin" / "tsc")], package)
    assert built.returncode == 0, built.stdout
    return package


@cache
def node_version() -> int:
    """Return the major version of Node, 0 without Node."""
    if shutil.which("node") is None:
        return 0
    return int(_run(["node", "--version"], Path.cwd()).stdout.lstrip("v").partition(".")[0])


def run_tests(package: Path, file: str, **environment: str) -> None:
    """Run a test file of the package with Node, and fail with Node's report."""
    # Without `--test`, which would start another process that a time-out does not end.
    done = _run(["node", file], package, environment=environment)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr


def run_script(package: Path, text: str) -> str:
    """Return what a module prints that imports the package by its name."""
    modules = package / "node_modules" / "@sluicegate"
    modules.mkdir(exist_ok=True)
    if not (modules / "pubsub").exists():
        (modules / "pubsub").symlink_to(package)
    done = _run(["node", "--input-type=module", "--eval", text], package)
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
        command, cwd=folder, env=every, capture_output=True, text=True, timeout=timeout_s, check=False
    )


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

    with ThreadingHTTPServer(("127.0.0.1", 0), Caller) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
