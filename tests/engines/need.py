"""What a test needs of the machine, and the one decision when it is not there: skip or fail.

A need knows how to look, how to fetch if it can, and the command that gets it. Which engine needs
what is a table, in `catalogue.py`; this file must not know any engine by name.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NoReturn, Protocol

from tests.engines.child import free_port

REQUIRE = "SLUICEGATE_REQUIRE_ENGINES"
JAVA_APT = "apt-get install -y default-jdk-headless maven"
ASK_VERSION_S_MAX = 20


@dataclass(frozen=True)
class Missing:
    """One thing that is not there, and how to get it."""

    what: str
    get: str

    def __str__(self) -> str:
        return f"{self.what}; get it: {self.get}"


class Need(Protocol):
    """One thing that an engine cannot do without."""

    def present(self) -> str | Missing:
        """Look, without changing anything: what was found, or what is missing."""

    def bring(self) -> str | Missing:
        """Look, and fetch it if it is of the kind that can be fetched unasked."""


class LookedUpNeed(ABC):
    """A need that tests must not install by themselves: to bring it is only to look."""

    @abstractmethod
    def present(self) -> str | Missing:
        """Look."""

    def bring(self) -> str | Missing:
        return self.present()


@dataclass(frozen=True)
class Program(LookedUpNeed):
    """A command on the PATH."""

    name: str
    get: str

    def present(self) -> str | Missing:
        return shutil.which(self.name) or Missing(f"no {self.name} on the PATH", self.get)


@dataclass(frozen=True)
class Module(LookedUpNeed):
    """A Python package, by the name it is imported by."""

    name: str
    get: str

    def present(self) -> str | Missing:
        if importlib.util.find_spec(self.name) is None:
            return Missing(f"no Python module {self.name}", self.get)
        return f"Python module {self.name}"


@dataclass(frozen=True)
class Java(LookedUpNeed):
    """A Java of a version that the server is made for."""

    oldest: int
    newest: int | None = None

    def present(self) -> str | Missing:
        path = java()
        if path is None:
            return Missing("no java, by JAVA_HOME or on the PATH", JAVA_APT)
        version = _java_version(path)
        if self.oldest <= version <= (self.newest or version):
            return f"{path}, version {version}"
        return Missing(
            f"{path} has version {version}, not {self.oldest} to {self.newest or 'any newer'}",
            f"apt-get install -y openjdk-{self.oldest}-jdk-headless, and set JAVA_HOME to it",
        )


@dataclass(frozen=True)
class Loopback(LookedUpNeed):
    """Further loopback addresses; Linux has them all, macOS has only the first."""

    addresses: tuple[str, ...]

    def present(self) -> str | Missing:
        try:
            free_port(*self.addresses)
        except RuntimeError:
            get = " && ".join(f"ifconfig lo0 alias {address}" for address in self.addresses[1:])
            return Missing(f"cannot listen on {', '.join(self.addresses)}", get)
        return f"loopback {', '.join(self.addresses)}"


def java() -> str | None:
    """The java that JAVA_HOME names, or else the one on the PATH."""
    home = os.environ.get("JAVA_HOME")
    if home and (path := Path(home, "bin", "java")).exists():
        return str(path)
    return shutil.which("java")


@cache
def _java_version(path: str) -> int:
    result = subprocess.run(
        [path, "-version"], capture_output=True, text=True, timeout=ASK_VERSION_S_MAX, check=False
    )
    # "17.0.15", or "1.8.0_402" in the old way of counting
    found = re.search(r'version "(?:1\.)?(\d+)', result.stderr)
    return int(found[1]) if found else 0


def engine(name: str, needs: Iterable[Need]) -> None:
    """Bring what the engine needs; when that fails, skip the test with one line.

    With SLUICEGATE_REQUIRE_ENGINES=1 the same line is a failure: a machine that is meant to have
    the engines must not pass by skipping.
    """
    if missing := _missing(name, tuple(needs)):
        _give_up(f"engine {name}: {missing}")


@cache  # a fetch that failed once is not tried again by each test
def _missing(_name: str, needs: tuple[Need, ...]) -> Missing | None:
    for need in needs:
        answer = need.bring()
        if isinstance(answer, Missing):
            return answer
    return None


def _give_up(line: str) -> NoReturn:
    import pytest  # here, so that `python -m tests.engines` runs where pytest is not

    if os.environ.get(REQUIRE) == "1":
        pytest.fail(line, pytrace=False)
    pytest.skip(line)
