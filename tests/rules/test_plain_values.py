from __future__ import annotations

import pickle
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.rules.plain_values import DEPTH_MAX, form_of, read_bytes, read_text
from sluicegate.rules.problems import PROBLEMS_MAX, BadRules, Problem, Problems


def yaml(text: str) -> object:
    return read_text(text, form="yaml", source="rules.yaml").value


def refused(text: str | bytes, form: str = "yaml") -> BadRules:
    with pytest.raises(BadRules) as caught:
        read_text(text, form=form, source=f"rules.{form}")
    return caught.value


def test_words_mean_what_they_say() -> None:
    assert yaml("[off, on, no, yes, y, n, Off]") == ["off", "on", "no", "yes", "y", "n", "Off"]
    assert yaml("[true, false, null, ~, '', 'true']") == [True, False, None, None, "", "true"]
    assert yaml("[1, -2, 0, 010, 1:30, 0x1f, 1_000]") == [1, -2, 0, "010", "1:30", "0x1f", "1_000"]
    assert yaml("[0.5, 1e3, 2026-01-01, .inf, 5/minute]") == [
        0.5,
        "1e3",
        "2026-01-01",
        ".inf",
        "5/minute",
    ]
    assert yaml("a:\nb: 'off'") == {"a": None, "b": "off"}
    assert yaml("") is None
    assert yaml("9" * 5_000) == "9" * 5_000


def test_both_forms_say_the_same() -> None:
    toml = read_text("[limits.login]\nlimit = '5/minute'\nkeys = ['a']", form="toml", source="x")
    assert toml.value == yaml("limits: {login: {limit: 5/minute, keys: [a]}}")


def test_aliases_and_merges_are_followed() -> None:
    text = """
    base: &base {failure: closed, limit: 5/s}
    more: &more {limit: 7/s, stop: true}
    one: {limit: 9/s, <<: *base}
    two: {<<: [*base, *more]}
    same: *base
    quoted: {'<<': 1}
    """
    value = yaml(text)
    assert isinstance(value, dict)
    assert value["one"] == {"limit": "9/s", "failure": "closed"}
    assert value["two"] == {"limit": "5/s", "stop": True, "failure": "closed"}
    assert value["same"] == value["base"]
    assert value["quoted"] == {"<<": 1}


def test_what_aliases_unfold_to_is_bounded() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    error = refused("\n".join(lines))
    assert "unfolds to more than 100,000 values" in str(error)
    assert error.problems[0].line in (4, 5)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb: [1, 2\nc: 3", 3, "this is not YAML"),
        ("limits:\n\ta: 1", 2, "indent with spaces, not tabs"),
        ("a: 1\nm: {path: /users/{id}}", 2, "put a path with {braces} in quotes"),
        ("a: 1\na: 2", 2, "'a' stands here twice"),
        ("a: *nobody", 1, "nothing before it is marked &nobody"),
        ("a: &a [*a]", 1, "nothing before it is marked &a"),
        ("a: !!python/object:os.system x", 1, "tags are not used here"),
        ("a: !mine {b: 1}", 1, "tags are not used here"),
        ("a: !!set [b]", 1, "tags are not used here"),
        ("a: 1\n---\nb: 1", 2, "keep to one document"),
        ("? [a]\n: b", 1, "a field's name is a text"),
        ("a: {<<: 3}", 1, "'<<' merges mappings"),
        ("[" * 17 + "]" * 17, 1, "nested deeper than 16"),
        ("[" * 100_000, 1, "nested deeper than 16"),
        ("a: \x01", 0, "this is not YAML"),
    ],
)
def test_what_is_wrong_with_yaml_is_told_with_its_line(text: str, line: int, words: str) -> None:
    error = refused(text)
    assert words in str(error)
    assert str(error).startswith("rules.yaml: ")
    if line:
        assert error.problems[0].line == line
        assert f"line {line}: " in str(error)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a = 1\nb = = 2", 2, "this is not TOML"),
        ("a = 1\na = 2", 2, "this is not TOML"),
        ("a = 1\n\nb = [", 3, "this is not TOML"),
        ("a = " + "9" * 5_000, 0, "not TOML that can be read"),
        ("a = " + "[" * 5_000, 0, "this is not TOML"),
    ],
)
def test_what_is_wrong_with_toml_is_told_with_its_line(text: str, line: int, words: str) -> None:
    error = refused(text, "toml")
    assert words in str(error)
    assert error.problems[0].line == line


def test_a_file_must_be_utf8_and_may_have_a_mark() -> None:
    error = refused(b"a: 1\nb: \xff")
    assert "line 2: this is not UTF-8" in str(error)
    assert read_text(b"\xef\xbb\xbfa: 1", form="yaml", source="x").value == {"a": 1}
    assert read_text(b"\xef\xbb\xbfa = 1", form="toml", source="x").value == {"a": 1}


def test_without_pyyaml_the_error_has_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(Unavailable, match=r"pip install '\.\[rules\]'.*as TOML"):
        yaml("a: 1")
    assert read_text("a = 1", form="toml", source="x").value == {"a": 1}


def test_the_parser_written_in_python_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    import yaml as pyyaml

    monkeypatch.delattr(pyyaml, "CSafeLoader", raising=False)
    test_aliases_and_merges_are_followed()
    test_words_mean_what_they_say()
    assert "nested deeper than 16" in str(refused("[" * 100_000))
    assert "tags are not used" in str(refused("a: !!python/object:os.system x"))


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_bytes(b"x" * 100)
    assert len(read_bytes(file, 100)) == 100
    with pytest.raises(BadRules, match="larger than 99 bytes"):
        read_bytes(file, 99)
    with pytest.raises(Unavailable, match="No such file"):
        read_bytes(tmp_path / "nope.yaml")
    with pytest.raises(Unavailable, match="directory"):
        read_bytes(tmp_path)
    with pytest.raises(Unavailable):
        read_bytes("a\0b.yaml")


def test_the_form_goes_by_the_name() -> None:
    assert [form_of(name) for name in ("a.yaml", "b.YML", "c.toml")] == ["yaml", "yaml", "toml"]
    with pytest.raises(BadValue, match=r"\.yaml, \.yml, \.toml at the end"):
        form_of("rules.json")
    with pytest.raises(BadValue, match="give yaml or toml"):
        read_text("", form="json", source="x")


def test_problems_are_told_together_and_bounded() -> None:
    problems = Problems("rules.yaml", {("limits", "a"): 7})
    problems.raise_if_any()
    for place in range(PROBLEMS_MAX + 3):
        problems.add(("limits", "a", "limit", place), place, "mend it")
    assert len(problems) == PROBLEMS_MAX + 3
    with pytest.raises(BadRules) as caught:
        problems.raise_if_any()
    error = caught.value
    assert len(error.problems) == PROBLEMS_MAX
    assert error.more == 3
    lines = str(error).splitlines()
    assert lines[0] == "rules.yaml has 53 problems"
    assert lines[1] == "  line 7: limits.a.limit[0]: 0 cannot be used; mend it"
    assert lines[-1] == "  and 3 more"


def test_errors_cross_processes() -> None:
    error = BadRules("x", [Problem("a.b", 1, "mend it", 4)], 2)
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert again.problems[0].line == 4


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**17), 10**17) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=20,
)


def depth(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(depth, inner), default=0)


@given(plain)
def test_what_pyyaml_writes_is_read_back(value: object) -> None:
    import yaml as pyyaml

    text = pyyaml.safe_dump(value)
    if depth(value) <= DEPTH_MAX:
        assert yaml(text) == value


marks = st.text(st.sampled_from("ab:-[]{},&*!|>'\"\n \t#?%@`<~0.\\\x00é\ud800"), max_size=60)


def outcome(read: Callable[[], object]) -> str:
    """Return the message of `BadRules`, or "read"."""
    try:
        read()
    except BadRules as error:
        return str(error)
    return "read"


@given(marks | st.text(max_size=60))
def test_random_yaml_is_read_or_refused(text: str) -> None:
    assert outcome(lambda: yaml(text))


@given(st.text(st.sampled_from("ab=[]{},.'\"\n\t#0-:TZ_\\\x00é"), max_size=60) | st.text())
def test_random_toml_is_read_or_refused(text: str) -> None:
    if outcome(lambda: read_text(text, form="toml", source="x")) == "read":
        assert read_text(text, form="toml", source="x").value == tomllib.loads(text)


@given(st.binary(max_size=60), st.sampled_from(["yaml", "toml"]))
def test_random_bytes_are_read_or_refused(data: bytes, form: str) -> None:
    assert outcome(lambda: read_text(data, form=form, source="x"))
