"""What the guide and the example folder say are rules."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.rules.parser import TOP
from sluicegate.rules.plain_values import read_text
from sluicegate.rules.resources.compiler import compile_rules
from sluicegate.rules.resources.rule_set import ResourceRuleSet
from sluicegate.rules.row_fields import FIELDS, TERMS
from sluicegate.rules.service_rule_set import ServiceRuleSet
from sluicegate.rules.table_fields import CALLERS, PRIORITIES
from tests.rules.resources.stories import native, parsed, rule

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "guides" / "limiter-rules.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(yaml|toml|python)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def book_of(value: object) -> ResourceRuleSet:
    wrong: list[object] = []
    book = compile_rules([parsed(value)[0]], lambda *problem: wrong.append(problem))
    assert wrong == []
    return book


@pytest.mark.parametrize("form", ["yaml", "toml"])
def test_the_files_of_the_guide_can_be_used(form: str) -> None:
    texts = [text for kind, text in BLOCKS if kind == form]
    assert texts
    for text in texts:
        book_of(read_text(text, form=form, source="page").value)


def test_the_programs_of_the_guide_run() -> None:
    programs = [text for kind, text in BLOCKS if kind == "python"]
    assert programs
    namespace: dict[str, object] = {}
    for text in programs:
        exec(compile(text, "limiter-rules.md", "exec"), namespace)


def test_the_guide_names_every_field() -> None:
    for field in {*FIELDS, *TERMS, *TOP, *PRIORITIES, *CALLERS} - {"version"}:
        assert f"`{field}`" in PAGE or f"`{field}:" in PAGE, field


def test_every_example_of_a_field_is_one() -> None:
    rows = re.findall(r"^\| `([a-z_]+)` \| (`.*?`) \|", PAGE, re.MULTILINE)
    assert {name for name, _ in rows} == set(FIELDS)
    for name, examples in rows:
        for text in re.findall("`(.*?)`", examples):
            value = read_text(f"a: {text}", form="yaml", source="page").value
            assert isinstance(value, dict)
            document = {**rule("r", "/r", 100), name: value["a"]}
            if name == "window":
                del document["window_seconds"]
            book_of(native(document))


def test_the_example_folder_is_a_book_of_both_formats() -> None:
    book = ServiceRuleSet.load([ROOT / "deploy" / "limiter" / "rules"])
    assert [(file.format, file.rules > 0) for file in book.files] == [
        ("native", True),
        ("envoy", True),
    ]
    found = book.resources.find("/login", "", Criticality.DEGRADED)
    assert [one.rule_id for one in found] == ["login-minute", "login-day"]
    (play,) = book.resources.find("/api/v1/playback", "ANDROID_MOBILE", Criticality.CRITICAL)
    assert (play.rule_id, play.kind.units) == ("playback-android", 6_000)
    assert book.mesh.find("edge", [("remote_address", "10.0.0.1")]) is not None
