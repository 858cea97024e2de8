"""The rules in the guide are rules."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sluicegate.rules.match_fields import MATCH, MATCH_FIELDS
from sluicegate.rules.web.advice import advise
from sluicegate.rules.web.rule import Condition
from sluicegate.rules.web.rule_set import WebRuleSet

PAGE = (Path(__file__).parents[3] / "docs" / "guides" / "rules.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(yaml|toml|python)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("form", ["yaml", "toml"])
def test_the_files_of_the_guide_can_be_used(form: str) -> None:
    texts = [text for kind, text in BLOCKS if kind == form]
    assert texts
    for text in texts:
        assert advise(WebRuleSet.parse(text, form=form)) == []


def test_the_programs_of_the_guide_run() -> None:
    programs = [text for kind, text in BLOCKS if kind == "python"]
    assert programs
    namespace: dict[str, object] = {}
    for text in programs:
        exec(compile(text, "rules.md", "exec"), namespace)


def test_the_guide_names_every_field() -> None:
    for field in {*MATCH_FIELDS, *MATCH}:
        assert f"`{field}`" in PAGE or f"`{field}:" in PAGE, field


def test_conditions_say_themselves_in_words() -> None:
    assert str(Condition("user", False)) == "without a user"
    assert str(Condition("address", ("10.0.0.0/8", "::1"))) == "from 10.0.0.0/8 or ::1"
    assert str(Condition("header:x-a", True)) == "with header x-a"
