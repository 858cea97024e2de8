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
