from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate import cli
from sluicegate.contracts.errors import BadValue
from sluicegate.rules.old_format import convert
from sluicegate.rules.problems import BadRules
from sluicegate.rules.web.rule_set import WebRuleSet
from tests.rules.web.arrivals import PlainArrival
from tests.rules.web.plain_reading import PlainReading, arrivals, rules_with

OLD = """\
# What is limited.
version: 1
defaults: {failure: closed}
limits:
  health:                       # never limited
    match: {path: /health}
    exempt: true
  users:
    match: {path: [/users/*, "/users/{any}/*/x/**"], method: GET}
    key: [address, path.any]
    limit: 5/minute; 100/hour
"""


by_segment = st.sampled_from([("/{id}/*", "id"), ("/*/{id}", "id"), ("/{any}", "any")]).map(
    lambda one: {"match": {"path": one[0]}, "key": f"path.{one[1]}", "limit": "5/s"}
)
PATHS: list[str | list[str]] = [
    "/a", "/a/**", "/*", "/*/b", "/a/*", "/*/*", "/**", ["/a", "/*/b"], "/*/*/**",
]  # fmt: skip


@settings(max_examples=150)
@given(
    st.lists(st.one_of(rules_with(PATHS), by_segment), min_size=1, max_size=8),
    st.sampled_from([None, "everyone", "skip"]),
    st.booleans(),
    st.booleans(),
    st.lists(arrivals, min_size=1, max_size=8),
)
def test_converted_file_decides_as_the_old_one_did(
    written: list[dict[str, Any]],
    or_key: str | None,
    listed: bool,
    flow: bool,
    came: list[PlainArrival],
) -> None:
    limits = (
        [{"name": f"r{at}", **rule} for at, rule in enumerate(written)]
        if listed
        else {f"r{at}": rule for at, rule in enumerate(written)}
    )
    document: dict[str, Any] = {"version": 1, "limits": limits}
    if or_key is not None:
        document["defaults"] = {"or_key": or_key}
    text = "# kept\n" + yaml.safe_dump(document, sort_keys=False, default_flow_style=flow)
    after = convert(text, "old.yaml", "new.yaml")
    assert after.startswith("# kept\n")
    book, old = WebRuleSet.parse(after), PlainReading(document)
    for one in came:
        assert [(it.rule, it.key, it.cost) for it in book.claims(one)] == old.claims(one)


def test_comments_order_and_quotes_stay() -> None:
    after = convert(OLD, "limits.yaml", "rules.yaml")
    assert after == OLD.replace("limits:", "rules:").replace(
        "/users/*, ", '"/users/{any}", '
    ).replace("/users/{any}/*/x/**", "/users/{any}/{any2}/x/**")


def test_anchors_and_merged_fields_are_converted() -> None:
    text = (
        "version: 1\nlimits:\n  - &base {name: a, match: {path: /a/*}, key: user, limit: 1/s}\n"
        "  - {<<: *base, name: b}\n"
    )
    after = convert(text, "old.yml", "new.yaml")
    book = WebRuleSet.parse(after)
    assert [entry.rule_id for entry in book.entries] == ["a", "b"]
    assert {str(path) for entry in book.entries for path in entry.match.paths} == {"/a/{any}"}


@pytest.mark.parametrize(
    "text",
    [
        """version = 1
# who
[limits.a]
key = "user"
limit = "1/s"
[limits.a.match]
path = "/a/*"
""",
        """version = 1
[[limits]]
name = "a"
key = "user"
limit = "1/s"
match = {path = '/a/*', header = {name = "x"}}
""",
        'limits.a = {key = "user", limit = "1/s", match = {path = "/a/*"}} # who\nversion = 1\n',
    ],
)
def test_toml_stays_toml(text: str) -> None:
    if "header" in text:
        with pytest.raises(BadValue, match=r"name the new file with \.yaml"):
            convert(text, "old.toml", "new.toml")
        after, form = convert(text, "old.toml", "new.yaml"), "yaml"
    else:
        after, form = convert(text, "old.toml", "new.toml"), "toml"
        assert "# who" in after
    (entry,) = WebRuleSet.parse(after, form=form).entries
    assert (entry.rule_id, str(entry.match.paths[0])) == ("a", "/a/{any}")


def test_file_that_is_not_of_the_old_format_is_rejected() -> None:
    for text in ("version: 1\nrules: []\n", "domain: d\n", "[]", "version: 1\nlimits: 5\n"):
        with pytest.raises(BadValue, match="the old format"):
            convert(text, "old.yaml", "new.yaml")
    with pytest.raises(BadRules, match="fortnight"):
        convert(OLD.replace("5/minute", "5/fortnight"), "old.yaml", "new.yaml")


def test_command_prints_or_writes_and_never_overwrites(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text(OLD)
    assert cli.main(["rules", "convert", str(old)]) == 0
    assert capsys.readouterr().out == convert(OLD, "old.yaml", "old.yaml")
    assert cli.main(["rules", "convert", str(old), "-o", str(new)]) == 0
    assert cli.main(["limits", "check", str(new)]) == 0
    assert cli.main(["rules", "convert", str(old), "-o", str(new)]) == 2
    assert "there is such a file" in capsys.readouterr().err
    assert cli.main(["rules", "convert", str(tmp_path / "none.yaml")]) == 1
    assert cli.main(["limits", "check", str(old)]) == 1
    assert "sluicegate rules convert" in capsys.readouterr().out
    assert old.read_text() == OLD
