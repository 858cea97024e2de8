"""Answers for a mesh, told as stories."""

from __future__ import annotations

import pytest

from sluicegate.contracts.checks import Override
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.contracts.reasons import RATE_LIMITED, SHED
from sluicegate.limits.glass.break_glass import ALL, GlassView, Opening
from sluicegate.rules.mesh.settings import HEADER_NAMES, MeshSettings
from tests.rules.mesh.world import ENVOY, SLUICEGATE, World, by, lefts, overs

SHOP = """
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 3}
  - key: path
    value: "/api/*"
    rate_limit: {unit: minute, requests_per_unit: 2, name: api}
"""
IN_ENVOY = MeshSettings(semantics=ENVOY)
USER, PATH = ("user", "bob"), ("path", "/api/x")


def world(text: str, settings: MeshSettings | None = None) -> World:
    """A domain `shop` with these descriptors."""
    return World(f"domain: shop\ndescriptors:\n{text}", settings)


@pytest.mark.parametrize("settings", [MeshSettings(), IN_ENVOY])
def test_what_no_rule_is_about_is_let_through_without_a_limit(settings: MeshSettings) -> None:
    shop = World(SHOP, settings)
    for descriptors in ([by(("other", "x"))], [by(("other", "x")), by(USER, PATH)]):
        answer = shop.ask(*descriptors)
        assert not answer.over
        assert all(status.limit is None for status in answer.statuses)
        assert len(answer.statuses) == len(descriptors)
    assert shop.ledger.entries == []


def test_an_unknown_domain_has_no_rules_not_even_those_brought_along() -> None:
    shop = World(SHOP, IN_ENVOY)
    answer = shop.ask(by(USER, override=Override(0, 1)), domain="other")
    assert not answer.over
    assert answer.statuses[0].limit is None
    assert shop.mesh.domains_not_found == 1
    shop.ask(by(USER), domain="other")
    assert shop.mesh.domains_not_found == 2


def test_what_cannot_be_asked_is_told_with_its_field() -> None:
    shop = World(SHOP)
    with pytest.raises(BadValue) as caught:
        shop.ask(by(USER), domain="")
    assert caught.value.field == "domain"
    assert caught.value.remedy == "rate limit domain must not be empty"
    with pytest.raises(BadValue) as caught:
        shop.ask()
    assert caught.value.field == "descriptors"
    assert caught.value.remedy == "rate limit descriptor list must not be empty"
    shop.mesh.book = None
    with pytest.raises(Unavailable) as missing:
        shop.ask(by(USER))
    assert missing.value.detail == "no rate limit configuration loaded"


def test_descriptors_are_bounded() -> None:
    shop = World(SHOP, MeshSettings(descriptors_max=2))
    shop.ask(by(USER), by(USER))
    with pytest.raises(BadValue, match="descriptors_max"):
        shop.ask(by(USER), by(USER), by(USER))


def test_envoy_counts_what_it_refuses_and_sluicegate_does_not() -> None:
    for settings, left in ((IN_ENVOY, 0), (MeshSettings(), 1)):
        shop = World(SHOP, settings)
        assert not shop.ask(by(USER, hits=2)).over
        assert shop.ask(by(USER, hits=5)).over
        answer = shop.ask(by(USER))
        assert answer.over is (settings is IN_ENVOY)
        assert shop.ask(by(USER, hits=0)).statuses[0].remaining == max(left - 1, 0)


def test_a_refused_request_takes_nothing_from_anyone() -> None:
    shop = World(SHOP)
    shop.ask(by(PATH, hits=2))
    for _ in range(5):
        answer = shop.ask(by(USER), by(PATH))
        assert answer.over
        assert overs(answer) == [False, True]
        assert lefts(answer) == [3, 0]
    assert lefts(shop.ask(by(USER))) == [2]


def test_in_envoys_way_it_does() -> None:
    shop = World(SHOP, IN_ENVOY)
    shop.ask(by(PATH, hits=2))
    for left in (2, 1, 0):
        answer = shop.ask(by(USER), by(PATH))
        assert overs(answer) == [False, True]
        assert lefts(answer) == [left, 0]


def test_with_the_setting_envoys_way_spares_the_others() -> None:
    shop = World(SHOP, MeshSettings(semantics=ENVOY, stop_when_over=True))
    shop.ask(by(PATH, hits=2))
    for _ in range(3):
        assert overs(shop.ask(by(USER), by(PATH))) == [False, True]
    assert lefts(shop.ask(by(USER))) == [2]


def test_stop_when_over_with_local_cache_spares_others() -> None:
    settings = MeshSettings(semantics=ENVOY, stop_when_over=True, local_cache_max=10)
    shop = World(SHOP, settings)
    shop.ask(by(PATH, hits=2))
    for _ in range(3):
        assert overs(shop.ask(by(USER), by(PATH))) == [False, True]
    assert lefts(shop.ask(by(USER))) == [2]


@pytest.mark.parametrize("settings", [MeshSettings(), IN_ENVOY])
def test_pairs_do_not_run_together(settings: MeshSettings) -> None:
    limit = "rate_limit: {unit: minute, requests_per_unit: 1}"
    shop = world(
        f"  - {{key: a, value: b_c, {limit}}}\n  - {{key: a_b, value: c, {limit}}}\n"
        f"  - {{key: a/b, {limit}}}\n  - {{key: a, descriptors: [{{key: b, {limit}}}]}}\n"
        f"  - {{key: x, descriptors: [{{key: y, {limit}}}]}}",
        settings,
    )
    different = [
        by(("a", "b_c")),
        by(("a_b", "c")),
        by(("a/b", "z")),
        by(("a", "z"), ("b", "z")),
        by(("x", "1|2"), ("y", "3")),
        by(("x", "1"), ("y", "2|3")),
        by(("x", "1\\"), ("y", "2|3")),
        by(("x", "1\\|2"), ("y", "3")),
        by(("x", "%7C"), ("y", "")),
        by(("x", ""), ("y", "%7C")),
        by(("x", "\x1f"), ("y", "")),
        by(("x", ""), ("y", "\x1f")),
        by(("x", "q" * 400), ("y", "")),
        by(("x", "q" * 401), ("y", "")),
    ]
    for descriptor in different:
        assert not shop.ask(descriptor).over
    for descriptor in different:
        assert shop.ask(descriptor).over


def test_a_value_longer_than_a_key_may_be_still_has_a_counter() -> None:
    shop = World(SHOP, IN_ENVOY)
    long = "x" * 100_000
    for _ in range(3):
        assert not shop.ask(by(("user", long))).over
    assert shop.ask(by(("user", long))).over
    assert not shop.ask(by(("user", long + "y"))).over


@pytest.mark.parametrize("settings", [MeshSettings(), IN_ENVOY])
def test_a_shadowed_rule_is_told_and_holds_nobody_up(settings: MeshSettings) -> None:
    shop = world(
        "  - key: user\n    shadow_mode: true\n"
        "    rate_limit: {unit: minute, requests_per_unit: 1}",
        settings,
    )
    answers = [shop.ask(by(USER)) for _ in range(3)]
    assert not any(answer.over for answer in answers)
    assert overs(answers[-1]) == [False]
    assert lefts(answers[-1]) == [0]
    limit = answers[-1].statuses[0].limit
    assert limit is not None
    assert limit.requests_per_unit == 1
    *_, decision = shop.ledger.entries[-1]
    assert decision.allowed
    assert decision.shadow
    assert decision.reason is RATE_LIMITED
    [stats] = shop.mesh.stats()
    assert (stats.over_limit, stats.shadow_mode, stats.within_limit) == (2, 2, 1)


def test_the_global_shadow_lets_all_in_and_tells_what_would_have_been() -> None:
    for semantics in (ENVOY, SLUICEGATE):
        shop = World(SHOP, MeshSettings(semantics=semantics, global_shadow=True))
        shop.gate.sheds.add(Criticality.DEGRADED)
        answers = [shop.ask(by(USER, hits=2)) for _ in range(2)]
        assert not answers[-1].over
        assert overs(answers[-1]) == [True]
        assert shop.mesh.globally_shadowed == 1


QUOTAS = """
  - {key: a, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: b, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: c, rate_limit: {unit: minute, requests_per_unit: 4}}
"""
A, B, C = by(("a", "1")), by(("b", "1")), by(("c", "1"))


@pytest.mark.parametrize("settings", [MeshSettings(), IN_ENVOY])
def test_of_quotas_it_is_enough_that_one_has_room(settings: MeshSettings) -> None:
    shop = world(QUOTAS, settings)
    answers = [shop.ask(A, B) for _ in range(4)]
    assert [answer.over for answer in answers] == [False, False, False, True]
    assert [overs(answer) for answer in answers] == [
        [False, False],
        [True, False],
        [True, False],
        [True, True],
    ]


def test_a_request_that_quotas_refuse_takes_nothing_from_the_others() -> None:
    shop = world(QUOTAS)
    for _ in range(6):
        shop.ask(A, B, C)
    assert lefts(shop.ask(by(("c", "1"), hits=0))) == [1]
    shop.ask(C)
    before = lefts(shop.ask(by(("a", "2"), hits=0)))
    assert shop.ask(by(("a", "2")), C).over
    assert lefts(shop.ask(by(("a", "2"), hits=0))) == before == [1]


@pytest.mark.parametrize("settings", [MeshSettings(), IN_ENVOY])
def test_a_lone_quota_is_a_limit(settings: MeshSettings) -> None:
    shop = world(QUOTAS, settings)
    assert not shop.ask(A).over
    assert shop.ask(A).over


@pytest.mark.parametrize("settings", [MeshSettings(), IN_ENVOY])
def test_unlimited_counts_nothing_and_may_replace(settings: MeshSettings) -> None:
    shop = world(
        "  - {key: vip, rate_limit: {unlimited: true, replaces: [{name: base}]}}\n"
        "  - {key: user, rate_limit: {unit: minute, requests_per_unit: 1, name: base}}",
        settings,
    )
    for _ in range(3):
        answer = shop.ask(by(USER), by(("vip", "yes")))
        assert not answer.over
        assert answer.statuses[0].limit is None
        assert answer.statuses[1].limit is None
        assert lefts(answer) == [0, 4_294_967_295]
    assert lefts(shop.ask(by(("vip", "yes")))) == [4_294_967_295]
    assert not shop.ask(by(USER)).over
    assert shop.ask(by(USER)).over


@pytest.mark.parametrize("settings", [MeshSettings(), IN_ENVOY])
def test_no_hits_is_a_look(settings: MeshSettings) -> None:
    shop = World(SHOP, settings)
    for _ in range(3):
        answer = shop.ask(by(USER, hits=0))
        assert not answer.over
        assert lefts(answer) == [3]
    shop.ask(by(USER, hits=9), hits=1)
    assert shop.ask(by(USER, hits=0)).over is (settings is IN_ENVOY)


def test_in_our_way_a_look_at_what_is_spent_refuses_the_whole() -> None:
    shop = World(SHOP)
    shop.ask(by(USER, hits=3))
    answer = shop.ask(by(USER, hits=0), by(PATH))
    assert overs(answer) == [True, False]
    assert answer.over
    assert lefts(shop.ask(by(PATH))) == [1]


def test_a_descriptor_says_its_own_weight_else_the_request_does() -> None:
    shop = World(SHOP, IN_ENVOY)
    assert lefts(shop.ask(by(USER, hits=2), by(PATH), hits=1)) == [1, 1]
    assert lefts(shop.ask(by(("user", "al")), hits=3)) == [0]
    assert shop.ask(by(("user", "eve"), hits=1 << 63)).over


@pytest.mark.parametrize("settings", [MeshSettings(), IN_ENVOY])
def test_a_limit_of_nothing_lets_nothing_in(settings: MeshSettings) -> None:
    shop = world("  - {key: user, rate_limit: {unit: day, requests_per_unit: 0}}", settings)
    assert shop.ask(by(USER)).over
    assert shop.ask(by(USER), by(("other", "x"))).over
    assert shop.ask(by(USER, override=Override(0, 1))).over


@pytest.mark.parametrize("settings", [MeshSettings(), IN_ENVOY])
def test_a_rule_may_have_several_windows(settings: MeshSettings) -> None:
    shop = world(
        "  - key: user\n    rate_limits:\n"
        "      - {window: 1s, requests_per_unit: 2, name: burst, algorithm: fixed_window}\n"
        "      - {unit: hour, requests_per_unit: 3, name: hour, algorithm: fixed_window}",
        settings,
    )
    names = []
    for _ in range(4):
        status = shop.ask(by(USER)).statuses[0]
        assert status.limit is not None
        names.append((status.over, status.remaining, status.limit.name))
    assert names[:3] == [(False, 1, "burst"), (False, 0, "burst"), (True, 0, "burst")]
    shop.clock.advance(s=1)
    status = shop.ask(by(USER)).statuses[0]
    # What was refused above is counted in Envoy's way, and here it is not.
    assert status.over is (settings is IN_ENVOY)
    [stats] = shop.mesh.stats()
    assert stats.total_hits == 5


def test_of_several_windows_the_one_with_the_least_left_is_told() -> None:
    shop = world(
        "  - key: user\n    rate_limits:\n"
        "      - {window: 1s, requests_per_unit: 5, name: burst}\n"
        "      - {unit: hour, requests_per_unit: 3, name: hour}\n"
        "      - {unit: day, requests_per_unit: 4, name: day}"
    )
    status = shop.ask(by(USER)).statuses[0]
    assert status.limit is not None
    assert (status.limit.name, status.remaining) == ("hour", 2)


@pytest.mark.parametrize("settings", [MeshSettings(), IN_ENVOY])
@pytest.mark.parametrize("algorithm", ["gcra", "token_bucket", "sliding_window", "sliding_log"])
def test_a_rule_may_count_in_any_way(settings: MeshSettings, algorithm: str) -> None:
    shop = world(
        f"  - {{key: user, rate_limit: {{window: 90s, requests_per_unit: 3, "
        f"algorithm: {algorithm}}}}}",
        settings,
    )
    answers = []
    for _ in range(4):
        shop.clock.advance(us=1)
        answers.append(shop.ask(by(USER)))
    assert [answer.over for answer in answers] == [False, False, False, True]
    assert [lefts(answer)[0] for answer in answers] == [2, 1, 0, 0]
    wait_us = answers[-1].statuses[0].reset_us
    assert 0 < wait_us <= 180_000_000
    assert wait_us % 1_000_000 == 0
    if algorithm in ("gcra", "token_bucket"):
        assert wait_us == 30_000_000, "the next unit, not all of them"
    shop.clock.advance(us=wait_us)
    assert not shop.ask(by(USER)).over


def test_a_rule_that_counts_refused_hits_hears_of_all_bytes() -> None:
    shop = world(
        "  - key: user\n    rate_limit: {unit: minute, requests_per_unit: 100, count_refused: true}"
    )
    assert not shop.ask(by(USER, hits=90)).over
    assert shop.ask(by(USER, hits=500)).over
    assert shop.ask(by(USER, hits=0)).over


def test_a_rule_that_is_off_is_none() -> None:
    shop = world("  - {key: user, mode: off, rate_limit: {unit: day, requests_per_unit: 0}}")
    answer = shop.ask(by(USER))
    assert not answer.over
    assert answer.statuses[0].limit is None


# What descriptors bring along.


@pytest.mark.parametrize("settings", [MeshSettings(), IN_ENVOY])
def test_a_limit_that_is_brought_along_applies_to_any_key(settings: MeshSettings) -> None:
    shop = World(SHOP, settings)
    mine = by(("anything", "x"), override=Override(2, 3))
    assert [shop.ask(mine).over for _ in range(3)] == [False, False, True]
    assert [shop.ask(mine, by(USER)).over for _ in range(2)] == [True, True]
    limit = shop.ask(mine).statuses[0].limit
    assert limit is not None
    assert (limit.requests_per_unit, limit.unit, limit.name) == (2, 3, "")
    assert not shop.ask(by(("anything", "y"), override=Override(2, 3))).over


def test_two_limits_that_are_brought_along_each_get_their_own_answer() -> None:
    shop = World(SHOP)
    tight, wide = by(("k", "1"), override=Override(1, 2)), by(("k", "2"), override=Override(9, 2))
    assert lefts(shop.ask(tight, wide, by(USER))) == [0, 8, 2]
    answer = shop.ask(wide, tight, by(USER))
    assert overs(answer) == [False, True, False]
    assert lefts(answer) == [8, 0, 2]


def test_bad_limits_and_too_many_are_the_askers_fault() -> None:
    shop = World(SHOP, MeshSettings(overrides_max=1))
    for unit in (0, 8, -1):
        with pytest.raises(BadValue) as caught:
            shop.ask(by(USER), by(USER, override=Override(1, unit)))
        assert caught.value.field == "descriptors[1].limit.unit"
    with pytest.raises(BadValue, match="32 bits"):
        shop.ask(by(USER, override=Override(1 << 32, 1)))
    shop.ask(by(USER, override=Override(1, 1)))
    shop.ask(by(USER, ("more", "x"), override=Override(1, 1)))
    with pytest.raises(BadValue, match="overrides_max"):
        shop.ask(by(USER, override=Override(2, 1)))


# What else is in an answer.


def test_headers_tell_the_one_that_is_over_else_the_one_with_the_least_left() -> None:
    shop = World(SHOP, MeshSettings(semantics=ENVOY, header_names=HEADER_NAMES))
    reset = str(60 - shop.clock.now_us() // 1_000_000 % 60)
    answer = shop.ask(by(USER), by(PATH), by(("other", "x")))
    assert answer.response_headers == [
        ("RateLimit-Limit", "2"),
        ("RateLimit-Remaining", "1"),
        ("RateLimit-Reset", reset),
    ]
    shop.ask(by(USER, hits=3))
    answer = shop.ask(by(PATH), by(USER))
    assert dict(answer.response_headers)["RateLimit-Limit"] == "3"
    assert shop.ask(by(("other", "x"))).response_headers == ()


def test_headers_pass_over_a_quota_that_is_spent() -> None:
    shop = world(QUOTAS, MeshSettings(semantics=ENVOY, header_names=HEADER_NAMES))
    shop.ask(A)
    shop.ask(C, hits=4)
    answer = shop.ask(A, C)
    assert overs(answer) == [True, True]
    assert dict(answer.response_headers)["RateLimit-Limit"] == "4"


def test_metadata_tells_what_was_asked_and_what_passed() -> None:
    shop = world(
        "  - key: a\n    metadata: {plan: free, deep: {one: 1}}\n"
        "    rate_limit: {unit: minute, requests_per_unit: 1}\n"
        "  - key: b\n    metadata: {plan: paid, deep: {two: 2}}\n"
        "    rate_limit: {unit: minute, requests_per_unit: 9}",
        MeshSettings(semantics=ENVOY, metadata=True),
    )
    answer = shop.ask(by(("a", "1")), by(("b", "2"), hits=2), hits=1)
    assert answer.metadata == {
        "domain": "shop",
        "descriptors": [{"entries": ["a=1"]}, {"entries": ["b=2"], "hitsAddend": 2}],
        "hitsAddend": 1,
        "metadata": {"plan": "free", "deep": {"one": 1, "two": 2}},
    }
    later = shop.ask(by(("a", "1")), by(("b", "2")))
    assert later.metadata is not None
    assert later.metadata["metadata"] == {"plan": "paid", "deep": {"two": 2}}
    metadata = shop.ask(by(("c", "1"), override=Override(4, 7))).metadata
    assert metadata is not None
    assert metadata["descriptors"] == [
        {"entries": ["c=1"], "limit": {"requestsPerUnit": 4, "unit": "WEEK"}}
    ]
    assert shop.ask(by(("z", "1"))).metadata == {
        "domain": "shop",
        "descriptors": [{"entries": ["z=1"]}],
    }


def test_what_matters_less_is_shed_before_it_is_counted() -> None:
    shop = world(
        "  - {key: user, rate_limit: {unit: minute, requests_per_unit: 1}, priority: BULK}\n"
        "  - {key: path, rate_limit: {unit: minute, requests_per_unit: 1}}"
    )
    shop.gate.sheds.add(Criticality.BULK)
    for descriptors in ([by(USER)], [by(USER), by(("other", "x"))]):
        answer = shop.ask(*descriptors)
        assert answer.over
        assert answer.statuses[0].over
        assert answer.response_headers == [
            ("x-sluicegate-reason", "shed"),
            ("x-sluicegate-status", "DEGRADED_MODE"),
            ("retry-after", "2"),
        ]
        assert answer.metadata == {"sluicegate": {"reason": "shed", "status": "DEGRADED_MODE"}}
    entity, rule_id, _, priority, decision = shop.ledger.entries[-1]
    assert (entity, rule_id, priority) == ("bob", "shop/user", Criticality.BULK)
    assert decision.reason is SHED
    # The most important of its rules speaks for a request.
    assert not shop.ask(by(USER), by(PATH)).over
    assert shop.gate.callers == ["bob"] * 3
    shop.gate.sheds.clear()
    assert shop.ask(by(USER)).over, "it was counted by the request that entered"


def test_as_envoys_own_has_it_nothing_is_shed_but_where_a_rule_names_a_priority() -> None:
    text = (
        "  - {key: user, rate_limit: {unit: minute, requests_per_unit: 9}, priority: BULK}\n"
        "  - {key: path, rate_limit: {unit: minute, requests_per_unit: 9}}"
    )
    shop = world(text, IN_ENVOY)
    shop.gate.sheds |= {Criticality.BULK, Criticality.DEGRADED}
    assert not shop.ask(by(PATH)).over
    assert not shop.ask(by(PATH), by(("other", "x"))).over
    assert shop.ask(by(USER)).over
    shop.gate.sheds.remove(Criticality.DEGRADED)
    assert not shop.ask(by(USER), by(PATH)).over


def test_the_metadata_of_what_enters_tells_of_the_stress_too() -> None:
    shop = World(SHOP, MeshSettings(metadata=True))
    assert "sluicegate" not in (shop.ask(by(USER)).metadata or {})
    shop.gate.sheds.add(Criticality.BULK)
    for answer in (shop.ask(by(USER)), shop.ask(by(PATH), by(("other", "x")))):
        assert answer.metadata is not None
        assert answer.metadata["sluicegate"] == {"status": "DEGRADED_MODE"}
        assert answer.metadata["domain"] == "shop"


def test_the_ledger_is_told_of_what_was_taken_and_of_what_refused() -> None:
    shop = World(SHOP)
    shop.ask(by(USER, hits=2), by(PATH, hits=2))
    shop.ask(by(USER), by(PATH))
    entries = [
        (entity, rule, hits, bool(one)) for entity, rule, hits, _, one in shop.ledger.entries
    ]
    assert entries == [
        ("bob", "shop/user", 2, True),
        ("/api/x", "shop/path=%2Fapi%2F*", 2, True),
        ("/api/x", "shop/path=%2Fapi%2F*", 1, False),
    ]
    assert shop.ledger.entries[-1][-1].rule_id == "shop/path=%2Fapi%2F*"


def test_statistics_have_a_bound_and_lose_nothing() -> None:
    shop = world(
        "  - {key: user, detailed_metric: true, rate_limit: {unit: day, requests_per_unit: 9}}",
        MeshSettings(tallies_max=2),
    )
    for user in ("a", "b", "c", "d", "a"):
        shop.ask(by(("user", user)))
    assert [(one.key, one.total_hits) for one in shop.mesh.stats()] == [
        ("shop.user_a", 2),
        ("shop.user_b", 1),
        ("others", 2),
    ]


def test_the_cache_of_what_is_over_has_a_bound_and_an_end() -> None:
    shop = World(SHOP, MeshSettings(semantics=ENVOY, local_cache_max=1))
    for user in ("al", "bob"):
        shop.ask(by(("user", user), hits=4))
    shop.ask(by(("user", "bob")))
    shop.ask(by(("user", "al")))
    [stats] = shop.mesh.stats()
    assert stats.over_limit_with_local_cache == 1
    assert stats.over_limit == 4
    shop.clock.advance(s=60)
    assert not shop.ask(by(("user", "bob"))).over


def test_a_reload_keeps_what_stays_and_a_request_sees_one_book() -> None:
    shop = World(SHOP)
    shop.ask(by(USER, hits=2))
    shop.load(SHOP + "  - {key: new, rate_limit: {unit: day, requests_per_unit: 1}}\n")
    assert lefts(shop.ask(by(USER))) == [0]
    assert lefts(shop.ask(by(("new", "x")))) == [0]
    assert [one.key for one in shop.mesh.stats()] == ["shop.user", "shop.new"]


def test_settings_have_bounds() -> None:
    for wrong in (0.0, 1.5):
        with pytest.raises(BadValue, match="near_ratio"):
            MeshSettings(near_ratio=wrong)
    with pytest.raises(BadValue, match="descriptors_max"):
        MeshSettings(descriptors_max=0)
    with pytest.raises(BadValue, match="local_cache_max"):
        MeshSettings(local_cache_max=-1)


def broken_for(rule: str, key: str, shop: World) -> None:
    """Stop enforcement there for a minute, and of nothing else."""
    now_us = shop.clock.now_us()
    opening = Opening("1", rule, key, now_us + 60_000_000, now_us, "ann", "the rule is wrong")
    shop.glass.show(GlassView(now_us, [opening]), now_us)


@pytest.mark.parametrize("settings", [MeshSettings(), IN_ENVOY, MeshSettings(metadata=True)])
@pytest.mark.parametrize(("rule", "key"), [("shop/user", ALL), (ALL, "bob"), ("shop/user", "bob")])
def test_a_broken_glass_lets_through_what_it_names_and_nothing_else(
    rule: str, key: str, settings: MeshSettings
) -> None:
    shop = World(SHOP, settings)
    broken_for(rule, key, shop)
    assert not any(shop.ask(by(USER)).over for _ in range(9))
    assert lefts(shop.ask(by(USER))) == [3]
    told = [decision for *_, decision in shop.ledger.entries]
    assert all(one.overridden and one.rule_id == "shop/user" for one in told)
    both = [overs(shop.ask(by(USER), by(PATH))) for _ in range(3)]
    assert both == [[False, False], [False, False], [False, True]]


@pytest.mark.parametrize("settings", [MeshSettings(), IN_ENVOY])
def test_an_emergency_lets_through_what_is_blocked_and_counts_nothing(
    settings: MeshSettings,
) -> None:
    shop = world(
        "  - {key: user, rate_limit: {unit: minute, requests_per_unit: 0}}\n"
        "  - {key: team, rate_limit: {unit: minute, requests_per_unit: 2}}",
        settings,
    )
    assert shop.ask(by(USER)).over
    broken_for(ALL, ALL, shop)
    for _ in range(5):
        assert not shop.ask(by(USER)).over
        assert not shop.ask(by(("team", "a")), by(USER)).over
    shop.glass.mend()
    assert shop.ask(by(USER)).over
    assert [shop.ask(by(("team", "a"))).over for _ in range(3)] == [False, False, True]


@pytest.mark.parametrize("settings", [MeshSettings(), IN_ENVOY])
def test_an_emergency_does_not_stop_what_protects_the_service(settings: MeshSettings) -> None:
    shop = world(
        "  - {key: user, rate_limit: {unit: minute, requests_per_unit: 9}, priority: BULK}",
        settings,
    )
    broken_for(ALL, ALL, shop)
    shop.gate.sheds.add(Criticality.BULK)
    assert shop.ask(by(USER)).over
