"""Builds h2spec, the conformance tester for HTTP/2 servers, from its Go module into our cache.

Go finds, checks and compiles; from where it takes modules is the machine's setting. What a server
must pass is in `test_h2spec.py`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.engines.maven import home
from tests.engines.need import Missing

GO_APT = "apt-get install -y golang-go"
BUILD_S_MAX = 600
RUN_S_MAX = 120


@dataclass(frozen=True)
class GoProgram:
    """A command that `go install` builds, in one version."""

    name: str
    module: str
    version: str

    @property
    def path(self) -> Path:
        """The program in the cache."""
        return home() / f"{self.name}-{self.version}" / self.name

    def present(self) -> str | Missing:
        """Look into the cache only."""
        if self.path.exists():
            return f"{self.name} {self.version} in {self.path.parent}"
        return Missing(f"{self.name} {self.version} is not in {self.path.parent}", GO_APT)

    def bring(self) -> str | Missing:
        """Look, and build it when it is not there and Go is."""
        if not self.path.exists():
            go = shutil.which("go")
            if go is None:
                return Missing(f"no go to build {self.name} with", GO_APT)
            home().mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=home()) as folder:
                result = subprocess.run(
                    [go, "install", f"{self.module}@{self.version}"],
                    env={**os.environ, "GOBIN": folder},
                    capture_output=True,
                    text=True,
                    timeout=BUILD_S_MAX,
                    check=False,
                )
                built = Path(folder, self.name)
                if not built.exists():
                    last = result.stderr.strip().splitlines()[-1:] or ["no word why"]
                    return Missing(f"go could not build {self.name}: {last[0]}", "see its words")
                self.path.parent.mkdir(exist_ok=True)
                built.rename(self.path)  # whole or not at all, whoever builds at the same time
        return self.present()


H2SPEC = GoProgram("h2spec", "github.com/summerwind/h2spec/cmd/h2spec", "v2.2.1+incompatible")


class Tally(NamedTuple):
    """What h2spec counted, and all that it said."""

    tests: int
    passed: int
    skipped: int
    failed: int
    output: str


def run(port: int, *more: str) -> Tally:
    """All of its cases against a server on loopback."""
    result = subprocess.run(
        [str(H2SPEC.path), "-h", "127.0.0.1", "-p", str(port), "-o", "2", *more],
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    output = result.stdout + result.stderr
    found = re.search(r"(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed", output)
    if found is None:
        return Tally(0, 0, 0, 0, output)
    tests, passed, skipped, failed = (int(each) for each in found.groups())
    return Tally(tests, passed, skipped, failed, output)
