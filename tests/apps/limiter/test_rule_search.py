"""GET /v1/rules finds rules by letters, page by page, in files and in snapshots."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sluicegate.apps.limiter.rule_search import _search
from sluicegate.rules.service_rule_set import ServiceRuleSet
from sluicegate.rules.snapshot.book import book_of
from sluicegate.rules.snapshot.snapshot import compile_snapshot
from tests.apps.limiter.process import LimiterProcess, rules_file

RULES = "version: 1\nrules:\n" + "".join(
    f"  - {{rule_id: rule-{n}, resource_path: /shop/{n % 50}/item-{n}, limit: {n + 1}, "
    "window: 1m}\n"
    for n in range(2_500)
)
NUMBERS = range(2_500)


def all_found(book: ServiceRuleSet, needle: str, count: int) -> list[str]:
    """What all pages of a search have, each of at most `count` rules."""
    names: list[str] = []
    after: int | None = 0
    while after is not None:
        rules, after = asyncio.run(_search(book, needle, after, count))
        assert len(rules) <= count
        names += [rule.rule_id for rule in rules]
    return names


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ServiceRuleSet]:
    path = rules_file(tmp_path_factory.mktemp("search"), RULES)
    return {
        "files": ServiceRuleSet.load([path]),
        "snapshot": book_of(compile_snapshot({"rules.yaml": RULES.encode()}), version="1"),
    }


@pytest.mark.parametrize("source", ["files", "snapshot"])
@pytest.mark.parametrize("count", [1, 7, 200])
def test_pages_together_have_each_rule_with_the_letters_once(
    books: dict[str, ServiceRuleSet], source: str, count: int
) -> None:
    for needle in ("rule-24", "/shop/7/", "item-1999", "nothing"):
        expected = [
            f"rule-{n}"
            for n in NUMBERS
            if needle in f"rule-{n}" or needle in f"/shop/{n % 50}/item-{n}"
        ]
        assert sorted(all_found(books[source], needle, count)) == sorted(expected), needle
    if count == 200:
        assert len({*all_found(books[source], "", count)}) == 2_500


def test_a_limiter_answers_with_terms_and_counts(tmp_path: Path) -> None:
    with LimiterProcess(tmp_path, "--rules", rules_file(tmp_path, RULES)) as limiter:
        for _ in range(3):
            limiter.check("ann", "/shop/1/item-1")
        status, found = limiter.ask("/v1/rules?q=item-1&count=2")
        assert (status, found["of"], len(found["rules"])) == (200, 2_500, 2)
        first = found["rules"][0]
        assert (first["rule_id"], first["limit"], first["period_us"]) == ("rule-1", 2, 60_000_000)
        assert first["counts"]["allowed"] == 2
        assert first["counts"]["refused"] == 1
        status, found = limiter.ask(f"/v1/rules?q=item-1&count=2&after={found['next']}")
        assert found["rules"][0]["rule_id"] == "rule-11"
        status, found = limiter.ask("/v1/rules?name=rule-7")
        assert [one["limit"] for one in found["rules"]] == [8]
        assert limiter.ask("/v1/rules?name=none")[1]["rules"] == []
        for bad, field in (("count=0", "count"), ("after=x", "after"), ("q=" + "a" * 300, "q")):
            status, problem = limiter.ask(f"/v1/rules?{bad}")
            assert (status, problem["field"]) == (400, field)


MESH = """
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 2}
  - key: tenant
    value: acme
    descriptors:
      - {key: path, value: /api/*, rate_limit: {unit: hour, requests_per_unit: 50}}
  - {key: banned, rate_limit: {unit: second, requests_per_unit: 0}}
  - {key: staff, rate_limit: {unlimited: true}}
"""


def test_rules_of_envoys_format_are_found_behind_our_own(tmp_path: Path) -> None:
    folder = tmp_path / "rules"
    folder.mkdir()
    (folder / "own.yaml").write_text(RULES, "utf-8")
    (folder / "mesh.yaml").write_text(MESH, "utf-8")
    book = ServiceRuleSet.load([str(folder)])
    for count in (1, 3):
        assert all_found(book, "acme", count) == ["edge/tenant=acme/path=%2Fapi%2F*"]
        assert all_found(book, "/api/*", count) == ["edge/tenant=acme/path=%2Fapi%2F*"]
    assert len(all_found(book, "", 200)) == len(book) == 2_504
    with LimiterProcess(tmp_path, "--rules", str(folder)) as limiter:
        asked = {"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}]}
        for _ in range(3):
            limiter.ask("/json", asked)
        (user,) = limiter.ask("/v1/rules?name=edge%2Fuser")[1]["rules"]
        assert (user["domain"], user["per"], user["limit"]) == ("edge", "user", 2)
        assert user["period_us"] == 60_000_000
        assert (user["counts"]["allowed"], user["counts"]["refused"]) == (2, 1)
        found = {one["rule_id"]: one for one in limiter.ask("/v1/rules?q=edge")[1]["rules"]}
        assert len(found) == 4
        assert (found["edge/banned"]["limit"], found["edge/banned"]["period_us"]) == (0, None)
        assert found["edge/staff"]["limit"] is None
