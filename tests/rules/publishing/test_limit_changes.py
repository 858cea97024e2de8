"""Large changes of limits: which they are, and that a proposal of one takes a confirmation."""

from __future__ import annotations

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rulebook import OPEN, FileChange
from sluicegate.rules.publishing.limit_changes import describe, large_changes
from tests.rules.publishing.world import ANN, FIRST, World, rules

NATIVE = "version: 1\nrules: [{{rule_id: play, {0}}}]\n"
MESH = "domain: edge\ndescriptors: [{{key: user, {0}}}]\n"


def found(before: str | None, after: str | None) -> list[str]:
    texts = [None if one is None else one.encode() for one in (before, after)]
    return [str(one) for one in large_changes([FileChange("rules.yaml", *texts)])]


@pytest.mark.parametrize(
    ("before", "after", "large"),
    [
        ("limit: 100, window: 1h", "limit: 999, window: 1h", False),
        ("limit: 100, window: 1h", "limit: 1000, window: 1h", True),
        ("limit: 100, window: 1h", "limit: 11, window: 1h", False),
        ("limit: 100, window: 1h", "limit: 10, window: 1h", True),
        ("limit: 100, window: 1h", "limit: 100, window: 1m", True),
        ("limit: 1, window: 1s", "limit: 3600, window: 1h", False),
        ("limit: 100, window: 1h", "limit: 100, window: 1h, mode: shadow", True),
        ("limit: 100, window: 1h", "limit: 100, window: 1h, mode: 'off'", True),
        ("limit: 1, window: 1h, mode: shadow", "limit: 100, window: 1h", False),
        (
            "limit: 10, window: 1m, algorithm: gcra",
            "limit: 10, window: 1m, algorithm: gcra, burst_capacity: 10",
            True,
        ),
    ],
)
def test_native_change_by_factor_is_large(before: str, after: str, large: bool) -> None:
    assert bool(found(NATIVE.format(before), NATIVE.format(after))) == large


@pytest.mark.parametrize(
    ("before", "after", "large"),
    [
        (
            "rate_limit: {unit: hour, requests_per_unit: 9}",
            "rate_limit: {unit: hour, requests_per_unit: 90}",
            True,
        ),
        (
            "rate_limit: {unit: hour, requests_per_unit: 9}",
            "rate_limit: {unit: hour, requests_per_unit: 80}",
            False,
        ),
        (
            "rate_limit: {unit: hour, requests_per_unit: 9}",
            "rate_limit: {unlimited: true}",
            True,
        ),
        (
            "rate_limit: {unlimited: true}",
            "rate_limit: {unit: hour, requests_per_unit: 9}",
            False,
        ),
        (
            "rate_limit: {unit: hour, requests_per_unit: 9}",
            "rate_limit: {unit: hour, requests_per_unit: 0}",
            True,
        ),
    ],
)
def test_envoy_change_by_factor_is_large(before: str, after: str, large: bool) -> None:
    assert bool(found(MESH.format(before), MESH.format(after))) == large


def test_removed_rule_file_and_quota_are_large() -> None:
    rule = NATIVE.format("limit: 100, window: 1h")
    assert found(rule, None) == ["rule 'play' changes from 100/hour to no limit"]
    assert found(rule, "version: 1\nrules: []\n") == found(rule, None)
    quotas = "version: 1\ncallers: {{quotas: {{shop: {0}/s}}}}\n"
    assert found(quotas.format(100), quotas.format(1_000)) == [
        "rule 'quota:shop' changes from 100/second to 1000/second"
    ]
    assert found(None, rule) == []


def test_rule_moved_between_files_is_no_change() -> None:
    data = NATIVE.format("limit: 100, window: 1h").encode()
    moved = [FileChange("a.yaml", data, None), FileChange("b.yaml", None, data)]
    assert large_changes(moved) == []


def test_many_changes_are_named_up_to_a_bound() -> None:
    before = rules(**{f"r{n}": 10 for n in range(7)}).encode()
    words = describe(large_changes([FileChange("web.yaml", before, None)]))
    assert words.count("changes from") == 5
    assert words.endswith(", and 2 more")


def test_proposal_of_large_change_requires_confirmation(world: World) -> None:
    text = {"web.yaml": rules(login=100, search=100)}
    with pytest.raises(BadValue) as caught:
        world.admin.propose(text, base="live", message="More logins", by=ANN)
    assert caught.value.field == "confirm"
    assert caught.value.remedy == (
        "rule 'login' changes from 10/minute to 100/minute; "
        'send "confirm": true for a limit that changes 10-fold or is removed'
    )
    assert world.admin.proposals(by=ANN) == []
    one = world.admin.propose(text, base="live", message="More logins", confirm=True, by=ANN)
    assert one["state"] == OPEN
    assert ("confirmed", "rule 'login' changes from 10/minute to 100/minute") in [
        (step["what"], step["why"]) for step in one["history"]
    ]


def test_change_is_compared_with_live_not_with_base(world: World) -> None:
    text = {"web.yaml": FIRST["web.yaml"].replace("limit: 10\n", "limit: 99\n")}
    assert world.admin.propose(text, base="live", message="Nine-fold", by=ANN)["state"] == OPEN
