"""`sluicegate resilience plan` as it is called."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sluicegate.cli import main

DOCS = Path(__file__).parents[3] / "docs"
EXAMPLE = str(Path(__file__).parents[3] / "examples" / "resilience.toml")


def test_the_answer_is_a_sentence_and_then_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["resilience", "plan", EXAMPLE, "--strict"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("20 dependencies: 99.9600% of requests are answered (17.5 min ")
    assert "needing all would leave 98.02% (14.5 h)" in printed
    rows = [line.split() for line in printed.splitlines() if line.startswith("  ")]
    assert [row[0] for row in rows] == ["dependency", "core", "extras"]
    assert "warning" not in printed


def test_the_guide_shows_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    guide = (DOCS / "guides" / "resilience-plan.md").read_text(encoding="utf-8")
    shown = guide.split("```\n")[3]
    main(["resilience", "plan", EXAMPLE])
    assert shown.split() == capsys.readouterr().out.partition("taken for")[0].split()


def test_a_warning_is_printed_and_is_an_exit_code_if_that_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "s.toml"
    file.write_text("[dependencies.a]\n[plan]\nlayers = [3]\n")
    assert main(["resilience", "plan", str(file)]) == 0
    assert "warning: 2 layers repeat the same work: 3 x 3 = 9" in capsys.readouterr().out
    assert main(["resilience", "plan", str(file), "--strict"]) == 1


def test_programs_get_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["resilience", "plan", EXAMPLE, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["dependencies"][0]["settings"] == {"soft": False, "count": 8}
    assert found["without"] == pytest.approx(0.999**20)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[client]\n", "resilience.dependencies: {} cannot be used; name what the service calls"),
        ("[dependencies.a]\ncount = 0\n", "resilience.dependencies.a.count: 0 cannot be used"),
    ],
)
def test_bad_settings_are_refused_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    file = tmp_path / "s.toml"
    file.write_text(text)
    assert main(["resilience", "plan", str(file)]) == 2
    assert words in capsys.readouterr().err
