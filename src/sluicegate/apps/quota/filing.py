"""Filing: changed rules handed to a rulebook as a proposal, by its own command.

Apps do not know each other, so what a person would type is run: `sluicegate rules propose`, and
`show` for what came of it. The gate has tried the proposal by then on what was captured; where it
had figures, they are written as a page.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple, final

from sluicegate.contracts.errors import BadValue, Conflict, SluicegateError

TIMEOUT_S: Final = 600.0  # the gate may replay much
REJECTED: Final = "rejected"
_PREFIX: Final = "sluicegate: "


class Filed(NamedTuple):
    """What came of a proposal: whether the gate let it stand, and how it is told."""

    stands: bool
    told: str


class _Said(NamedTuple):
    """What a command of the rulebook has said."""

    code: int
    out: str
    err: str


@final
class Rulebook:
    """A rulebook, in a folder or behind a server, and the file of it that is meant."""

    __slots__ = ("_flags", "name")

    def __init__(self, where: str, name: str, flags: Sequence[str] = ()) -> None:
        path = PurePosixPath(name)
        if not name or path.is_absolute() or ".." in path.parts:
            raise BadValue("--under", name, "give the file's name in the rulebook, as callers.yaml")
        self.name = name
        self._flags = ["--rulebook", where, *flags]

    def live(self) -> str:
        """What the file says now."""
        said = self._run("show", self.name, "--json")
        if said.code:
            raise _told(said)
        return str(json.loads(said.out)["text"])

    def must_be(self, text: str, source: str) -> None:
        """That a file here is what is live, or is not there at all; nothing else may slip in."""
        said = self._run("show", self.name, "--json")
        if not said.code and json.loads(said.out)["text"] != text:
            raise Conflict(
                source,
                f"{self.name} as it is live in the rulebook says otherwise; leave out --rules, "
                "and that one is tuned",
            )

    def propose(self, text: str, *, message: str, reason: str, report: Path) -> Filed:
        """Propose this text; the page of its trial is written if there were figures."""
        with tempfile.TemporaryDirectory(prefix="sluicegate-quota-") as folder:
            path = Path(folder) / self.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
            words = ["propose", folder, "--message", message, "--json"]
            said = self._run(*words, *(["--reason", reason] if reason else []))
        if said.code:
            raise _told(said)
        one: dict[str, Any] = json.loads(said.out)
        words = ["show", str(one["id"])]
        verdict = one.get("verdict") or {}
        if verdict.get("report"):
            words += ["--html", str(report)]
        shown = self._run(*words)
        if shown.code:
            raise _told(shown)
        lines = shown.out + shown.err
        if verdict.get("report"):
            lines += f"\nhow it fared on captured traffic is in {report}\n"
        return Filed(one["state"] != REJECTED, lines)

    def _run(self, *words: str) -> _Said:
        command = [sys.executable, "-m", "sluicegate.cli", "rules", *words, *self._flags]
        try:
            done = subprocess.run(
                command, check=False, capture_output=True, text=True, timeout=TIMEOUT_S
            )
        except subprocess.TimeoutExpired:
            return _Said(1, "", f"sluicegate rules {words[0]} took more than {TIMEOUT_S:.0f} s")
        return _Said(done.returncode, done.stdout, done.stderr)


def _told(said: _Said) -> SluicegateError:
    """The rulebook's own words, as ours."""
    return SluicegateError(said.err.strip().removeprefix(_PREFIX) or said.out.strip())
