from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from sluicegate import BadValue, Claim, Limit, Limiter, Rule
from sluicegate.limits.glass.sources import open_source
from sluicegate.testing import HandClock

SECOND = 1_000_000


def limiter(**rules: Rule) -> Limiter:
    return Limiter(rules=rules, clock=HandClock())


def test_a_rule_that_is_tried_out_reports_what_it_would_refuse_and_admits_it() -> None:
    trial = limiter(api=Rule("1/minute", mode="shadow"))
    first, second = trial.take("a", rule="api"), trial.take("a", rule="api")
    assert first.allowed
    assert first.shadow
    assert first.reason is None
    assert second.allowed
    assert second.shadow
    assert second.reason is not None
    assert second.retry_after_us == 60 * SECOND
    assert "only tried out" in second.explain()
    assert trial.peek("a", rule="api").shadow


def test_a_rule_that_is_off_is_not_even_counted() -> None:
    off = limiter(api=Rule("1/minute", mode="off"))
    assert all(off.take("a", rule="api") for _ in range(5))
    assert off.peek("a", rule="api").remaining == 1
    assert off.keys_tracked("api") == 0
    off.charge("a", rule="api")
    assert off.keys_tracked("api") == 0


def test_what_is_refused_counts_for_those_who_want_it_so() -> None:
    clock = HandClock()
    harsh = Limiter("2/s", count_refused=True, clock=clock)
    assert harsh.take("a", 2)
    assert not harsh.take("a")
    clock.advance(s=0.6)
    # One unit has come back and paid for the refusal; a lenient limiter would admit here.
    assert not harsh.take("a")
    lenient = Limiter(Rule("2/s", count_refused=False), count_refused=True, clock=clock)
    assert lenient.take("a", 2)
    assert not lenient.take("a")
    clock.advance(s=0.5)
    assert lenient.take("a")


def test_a_refused_group_counts_only_in_the_rules_that_count_refusals() -> None:
    group = limiter(
        harsh=Rule("10/hour", count_refused=True), mild=Rule("10/hour"), no=Rule("1/hour")
    )
    group.take("a", rule="no")
    assert not group.take_all(Claim("a", "harsh"), Claim("a", "mild"), Claim("a", "no"))
    assert group.peek("a", 0, "harsh").remaining == 9
    assert group.peek("a", 0, "mild").remaining == 10


def test_a_trial_holds_up_no_group_and_counts_only_what_enters() -> None:
    group = limiter(
        tried=Rule("1/hour", mode="shadow"), kept=Rule("2/hour"), off=Rule("1/hour", mode="off")
    )
    claims = (Claim("a", "tried"), Claim("a", "kept"), Claim("a", "off"))
    judgements = [group.judge(*claims) for _ in range(3)]
    assert [judgement.decision.allowed for judgement in judgements] == [True, True, False]
    assert [[one.name for one in judgement.decisions] for judgement in judgements] == [
        ["kept", "tried", "off"],
        ["kept", "tried", "off"],
        ["kept", "off"],
    ]
    assert judgements[1].decisions[1].decision.shadow
    assert judgements[2].decision.rule_id == "kept"


def test_a_judgement_of_a_trial_alone_is_the_trial() -> None:
    trial = limiter(tried=Rule("1/hour", mode="shadow"))
    trial.judge(Claim("a", "tried"))
    judgement = asyncio.run(trial.ajudge(Claim("a", "tried")))
    assert judgement.decision.allowed
    assert judgement.decision.shadow
    assert judgement.decisions[0].limit == Limit(1, period_us=3_600 * SECOND)


def test_new_rules_take_the_place_of_the_old_and_what_stays_keeps_its_counts() -> None:
    living = limiter(stays=Rule("2/hour"), changes=Rule("2/hour"), goes=Rule("2/hour"))
    for name in ("stays", "changes", "goes"):
        living.take("a", rule=name)
    living.replace_rules({"stays": Rule("2/hour"), "changes": Rule("5/hour"), "comes": "1/s"})
    assert living.peek("a", 0, "stays").remaining == 1
    assert living.peek("a", 0, "changes").remaining == 5
    assert living.take("a", rule="comes")
    with pytest.raises(BadValue, match="'goes'"):
        living.take("a", rule="goes")


def test_a_bad_new_rule_replaces_nothing() -> None:
    living = limiter(kept=Rule("2/hour"))
    with pytest.raises(BadValue, match=r"rules\.bad: '2 per fortnight'"):
        living.replace_rules({"kept": Rule("9/hour"), "bad": "2 per fortnight"})
    assert living.peek("a", 0, "kept").remaining == 2


def test_a_rule_may_hold_several_limits_and_says_which() -> None:
    several = limiter(api=Rule(["10/s", Limit(3, period_us=60 * SECOND), "100/hour; 1000/day"]))
    assert [limit.count for limit in several.limits_of("api")] == [10, 3, 100, 1000]
    assert several.take("a", rule="api").remaining == 2


@pytest.mark.parametrize(
    ("terms", "field"),
    [
        ({"mode": "loud"}, "rule.mode"),
        ({"failure": "ajar"}, "rule.failure"),
        ({"local_share": 0.0}, "rule.local_share"),
        ({"local_share": float("nan")}, "rule.local_share"),
        ({"algorithm": "dice"}, "rule.algorithm"),
    ],
)
def test_terms_that_do_not_exist_are_told(terms: dict[str, object], field: str) -> None:
    with pytest.raises(BadValue) as error:
        Rule("1/s", **terms)  # type: ignore[arg-type]
    assert error.value.field == field


def test_a_rule_without_limits_is_refused() -> None:
    with pytest.raises(BadValue, match=r"rule\.limits"):
        Rule([])


def test_rules_with_the_same_terms_are_one_rule() -> None:
    same = Limiter(clock=HandClock())
    same.take("a", rule=Rule("2/s", mode="enforce"))
    assert same.peek("a", 0, Rule("2/s")).remaining == 1
    assert Rule("2/s") != Rule("2/s", mode="off")
    assert repr(Rule("2/s", mode="shadow")) == "Rule('2/s', mode='shadow')"


def test_the_a_names_decide_as_the_plain_ones_do() -> None:
    async def story() -> None:
        both = Limiter("3/minute", clock=HandClock())
        assert (await both.atake("a", 2)).remaining == 1
        assert (await both.apeek("a")).remaining == 0
        await both.arefund("a", 1)
        await both.acharge("a", 2)
        assert not await both.atake("a")
        await both.areset("a")
        async with await both.areserve("a", 3) as reserved:
            assert await reserved.asettle(1)
        assert (await both.atake_all(Claim("a"), Claim("b"))).allowed
        assert (await both.apeek("a", 0)).remaining == 1
        await both.aclose()

    asyncio.run(story())


def test_a_limiter_is_a_context() -> None:
    with Limiter("1/s") as plain:
        assert plain.take("a")

    async def story() -> None:
        async with Limiter("1/s") as one:
            assert await one.atake("a")

    asyncio.run(story())


def test_a_glass_that_is_named_by_its_url_is_followed_and_let_go(tmp_path: Path) -> None:
    url = f"file:{tmp_path}/glass.json"
    with Limiter(rules={"login": "1/hour"}, glass=url) as limiter:
        assert limiter.take("a", rule="login")
        assert not limiter.take("a", rule="login")

        async def break_it() -> None:
            source = open_source(url)
            await source.break_(rule="login", for_s=60, by="ann", why="the login page is down")
            await source.close()

        asyncio.run(break_it())
        waiting = threading.Event()
        for _ in range(400):
            decision = limiter.take("a", rule="login")
            if decision:
                break
            waiting.wait(0.02)
        assert decision.overridden
        assert limiter.judge(Claim("a", "login")).decision.overridden
        assert limiter.wait("a", rule="login", timeout_s=0).overridden
    assert not limiter.take("a", rule="login"), "closed, it is enforced again"


def test_rules_may_be_replaced_for_ever_without_piling_up() -> None:
    living = Limiter(clock=HandClock(), rules_max=4)
    for turn in range(50):
        living.replace_rules({f"rule {turn}": f"{turn + 1}/hour", "kept": "3/hour"})
        assert living.take("ann", rule=f"rule {turn}")
        assert living.take("ann", rule="kept").allowed is (turn < 3)
