"""The command as a user runs it, and rules to run it on."""

from __future__ import annotations

import sys
from pathlib import Path

from sluicegate import cli

ROW = cli.CommandEntry(
    "limits",
    "explain a rules file, and try requests on it",
    "sluicegate.apps.limits.command",
    extra="rules",
)

RULES = """\
version: 1
defaults: {failure: closed}
rules:
  login:
    match: {path: /login, method: POST}
    key: address
    limit: 5/minute
  api:
    match: {path: /api/**, header: {x-plan: free}}
    key: [user, path]
    limit: 10/s burst 20; 1000/hour
    cost: {header: x-cost, max: 10}
  trial:
    match: {path: /login}
    key: user
    limit: 3/minute
    mode: shadow
  health:
    match: {path: /health}
    exempt: true
"""


def limits(*arguments: str) -> int:
    """Run `sluicegate limits`; a usage error's exit code is returned too."""
    rows = cli.COMMANDS
    if all(row.name != ROW.name for row in rows):
        vars(cli)["COMMANDS"] = (*rows, ROW)
    try:
        return cli.main(["limits", *arguments])
    except SystemExit as ended:
        return int(ended.code or 0)
    finally:
        vars(cli)["COMMANDS"] = rows


def written(folder: Path, text: str = RULES, name: str = "rules.yaml") -> str:
    """A rules file, by its path."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


if __name__ == "__main__":
    sys.exit(limits(*sys.argv[1:]))
