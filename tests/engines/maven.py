"""Brings jars and all they depend on into a cache folder of ours, by their Maven coordinates.

Maven finds, checks and copies; this file only asks it, and knows when the answer is whole. From
where Maven takes them is the machine's setting, so no address may be written here.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.engines.child import Child, EngineFailedError
from tests.engines.need import JAVA_APT, Missing, java

HOME = "SLUICEGATE_ENGINES_HOME"
FETCH = "python -m tests.engines fetch"
FETCH_S_MAX = 900.0
LOG_LINES_TOLD_MAX = 3

POM = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>sluicegate.engines</groupId>
  <artifactId>{name}</artifactId>
  <version>{version}</version>
  <packaging>pom</packaging>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
DEPENDENCY = """\
    <dependency>
      <groupId>{0}</groupId>
      <artifactId>{1}</artifactId>
      <version>{2}</version>
    </dependency>"""


def home() -> Path:
    """The folder of all engines: SLUICEGATE_ENGINES_HOME, or one in the user's cache."""
    return Path(os.environ.get(HOME) or Path.home() / ".cache" / "sluicegate-engines")


@dataclass(frozen=True)
class Jars:
    """A server as Maven knows it: `group:artifact:version` of what is named, and what follows."""

    name: str
    version: str
    coordinates: tuple[str, ...]

    @property
    def folder(self) -> Path:
        """The cache folder of this server in this version."""
        return home() / f"{self.name}-{self.version}"

    @property
    def class_path(self) -> str:
        """For `java -cp`, which expands the star itself."""
        return f"{self.folder / 'lib'}{os.sep}*"

    def jar(self, artifact: str) -> Path:
        """The one jar of an artifact, whatever version Maven settled on."""
        found = sorted((self.folder / "lib").glob(f"{artifact}-[0-9]*.jar"))
        if len(found) != 1:
            raise EngineFailedError(f"{len(found)} jars of {artifact} in {self.folder / 'lib'}")
        return found[0]

    # A need, as `need.py` tells them.

    def present(self) -> str | Missing:
        """Look into the cache only."""
        if self._whole():
            return f"{self.name} {self.version} in {self.folder}"
        return Missing(f"{self.name} {self.version} is not in {self.folder}", FETCH)

    def bring(self) -> str | Missing:
        """Look, and fetch when it is not there and this machine has the means."""
        try:
            self.fetch()
        except FetchError as error:
            return error.missing
        return self.present()

    # The fetch.

    def fetch(self, say: Callable[[str], None] = lambda line: None) -> None:
        """Fill the cache folder, unless it is whole; one process at a time does it."""
        if self._whole():
            say(f"{self.name} {self.version}: here already, {self.folder}")
            return
        maven = shutil.which("mvn")
        if maven is None or java() is None:
            absent = " and ".join(
                name for name, path in (("java", java()), ("mvn", maven)) if path is None
            )
            raise FetchError(Missing(f"no {absent} to fetch {self.name} with", JAVA_APT))
        with self._locked(say):
            if not self._whole():
                self._run(maven, say)

    def _run(self, maven: str, say: Callable[[str], None]) -> None:
        began = time.monotonic()
        say(f"{self.name} {self.version}: fetching {', '.join(self.coordinates)}")
        self._stamp.unlink(missing_ok=True)
        lib, log = self.folder / "lib", self.folder / "fetch.log"
        shutil.rmtree(lib, ignore_errors=True)
        log.unlink(missing_ok=True)
        pom = self.folder / "pom.xml"
        pom.write_text(self._pom())
        command = [
            maven,
            "--batch-mode",
            "--no-transfer-progress",
            "--strict-checksums",
            f"--file={pom}",
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            f"-DoutputDirectory={lib}",
        ]
        child = Child(f"mvn for {self.name}", command, log)
        try:
            code = child.wait(FETCH_S_MAX)
        finally:
            child.kill()  # on Ctrl-C too: no mvn goes on behind our back
        if code is None:
            why = f"mvn did not bring {self.name} {self.version} in {FETCH_S_MAX:g} s (all: {log})"
            raise FetchError(Missing(why, FETCH))
        if code != 0:
            why = f"mvn could not bring {self.name} {self.version}: {_errors(log)} (all: {log})"
            raise FetchError(Missing(why, FETCH))
        jars = {path.name: path.stat().st_size for path in sorted(lib.glob("*.jar"))}
        # The stamp comes last and by rename: whatever stopped us before, the folder is not whole.
        draft = self._stamp.with_suffix(".draft")
        draft.write_text(json.dumps({"coordinates": self.coordinates, "jars": jars}, indent=1))
        draft.replace(self._stamp)
        took_s, size_mb = time.monotonic() - began, sum(jars.values()) / 1e6
        say(f"{self.name} {self.version}: {len(jars)} jars, {size_mb:.0f} MB, {took_s:.1f} s")

    @property
    def _stamp(self) -> Path:
        return self.folder / "complete.json"

    def _whole(self) -> bool:
        """Whether a fetch of just these coordinates was finished, and nothing is gone since."""
        try:
            stamp = json.loads(self._stamp.read_text())
            return tuple(stamp["coordinates"]) == self.coordinates and all(
                (self.folder / "lib" / name).stat().st_size == size
                for name, size in stamp["jars"].items()
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return False

    @contextmanager
    def _locked(self, say: Callable[[str], None]) -> Iterator[None]:
        """Hold the folder's lock; the kernel lets go of it if we die."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"{self.name} {self.version}: another process is fetching it, waiting")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _pom(self) -> str:
        dependencies = [DEPENDENCY.format(*one.split(":")) for one in self.coordinates]
        return POM.format(
            name=self.name, version=self.version, dependencies="\n".join(dependencies)
        )


class FetchError(RuntimeError):
    """Jars could not be had; `missing` says why and what to do."""

    def __init__(self, missing: Missing) -> None:
        super().__init__(str(missing))
        self.missing = missing


def _errors(log: Path) -> str:
    """What Maven called an error, short enough for one line."""
    lines = log.read_text(errors="replace").splitlines()
    errors = [line.removeprefix("[ERROR]").strip() for line in lines if line.startswith("[ERROR]")]
    tail = [line for line in errors if line][:LOG_LINES_TOLD_MAX] or lines[-1:]
    return " ".join(tail) or "it said nothing"
