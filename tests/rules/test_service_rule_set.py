from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.rules.mesh.rule import Semantics
from sluicegate.rules.problems import BadRules
from sluicegate.rules.service_rule_set import ServiceRuleSet, find_files
from tests.rules.resources.stories import native, rule

OURS = """
version: 1
rules:
  - rule_id: play
    resource_path: /play
    limit: 5
    window_seconds: 60
"""
THEIRS = """
domain: web
descriptors:
  - key: path
    value: /login
    rate_limit: {unit: minute, requests_per_unit: 5}
"""
TOML = "version = 1\n[[rules]]\nrule_id = 'toml'\nlimit = 7\nwindow = '1h'\n"
LIMITS = "version: 1\nlimits:\n  all: {limit: 10/second, key: address}\n"


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def names(book: ServiceRuleSet) -> list[str]:
    return [file.name for file in book.files]


def test_a_folder_of_both_formats_is_one_book(tmp_path: Path) -> None:
    write(tmp_path, a__yaml=OURS, b__yml=THEIRS, c__toml=TOML)
    book = ServiceRuleSet.load([tmp_path])
    assert [(file.name, file.format, file.rules) for file in book.files] == [
        ("a.yaml", "native", 1), ("b.yml", "envoy", 1), ("c.toml", "native", 1),
    ]  # fmt: skip
    assert (len(book), len(book.resources), len(book.mesh)) == (3, 2, 1)
    (play,) = book.resources.find("/play", "", Criticality.BULK)
    assert play.kind.shared_id in book.rules
    assert book.mesh.find("web", [("path", "/login")]) is not None
    assert len(book.rules) == 3


def test_the_mesh_counts_as_its_semantics_say(tmp_path: Path) -> None:
    write(tmp_path, b__yaml=THEIRS)
    books = [
        ServiceRuleSet.load([tmp_path], semantics=word) for word in ("envoy", Semantics.SLUICEGATE)
    ]
    assert books[0].rules.keys() != books[1].rules.keys()
    with pytest.raises(ValueError, match="sideways"):
        ServiceRuleSet.load([tmp_path], semantics="sideways")


def test_only_rules_files_are_looked_for_and_in_the_order_of_their_names(tmp_path: Path) -> None:
    write(tmp_path, b__yaml=OURS, README__md="no", notes__txt="no", a__yaml__bak="no", c__json="{}")
    for left_over in (".b.yaml.swp", "b.yaml~", "#b.yaml#", ".#b.yaml", "~b.yaml"):
        (tmp_path / left_over).write_text("no")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.YAML").write_text(THEIRS)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "x.yaml").write_text("no")
    assert names(ServiceRuleSet.load([tmp_path])) == ["b.yaml", "sub/a.YAML"]


def test_a_config_map_is_read_once_through_its_links(tmp_path: Path) -> None:
    real = tmp_path / "..2024_01"
    write(real, rules__yaml=OURS)
    (tmp_path / "..data").symlink_to(real.name)
    (tmp_path / "rules.yaml").symlink_to("..data/rules.yaml")
    assert names(ServiceRuleSet.load([tmp_path])) == ["rules.yaml"]


def test_a_folder_within_itself_comes_to_an_end(tmp_path: Path) -> None:
    write(tmp_path, a__yaml=THEIRS)
    (tmp_path / "loop").symlink_to(tmp_path)
    assert len(find_files([tmp_path])) == 9
    with pytest.raises(BadValue, match="files_max"):
        find_files([tmp_path], files_max=3)


def test_files_and_folders_may_be_named_several_and_twice(tmp_path: Path) -> None:
    write(tmp_path, a__yaml=OURS)
    other = write(tmp_path / "more", b__yaml=THEIRS)
    book = ServiceRuleSet.load([tmp_path / "a.yaml", os.fspath(other), other / "b.yaml"])
    assert names(book) == ["a.yaml", "b.yaml"]


def test_a_version_is_of_names_and_contents(tmp_path: Path) -> None:
    one = ServiceRuleSet.load([write(tmp_path / "one", a__yaml=OURS)])
    same = ServiceRuleSet.load([write(tmp_path / "two", a__yaml=OURS)])
    named = ServiceRuleSet.load([write(tmp_path / "three", b__yaml=OURS)])
    fourth = ServiceRuleSet.load([write(tmp_path / "four", a__yaml=OURS + "\n")])
    assert one.version == same.version
    assert len({one.version, named.version, fourth.version}) == 3
    assert len(one.version) == 12


def test_what_is_not_there_or_empty_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="put a rules file there"):
        ServiceRuleSet.load([tmp_path])
    with pytest.raises(BadValue, match="at least one"):
        ServiceRuleSet.load([])
    with pytest.raises(Unavailable, match=r"no\.yaml"):
        ServiceRuleSet.load([tmp_path / "no.yaml"])
    write(tmp_path, a__txt="a: 1")
    with pytest.raises(BadValue, match="name it with"):
        ServiceRuleSet.load([tmp_path / "a.txt"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LIMITS, "sluicegate rules convert"),
        (
            "version: 1\nrules:\n  a: {limit: 5, window: 1s}\n  b: {key: user, limit: 5/s}\n",
            "line 4: rules.b: 'b' cannot be used; a rule with `match` or `key` is for an",
        ),
        (
            "version: 1\nrules:\n- {rule_id: a, limit: 5, window: 1s}\n- {rule_id: b, key: user}\n",
            "line 4: rules[1].limit",
        ),
        ("version: 1\nrules:\n  a: {limit: 0, window: 1s}\n", "line 3: rules.a.limit"),
        ("a: 1", "say `version: 1` and `rules:`"),
        ("", "say `version: 1` and `rules:`"),
        ("- 1", "say `version: 1` and `rules:`"),
        ("{", "not YAML"),
        ("version: 1\nrules:\n  - limit: 5\n    window: 1s\n", "line 3: rules[0].rule_id"),
        (
            "version: 1\nrules:\n  - rule_id: a\n    limit: 0\n    window: 1s",
            "line 4: rules[0].limit",
        ),
        ("domain: web\ndescriptors:\n  - value: x\n", "line 3"),
    ],
)
def test_what_is_wrong_with_a_file_is_told_with_its_line(
    tmp_path: Path, text: str, message: str
) -> None:
    write(tmp_path, a__yaml=text)
    with pytest.raises(BadRules) as caught:
        ServiceRuleSet.load([tmp_path])
    assert message in str(caught.value)
    assert caught.value.source == str(tmp_path / "a.yaml")


def test_what_is_wrong_between_files_is_told_of_the_later_one(tmp_path: Path) -> None:
    write(tmp_path, a__yaml=OURS, b__yaml="\n" + OURS)
    with pytest.raises(BadRules) as caught:
        ServiceRuleSet.load([tmp_path])
    assert caught.value.source == str(tmp_path / "b.yaml")
    assert [problem.line for problem in caught.value.problems] == [5, 5]
    write(tmp_path, a__yaml=THEIRS, b__yaml=THEIRS)
    with pytest.raises(BadRules, match="another file has it"):
        ServiceRuleSet.load([tmp_path])
    assert len(ServiceRuleSet.load([write(tmp_path, b__yaml=TWO)], merge_domains=True)) == 2


TWO = THEIRS.replace("/login", "/logout")


def test_all_bounds_hold_for_all_files_together(tmp_path: Path) -> None:
    files = {f"{n}__yaml": json.dumps(native(rule(f"r{n}", f"/{n}", n + 1))) for n in range(3)}
    write(tmp_path, **files)
    assert len(ServiceRuleSet.load([tmp_path], rules_max=3, shared_limits_max=3)) == 3
    for bound in ("rules_max", "shared_limits_max", "files_max"):
        bounds: dict[str, int] = {bound: 2}
        with pytest.raises(BadValue, match=bound):
            ServiceRuleSet.load([tmp_path], **bounds)  # type: ignore[arg-type]
    with pytest.raises(BadRules, match="larger than 10 bytes"):
        ServiceRuleSet.load([tmp_path], file_bytes_max=10)


def test_json_is_read_as_what_it_is_and_its_mistakes_have_lines(tmp_path: Path) -> None:
    value = native(*[rule(f"r{n}", f"/{n}") for n in range(5)])
    write(tmp_path, a__yaml=json.dumps(value, indent=1))
    assert len(ServiceRuleSet.load([tmp_path]).resources) == 5
    wrong = native(rule("a"), rule("b", limit=0))
    write(tmp_path, a__yaml=json.dumps(wrong, indent=1))
    with pytest.raises(BadRules, match=r"line 11: rules\[1\].limit"):
        ServiceRuleSet.load([tmp_path])


def test_json_that_says_a_thing_twice_or_goes_too_deep_is_refused(tmp_path: Path) -> None:
    write(tmp_path, a__yaml='{"version": 1, "rules": [], "rules": []}')
    with pytest.raises(BadRules, match="twice"):
        ServiceRuleSet.load([tmp_path])
    for depth in (100, *range(700, 1_000, 10), 100_000):
        deep = "[" * depth + "]" * depth
        write(tmp_path, a__yaml=f'{{"version": 1, "rules": [{{"rule_id": {deep}}}]}}')
        with pytest.raises(BadRules):
            ServiceRuleSet.load([tmp_path])
    write(tmp_path, a__yaml='{"version": 1, "rules": [{"rule_id": "a", "limit": NaN}]}')
    with pytest.raises(BadRules, match=r"rules\[0\].limit"):
        ServiceRuleSet.load([tmp_path])


def test_json_with_more_values_than_yaml_may_have_is_told_without_lines(tmp_path: Path) -> None:
    value = native(*[rule(f"r{n}", f"/{n}") for n in range(30_000)], rule("bad", limit=0))
    write(tmp_path, a__yaml=json.dumps(value))
    with pytest.raises(BadRules, match=r"a.yaml: rules\[30000\].limit"):
        ServiceRuleSet.load([tmp_path])


def test_a_reload_reads_what_has_changed_and_keeps_the_rest(tmp_path: Path) -> None:
    write(tmp_path, a__yaml=OURS, b__yaml=THEIRS)
    before = ServiceRuleSet.load([tmp_path])
    write(tmp_path, b__yaml=TWO, c__toml=TOML)
    after = ServiceRuleSet.load([tmp_path], before=before)
    (old,) = before.resources.find("/play", "", Criticality.BULK)
    (rule_after,) = after.resources.find("/play", "", Criticality.BULK)
    assert old is rule_after
    assert after.mesh.find("web", [("path", "/logout")]) is not None
    assert before.mesh.find("web", [("path", "/logout")]) is None
    fresh = ServiceRuleSet.load([tmp_path], before=before, semantics="envoy")
    (read,) = fresh.resources.find("/play", "", Criticality.BULK)
    assert read is not rule_after


def test_a_limiter_knows_the_limits_of_two_generations(tmp_path: Path) -> None:
    before = ServiceRuleSet.load([write(tmp_path, a__yaml=OURS)])
    after = ServiceRuleSet.load([write(tmp_path / "x", b__toml=TOML)])
    assert after.rules_beside(before).keys() == before.rules.keys() | after.rules.keys()
    assert after.rules_beside(None) == after.rules
