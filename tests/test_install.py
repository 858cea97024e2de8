"""Installed as a user installs it: what `make wheel` made, in clean environments.

Once from the wheel, and once from the source archive on a machine that has no compiler: there is
no program on the path but those of the environment itself.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import venv
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from sluicegate.cli import COMMANDS
from tests.apps.server_process import ServerProcess
from tests.engines.child import until

pytestmark = pytest.mark.install

ROOT: Final = Path(__file__).parent.parent
DIST: Final = ROOT / "dist"
EXTRAS: Final = "server,kv,rulebook"
SERVERS: Final = {
    "limiter": ["--rules", str(ROOT / "deploy" / "limiter" / "rules")],
    "kv": ["--engine", "memory:"],
}


class Environment(NamedTuple):
    """A virtual environment with nothing in it but Sluicegate and its extras."""

    folder: Path
    compiled: bool

    def run(self, *command: str) -> str:
        """Run a program of the environment, and nothing else of this machine; return its output."""
        program, *arguments = command
        done = subprocess.run(
            [self.folder / "bin" / program, *arguments],
            cwd=self.folder,
            env=os.environ | {"PATH": str(self.folder / "bin")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


class InstalledServer(ServerProcess):
    """A server of an environment."""

    def __init__(self, environment: Environment, app: str, *flags: str) -> None:
        self.app = app
        self.program = str(environment.folder / "bin" / "sluicegate")
        super().__init__(environment.folder, *flags, wait=False)
        until(self.answers, f"sluicegate {app}", children=[self.child])

    def answers(self) -> bool:
        """Whether it says that it is well."""
        with suppress(OSError):
            return self.ask("/healthz")[0] in {200, 204}
        return False

    def command(self) -> list[str]:
        """The words that start it."""
        return [self.program, self.app]


@pytest.fixture(scope="module", params=["wheel", "archive without a compiler"])
def environment(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Environment]:
    pattern = "*.whl" if request.param == "wheel" else "*.tar.gz"
    (package,) = DIST.glob(pattern)
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, with_pip=True)
    environment = Environment(folder, request.param == "wheel" and "-none-any" not in package.name)
    environment.run("python", "-m", "pip", "install", "--quiet", f"{package}[{EXTRAS}]")
    yield environment
    shutil.rmtree(folder)


def test_it_is_compiled_where_there_is_a_compiler_and_the_doctor_knows(
    environment: Environment,
) -> None:
    report = environment.run("sluicegate", "doctor")
    assert ("interpreted: none of" in report) != environment.compiled
    assert environment.run("python", "-m", "pip", "check")


@pytest.mark.parametrize("command", [command.name for command in COMMANDS])
def test_every_command_starts(environment: Environment, command: str) -> None:
    assert f"usage: sluicegate {command}" in environment.run("sluicegate", command, "--help")


@pytest.mark.parametrize("app", SERVERS)
def test_every_server_answers_and_ends(environment: Environment, app: str) -> None:
    with InstalledServer(environment, app, *SERVERS[app]) as server:
        assert server.end() == 0


def test_up_starts_every_service(environment: Environment) -> None:
    output = environment.run("sluicegate", "up", "--free-ports", "--for", "12")
    assert "open http://127.0.0.1:" in output
    for name in ("limiter :", "kv :", "pubsub :"):
        assert name in output
    assert output.splitlines()[-1].startswith("sluicegate up: ended after ")


def test_the_library_decides(environment: Environment) -> None:
    program = "from sluicegate import Limiter; print(bool(Limiter('1/day').take('ann')))"
    assert environment.run("python", "-c", program) == "True\n"
