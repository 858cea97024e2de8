"""Rulebook file: a file of a rulebook, read and proposed anew by the rulebook's own command.

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


class _ProposalResult(NamedTuple):
    """What became of a proposal: whether the gate accepted it, and the text for its reader."""

    accepted: bool
    text: str


class _CommandResult(NamedTuple):
    """Exit code and output of a command of the rulebook."""

    code: int
    out: str
    err: str


@final
class RulebookFile:
    """A rulebook, in a folder or behind a server, and the file of it that is meant."""

    __slots__ = ("_flags", "name")

    def __init__(self, where: str, name: str, flags: Sequence[str] = ()) -> None:
        path = PurePosixPath(name)
        if not name or path.is_absolute() or ".." in path.parts:
            raise BadValue("--under", name, "give the file's name in the rulebook, as callers.yaml")
        self.name = name
        self._flags = ["--rulebook", where, *flags]

    def live(self) -> str:
        """Return the text of the file that is live."""
        result = self._run("show", self.name, "--json")
        if result.code:
            raise _error_of(result)
        return str(json.loads(result.out)["text"])

    def check_live(self, text: str, source: str) -> None:
        """Refuse a file here that differs from the live one; there may be none."""
        result = self._run("show", self.name, "--json")
        if not result.code and json.loads(result.out)["text"] != text:
            raise Conflict(
                source,
                f"{self.name} as it is live in the rulebook says otherwise; leave out --rules, "
                "and that one is tuned",
            )

    def propose(
        self, text: str, *, message: str, reason: str, confirm: bool, report: Path
    ) -> _ProposalResult:
        """Propose this text; the page of its trial is written if there were figures."""
        with tempfile.TemporaryDirectory(prefix="sluicegate-quota-") as folder:
            path = Path(folder) / self.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
            words = ["propose", folder, "--message", message, "--json"]
            words += ["--reason", reason] if reason else []
            words += ["--confirm"] if confirm else []
            result = self._run(*words)
        if result.code:
            raise _error_of(result)
        one: dict[str, Any] = json.loads(result.out)
        words = ["show", str(one["id"])]
        verdict = one.get("verdict") or {}
        if verdict.get("report"):
            words += ["--html", str(report)]
        output = self._run(*words)
        if output.code:
            raise _error_of(output)
        lines = output.out + output.err
        if verdict.get("report"):
            lines += f"\nthe report on captured traffic is in {report}\n"
        return _ProposalResult(one["state"] != REJECTED, lines)

    def _run(self, *words: str) -> _CommandResult:
        command = [sys.executable, "-m", "sluicegate.cli", "rules", *words, *self._flags]
        try:
            process = subprocess.run(
                command, check=False, capture_output=True, text=True, timeout=TIMEOUT_S
            )
        except subprocess.TimeoutExpired:
            return _CommandResult(
                1, "", f"sluicegate rules {words[0]} took more than {TIMEOUT_S:.0f} s"
            )
        return _CommandResult(process.returncode, process.stdout, process.stderr)


def _error_of(result: _CommandResult) -> SluicegateError:
    """Return the command's message as an error of ours."""
    return SluicegateError(result.err.strip().removeprefix(_PREFIX) or result.out.strip())
