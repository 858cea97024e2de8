"""One odd name neither keeps the others' quotas from being written nor disturbs who reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sluicegate import cli
from sluicegate.apps.quota.names import LISTED_MAX, describe_unwritable, display_name, is_writable
from sluicegate.contracts.errors import SluicegateError
from sluicegate.rules.quota_edit import quotas_in, with_quotas
from sluicegate.rules.row_fields import TEXT_CHARS_MAX
from sluicegate.system import now_us
from sluicegate.telemetry.usage_files import DAY_MINUTES, MINUTE_US
from tests.apps.quota.months import DAYS, folders, write_month

RULES = "version: 1\ncallers:\n  quotas:\n    shop: 100/s\n"
TUNED = "version: 1\ncallers:\n  quotas:\n    shop: 650/s\n    steady: 130/s\n"
ODD = {
    "x\u202e<b>": "x\\u202e<b>",
    "\ud800": "\\ud800",
    "y" * 300: "y" * TEXT_CHARS_MAX + "... (300 characters)",
    "": "(no name)",
}
NAMES = st.text(st.characters(categories=("L", "N", "P", "Zs", "C")), max_size=12)


@pytest.fixture
def usage(tmp_path: Path) -> list[str]:
    """A month of usage up to yesterday, by two callers and by some odd ones."""
    rates = {"shop": 500, "steady": 100, **dict.fromkeys(ODD, 50)}
    today = now_us() // MINUTE_US // DAY_MINUTES
    curves = {name: (lambda day, hour, ru=ru: ru) for name, ru in rates.items()}
    write_month(tmp_path / "usage", curves, first_day=today - DAYS)
    return [word for folder in folders(tmp_path / "usage") for word in ("--usage", folder)]


def test_callers_that_no_rules_file_can_name_are_left_out_and_told(
    tmp_path: Path, usage: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    file, page = tmp_path / "callers.yaml", tmp_path / "quotas.html"
    file.write_text(RULES)
    words = ["quota", "tune", *usage, "--rules", str(file), "--out", str(page)]
    assert cli.main([*words, "--write"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert file.read_text() == TUNED
    assert f"{file} is changed: 2 quotas" in out
    assert "left out, for no rules file can name them: 4 callers" in out
    assert "has 1 to 256 characters" in out
    lines = out.splitlines()
    for text in ODD.values():
        assert f"  {text}" in lines
    assert all(line.isprintable() for line in lines)
    assert any(line.startswith("x\\u202e<b> ") and " -> 65 " in line for line in lines)
    html = page.read_text(encoding="utf-8")
    assert "x\\u202e&lt;b&gt;" in html
    assert "\u202e" not in html
    assert "<b>" not in html
    # Nothing is left to write; who cannot be named is told all the same.
    assert cli.main([*words, "--write"]) == 0
    out, _ = capsys.readouterr()
    assert out.splitlines()[-1] == "no quota would change"
    assert "  x\\u202e<b>" in out.splitlines()
    assert file.read_text() == TUNED


def test_they_are_left_out_of_a_proposal_too(
    tmp_path: Path, usage: list[str], capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("rules").mkdir()
    Path("rules/callers.yaml").write_text(RULES)
    assert cli.main(["rules", "init", "book", "--rules", "rules/", "--alone"]) == 0
    capsys.readouterr()
    words = ["quota", "tune", *usage, "--file", "book", "--under", "callers.yaml"]
    assert cli.main(words) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "Tune 2 quotas by 30 days of usage" in out
    assert "left out, for no rules file can name them: 4 callers" in out


@settings(deadline=None)
@given(NAMES)
@example("\ue000")
@example("a\u200bb")
@example("a\u3000b")
@example("a\x00b")
@example("a\x7fb")
@example("a\x85b")
@example("\ufeff")
@example("\ud800")
@example("é" * TEXT_CHARS_MAX)
@example("é" * (TEXT_CHARS_MAX + 1))
@example("")
def test_a_name_can_be_written_if_and_only_if_a_rules_file_takes_it(name: str) -> None:
    try:
        taken = quotas_in(with_quotas("version: 1\n", {name: 3}, "a.yaml"), "a.yaml") == {name: 3}
    except SluicegateError:
        taken = False
    assert is_writable(name) == taken


@given(NAMES)
@example("x\nshop  100 -> 1  ")
def test_a_name_is_shown_on_a_line_and_as_it_is_where_that_can_be_seen(name: str) -> None:
    text = display_name(name)
    assert text.isprintable()
    text.encode()
    if name.isprintable():
        assert text == name


def test_of_many_some_are_named() -> None:
    names = [f"{at}\u202e" for at in range(LISTED_MAX + 1)]
    assert "more" not in describe_unwritable(names[1:])
    lines = describe_unwritable(names).splitlines()
    assert lines[0] == "left out, for no rules file can name them: 21 callers"
    assert lines[1 : LISTED_MAX + 1] == [f"  {at}\\u202e" for at in range(LISTED_MAX)]
    assert lines[LISTED_MAX + 1] == "  and 1 more caller"
