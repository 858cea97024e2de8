"""Quotas are changed in place: the same file, with exactly these, to the byte."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue
from sluicegate.rules import quota_edit as editing
from sluicegate.rules.plain_values import read_yaml
from sluicegate.rules.quota_edit import quotas_in, with_quotas

FILE = "callers.yaml"
RULES = """\
# Who may ask for how much.
version: 1

callers:          # all of them
  names: {shop: CRITICAL}
  quotas:
    # the shop has grown
    shop: 100/s   # by hand
    "app two": "50/s"
    'x''y':   6000/m

    # nobody knows
    last: 7/s
  # behind the quotas
  pins: [shop]

rules: []  # none yet
"""


def parsed(text: str) -> object:
    return read_yaml(text, FILE)[0]


def test_only_what_changes_is_changed() -> None:
    changed = with_quotas(RULES, {"shop": 130, "app two": 60, "x'y": 7}, FILE)
    assert changed == RULES.replace(" 100/s ", " 130/s ").replace('"50/s"', '"60/s"').replace(
        "6000/m", "7/s"
    )


def test_who_had_none_comes_after_the_others() -> None:
    changed = with_quotas(RULES, {"new": 1, "shop": 2, "a: b": 3}, FILE)
    expected = RULES.replace("shop: 100/s", "shop: 2/s").replace(
        "last: 7/s\n", 'last: 7/s\n    new: 1/s\n    "a: b": 3/s\n'
    )
    assert changed == expected


@pytest.mark.parametrize(
    "text", [RULES, "", "version: 1\n", "version: 1\ncallers:", "version: 1\ncallers: {}\n"]
)
def test_nothing_to_change_changes_nothing(text: str) -> None:
    assert with_quotas(text, {}, FILE) == text


def test_the_quotas_now_are_read_as_the_dispatcher_reads_them() -> None:
    text = RULES.replace("last: 7/s", "last: {limit: 90, window: 30s}\n    slow: 1/m")
    assert quotas_in(text, FILE) == {"shop": 100, "app two": 50, "x'y": 100, "last": 3, "slow": 1}
    assert quotas_in("", FILE) == {}
    assert quotas_in("version: 1\nrules: []\n", FILE) == {}


def test_toml_is_read_and_not_edited() -> None:
    text = 'version = 1\n[callers.quotas]\nshop = "5/s"\n'
    assert quotas_in(text, "callers.toml") == {"shop": 5}
    with pytest.raises(BadValue, match="only YAML is edited"):
        with_quotas(text, {"shop": 6}, "callers.toml")


def test_bad_rules_are_told_with_their_line() -> None:
    with pytest.raises(BadValue, match="line 4"):
        quotas_in("version: 1\ncallers:\n  quotas:\n    shop: 0/s\n", FILE)


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("", "version: 1\ncallers:\n  quotas:\n    a: 1/s\n"),
        ("# mine\n", "# mine\nversion: 1\ncallers:\n  quotas:\n    a: 1/s\n"),
        ("# mine", "# mine\nversion: 1\ncallers:\n  quotas:\n    a: 1/s\n"),
        ("version: 1\n", "version: 1\ncallers:\n  quotas:\n    a: 1/s\n"),
        ("version: 1\nrules: []", "version: 1\nrules: []\ncallers:\n  quotas:\n    a: 1/s"),
        ("version: 1\ncallers:\n", "version: 1\ncallers:\n  quotas:\n    a: 1/s\n"),
        (
            "version: 1\ncallers: # none\nrules: []\n",
            "version: 1\ncallers: # none\n  quotas:\n    a: 1/s\nrules: []\n",
        ),
        (
            "callers:\n   pins:\n   - b\n   # end\nversion: 1\n",
            "callers:\n   pins:\n   - b\n   quotas:\n     a: 1/s\n   # end\nversion: 1\n",
        ),
        (
            "version: 1\ncallers:\n  quotas:   # later\n  pins: [x]\n",
            "version: 1\ncallers:\n  quotas:   # later\n    a: 1/s\n  pins: [x]\n",
        ),
        (
            "version: 1\ncallers:\n  quotas:\n      b: 2/s",
            "version: 1\ncallers:\n  quotas:\n      b: 2/s\n      a: 1/s",
        ),
    ],
)
def test_what_a_quota_stands_under_is_made_if_need_be(text: str, changed: str) -> None:
    assert with_quotas(text, {"a": 1}, FILE) == changed


@pytest.mark.parametrize(
    "text",
    [
        "version: 1\ncallers: {quotas: {shop: 1/s}}\n",
        "version: 1\ncallers:\n  quotas: {shop: 1/s}\n",
        "version: 1\ncallers:\n  quotas: {}\n",
        "version: 1\ncallers:\n  quotas: ~\n",
        "version: 1\ncallers:\n  quotas:\n    shop: {limit: 1, window: 1s}\n",
        "version: 1\ncallers:\n  quotas:\n    shop:\n      limit: 1\n      window: 1s\n",
        "version: 1\ncallers:\n  quotas:\n    shop: &r 1/s\n    app: *r\n",
        "version: 1\ncallers:\n  quotas:\n    app: &r 1/s\n    shop: *r\n",
        "version: 1\ncallers:\n  quotas:\n    shop: !!str 1/s\n",
        "version: 1\ncallers:\n  quotas:\n    shop: |\n      1/s\n",
        "version: 1\ncallers:\n  quotas:\n    shop:\n",
        '{"version": 1, "rules": []}\n',
        '{"version": 1, "callers": {"quotas": {"shop": "1/s"}}}\n',
        "domain: edge\ndescriptors: [{key: user}]\n",
        "limits: []\n",
        "[1, 2]\n",
        "version: 1\nrules: []\n...\n",
        "version: 1\ndefaults: {burst_capacity: 2}\ncallers:\n  quotas:\n    shop: 1/s\n",
    ],
)
def test_what_is_written_otherwise_is_refused_in_a_line(text: str) -> None:
    with pytest.raises(BadValue) as error:
        with_quotas(text, {"shop": 5}, FILE)
    assert "\n" not in str(error.value)
    assert "KeyError" not in str(error.value)


def test_a_quota_as_a_mapping_is_no_hindrance_to_the_others() -> None:
    text = "version: 1\ncallers:\n  quotas:\n    shop: 1/s\n    odd: {limit: 4, window: 2s}\n"
    changed = with_quotas(text, {"shop": 2, "new": 3}, FILE)
    assert changed == text.replace("shop: 1/s", "shop: 2/s") + "    new: 3/s\n"


def test_tabs_are_told() -> None:
    with pytest.raises(BadValue, match="indent with spaces"):
        with_quotas("version: 1\ncallers:\n\tquotas:\n\t\tshop: 1/s\n", {"shop": 2}, FILE)
    # Where YAML allows them, they stay.
    text = "version: 1\ncallers:\n  quotas:\n    shop: 1/s\t# a tab\n"
    assert with_quotas(text, {"shop": 2}, FILE) == text.replace("1/s", "2/s")


def test_the_ends_of_lines_and_the_mark_of_the_file_stay_as_they_are() -> None:
    text = "\ufeff" + RULES.replace("\n", "\r\n")
    changed = with_quotas(text, {"shop": 130, "new": 1}, FILE)
    assert changed.startswith("\ufeff#")
    assert not re.search(r"(?<!\r)\n", changed)
    assert changed.replace("\r\n    new: 1/s", "").replace("130/s", "100/s") == text


def test_what_does_not_say_what_it_said_is_not_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    right = editing._changes

    def wrong(text: str, quotas: dict[str, int], source: str) -> list[editing._Change]:
        at = text.index("pins: [shop]")
        return [*right(text, quotas, source), editing._Change(at + 7, at + 11, "another")]

    monkeypatch.setattr(editing, "_changes", wrong)
    with pytest.raises(BadValue, match="cannot be changed safely"):
        with_quotas(RULES, {"shop": 130}, FILE)


# Any file.

TEXTS = st.text(
    st.characters(codec="utf-8", exclude_categories=["C", "Zl", "Zp"]), min_size=1, max_size=8
).filter(str.isprintable)
NAMES = st.one_of(
    TEXTS,
    st.sampled_from(
        ["true", "null", "~", "1", "1.5", "-", "- a", "#x", "a #b", "a: b", "a:", "'", '"', "\\",
         "\\n", "?", "? x", "&a", "*a", "!a", "<<", "{", "[x]", "|", ">", "%", "@", "`", " ", " a ",
         "a\tb", "tom@example.org", "spiffe://prod/ns/shop", "Größe 日本", "🙂", "---", "...",
         "\x07", "quotas", "callers", "version", "a,b", "=", "x" * 256]
    ),
)  # fmt: skip
COMMENTS = st.sampled_from(["", "  # why", " # 100/s: #", "\t# tab", "   "])
BETWEEN = st.sampled_from(["", "\n", "    # a line\n", "# at the left\n", "\n  # two\n\n"])
RATES = st.tuples(st.integers(1, 10**6), st.sampled_from(["/s", "/m", "/30s", "/1h"]))


def quoted(name: str) -> str:
    """One way to write any name; another than the one under test."""
    if name.isprintable() and "'" not in name:
        return f"'{name}'"
    return '"' + "".join(f"\\U{ord(one):08X}" for one in name) + '"'


@st.composite
def files(draw: st.DrawFn) -> tuple[str, dict[str, str]]:
    """A rules file in block YAML, and its quotas as they are written."""
    rates: dict[str, tuple[int, str]] = draw(st.dictionaries(NAMES, RATES, max_size=6))
    quotas = {name: f"{count}{per}" for name, (count, per) in rates.items()}
    lines = [draw(BETWEEN), "version: 1\n", draw(BETWEEN), f"callers:{draw(COMMENTS)}\n"]
    before, after, empty = draw(st.booleans()), draw(st.booleans()), draw(st.booleans())
    if before or not quotas:
        lines += [draw(BETWEEN), "  pins:\n  - 'vip'\n  - b\n"]
    if quotas or empty:
        lines += [draw(BETWEEN), f"  quotas:{draw(COMMENTS)}\n"]
    for name, rate in quotas.items():
        quote = draw(st.sampled_from(["", "'", '"']))
        lines += [draw(BETWEEN), f"    {quoted(name)}: {quote}{rate}{quote}{draw(COMMENTS)}\n"]
    lines.append(draw(BETWEEN))
    if after:
        lines += ["  strangers: BULK\n", draw(BETWEEN), "rules: []\n"]
    text = "".join(lines)
    if draw(st.booleans()):
        text = text.rstrip("\n")
    if draw(st.booleans()):
        text = text.replace("\n", "\r\n")
    return text, quotas


@settings(max_examples=60, deadline=None)
@given(files(), st.dictionaries(NAMES, st.integers(1, 10**9), max_size=5), st.data())
def test_any_file_says_what_it_said_with_exactly_these_quotas(
    file: tuple[str, dict[str, str]], new: dict[str, int], data: st.DataObject
) -> None:
    text, quotas = file
    some = data.draw(st.sets(st.sampled_from(sorted(quotas)))) if quotas else set()
    changes = {**dict.fromkeys(some, 12_345), **new}
    assume(changes)
    changed = with_quotas(text, changes, FILE)
    was, now = parsed(text), parsed(changed)
    assert isinstance(was, dict)
    expected = {**quotas, **{name: f"{ru}/s" for name, ru in changes.items()}}
    assert now == {**was, "callers": {**(was["callers"] or {}), "quotas": expected}}
    assert {name: quotas_in(changed, FILE)[name] for name in changes} == changes
    # Every old line is there, in its order; only the rates of those that changed are others.
    lines = iter(changed.splitlines(keepends=True))
    for line in text.splitlines(keepends=True):
        wanted_line = line
        for name in quotas.keys() & changes.keys():
            begin = f"    {quoted(name)}: "
            if line.startswith(begin):
                rest = line[len(begin) :].replace(quotas[name], f"{changes[name]}/s", 1)
                wanted_line = begin + rest
        assert any(one == wanted_line or one.rstrip("\r\n") == wanted_line for one in lines), line


@settings(max_examples=60, deadline=None)
@given(NAMES)
def test_any_name_can_be_given_a_quota(name: str) -> None:
    changed = with_quotas("version: 1\nrules: []\n", {name: 3}, FILE)
    assert quotas_in(changed, FILE) == {name: 3}
    assert with_quotas(changed, {name: 4}, FILE) == changed[: -len("3/s\n")] + "4/s\n"


@settings(max_examples=60, deadline=None)
@given(st.text(st.sampled_from("ab:{}[] \n'\"#&*!|>-,?/s1"), max_size=60))
@example("a:")  # nothing behind the name, and nothing behind that
@example("a: 5/s")
@example("a: \n    b: 5/s\n")
def test_any_text_is_edited_rightly_or_refused(text: str) -> None:
    text = "version: 1\ncallers:\n  quotas:\n    " + text
    try:
        changed = with_quotas(text, {"a": 77}, FILE)
    except BadValue:
        return
    was, now = parsed(text), parsed(changed)
    assert isinstance(was, dict)
    quotas = {**(was["callers"]["quotas"] or {}), "a": "77/s"}
    assert now == {**was, "callers": {**was["callers"], "quotas": quotas}}
