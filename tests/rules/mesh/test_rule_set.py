"""The book: which rule a request meets, and what files may say together."""

from __future__ import annotations

import pytest

from sluicegate.rules.mesh.rule_set import MeshRuleSet
from sluicegate.rules.problems import BadRules
from tests.rules.mesh.world import domain_of

LIMIT = "rate_limit: {unit: minute, requests_per_unit: 3}"


def book_of(*rules: str) -> MeshRuleSet:
    """A book of one file, each rule on a line."""
    lines = "\n".join(f"  - {{{rule}}}" for rule in rules)
    return MeshRuleSet([domain_of(f"domain: shop\ndescriptors:\n{lines}")])


def met(book: MeshRuleSet, *entries: tuple[str, str]) -> str | None:
    """The name of the rule that a request meets."""
    rule = book.find("shop", entries)
    return None if rule is None else rule.rule_id


def test_the_most_exact_rule_is_met_and_there_is_no_going_back() -> None:
    book = book_of(
        f"key: path, value: '/a*', {LIMIT}",
        f"key: path, value: '/ab*', {LIMIT}",
        f"key: path, value: /abc, descriptors: [{{key: user, value: ann, {LIMIT}}}]",
        f"key: path, {LIMIT}",
        "key: path, value: /free",
        f"key: path, value: '/a**', descriptors: [{{key: user, {LIMIT}}}]",
    )
    assert met(book, ("path", "/abx")) == "shop/path=%2Fa*"
    assert met(book, ("path", "/x")) == "shop/path"
    assert met(book, ("path", "/free")) is None, "it is on a list of what is allowed"
    assert met(book, ("path", "/abc")) is None, "the descriptor ends too soon"
    assert met(book, ("path", "/abc"), ("user", "ann")) == "shop/path=%2Fabc/user=ann"
    assert met(book, ("path", "/abc"), ("user", "bob")) is None
    assert met(book, ("path", "/x"), ("user", "ann")) is None, "it goes on too far"
    assert met(book, ("path", "/ax"), ("user", "ann")) is None, "the first spelling has won"
    assert met(book, ("other", "/x")) is None
    assert book.find("other", [("path", "/x")]) is None
    assert book.domains == ["shop"]
    assert len(book) == 5


def test_a_domain_stands_in_one_file() -> None:
    first = domain_of(f"domain: shop\ndescriptors: [{{key: a, {LIMIT}}}]", source="a.yaml")
    second = domain_of(f"\ndomain: shop\ndescriptors: [{{key: b, {LIMIT}}}]", source="b.yaml")
    with pytest.raises(BadRules, match=r"b\.yaml: line 2: .*a\.yaml.*merge_domains"):
        MeshRuleSet([first, second])
    merged = MeshRuleSet([first, second], merge_domains=True)
    assert met(merged, ("a", "1")) == "shop/a"
    assert met(merged, ("b", "1")) == "shop/b"


def test_files_that_share_a_domain_share_no_descriptor() -> None:
    first = domain_of(f"domain: shop\ndescriptors: [{{key: a, {LIMIT}}}]")
    below = f"descriptors: [{{key: b, {LIMIT}}}]"
    second = domain_of(f"domain: shop\ndescriptors: [{{key: a, {below}}}]", source="b.yaml")
    with pytest.raises(BadRules, match=r"b\.yaml: line 1: .*'a' stands in another file"):
        MeshRuleSet([first, second], merge_domains=True)


def test_globs_that_would_be_slow_are_refused_when_they_are_loaded() -> None:
    rules = [f"key: path, value: '*-{n}-*', {LIMIT}" for n in range(5)]
    lines = "\n".join(f"  - {{{rule}}}" for rule in rules)
    domain = domain_of(f"domain: shop\ndescriptors:\n{lines}")
    assert len(MeshRuleSet([domain])) == 5
    with pytest.raises(BadRules, match=r"mesh\.yaml"):
        MeshRuleSet([domain], glob_tries_max=3)
