"""What the tests of `sluicegate rules` tell their stories with: the command, in this process."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from sluicegate import cli

RULES = """\
version: 1
callers:
  names: {gateway: CRITICAL}
  pins: [vip]
rules:
  - {rule_id: play, resource_path: /play, limit: 100, window: 1h}
"""
_TIMES = count(1)


class Book:
    """A rulebook in a folder, and the command line on it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def run(self, *words: object) -> tuple[int, str, str]:
        """The exit code, and what was written to either side."""
        self._capsys.readouterr()
        code = cli.main(["rules", *map(str, words)])
        streams = self._capsys.readouterr()
        return code, streams.out, streams.err

    def ok(self, *words: object) -> str:
        """What was said by a command that did what it was asked."""
        code, out, err = self.run(*words)
        assert code == 0, (words, out, err)
        return out

    def at(self, verb: str, *words: object) -> str:
        """Likewise, of a verb on this rulebook."""
        return self.ok(verb, *words, "--rulebook", self.folder)

    def json(self, verb: str, *words: object) -> Any:
        """Likewise, as a program reads it."""
        return json.loads(self.at(verb, *words, "--json"))

    def json_by_server(self, verb: str, *words: object) -> Any:
        """Likewise, of a verb on whatever SLUICEGATE_RULEBOOK says."""
        return json.loads(self.ok(verb, *words, "--json"))

    def refused(self, verb: str, *words: object) -> str:
        """What was said by one that did not."""
        code, out, err = self.run(verb, *words, "--rulebook", self.folder)
        assert code != 0, out
        return out + err

    def init(self, text: str = RULES, *, alone: bool = True) -> Book:
        """Made, with these rules as its first version."""
        self.ok("init", self.folder, "--rules", self.file(text), *(["--alone"] if alone else []))
        return self

    def file(self, text: str, name: str = "rules.yaml") -> Path:
        """A rules file beside the rulebook, as somebody has edited it."""
        path = self.folder.parent / name
        path.write_text(text)
        return path

    def propose(self, text: str, *more: object, name: str = "rules.yaml") -> str:
        """The id of a proposal of this text."""
        # The same words twice within a second would be the same commit.
        message = f"Change it, {next(_TIMES)}"
        answer = self.json("propose", self.file(text, name), "-m", message, "--confirm", *more)
        return str(answer["id"])

    def publish(self, text: str) -> int:
        """The version that this text is live as."""
        proposal = self.propose(text)
        self.at("approve", proposal, "--override", "nothing captured yet")
        return int(self.json("publish", proposal)["version"])


@pytest.fixture
def book(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Book:
    return Book(tmp_path / "book", capsys)
