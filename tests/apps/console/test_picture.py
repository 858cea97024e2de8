"""The picture: rates of two looks, whatever version or state the services are in."""

from __future__ import annotations

import re
from typing import Any

import pytest

from sluicegate.apps.console.pages import tables
from sluicegate.apps.console.pages.overview import overview
from sluicegate.apps.console.picture import ACCOUNTS_READ_MAX
from sluicegate.apps.console.readings import FleetReadings
from sluicegate.apps.console.sentence import sentence_of
from sluicegate.wire.timestamps import rfc3339
from tests.apps.console.states import (
    SECOND_US,
    START_US,
    account,
    dispatcher,
    done,
    limiter,
    looked,
    pictured,
    pubsub,
    slow_shard,
)


def flows(picture: Any) -> dict[str, tuple[float, float, float]]:
    return {
        one.name: (one.admitted, one.refused, one.shed)
        for one in picture.classes
        if one.admitted or one.refused
    }


def test_what_dispatchers_and_limiters_do_is_added_up_by_class() -> None:
    before = dispatcher(latency=done(CRITICAL=100), refused={"BULK": {"shed": 10}})
    after = dispatcher(
        2.0,
        latency=done(CRITICAL=300),
        refused={"BULK": {"shed": 30, "quota_spent": 8}},
        refusals={"shed": 30, "quota_spent": 8},
    )
    picture = pictured(
        looked(before, after),
        looked(
            limiter(CRITICAL={"allowed": 0}, BULK={"refused": 5}),
            limiter(1.0, CRITICAL={"allowed": 50}, BULK={"refused": 15, "shed": 2}),
            "http://node:2",
        ),
    )
    assert flows(picture) == {"CRITICAL": (150.0, 0.0, 0.0), "BULK": (0.0, 26.0, 12.0)}
    assert (picture.admitted, picture.refused) == (150.0, 26.0)
    assert dict(picture.reasons) == {"shed": 17.0, "rate_limited": 10.0, "quota_spent": 4.0}
    assert picture.p99_us == pytest.approx(990.0)
    assert [(node.url, node.admitted) for node in picture.nodes] == [
        ("http://node:1", 100.0),
        ("http://node:2", 50.0),
    ]


def test_a_pubsub_node_has_what_its_accounts_were_admitted_and_refused() -> None:
    before, after = pubsub(admitted=100), pubsub(2.0, admitted=120, suppressed=4, fused=2)
    shown = pictured(looked(before, after))
    assert [(node.admitted, node.refused) for node in shown.nodes] == [(10.0, 3.0)]


def test_of_accounts_the_suppressed_are_never_left_out() -> None:
    many = [account(f"a{at}") for at in range(ACCOUNTS_READ_MAX)]
    state = pubsub(1.0, *many, account("bot", 0.5, master="n2", heard_us=7_000))
    shown = pictured(looked(pubsub(), state))
    assert len(shown.factors) == ACCOUNTS_READ_MAX
    (bot,) = [one for one in shown.factors if one["account"] == "bot"]
    assert (bot["factor"], bot["masters"], bot["age_us"]) == (0.5, ["n2"], 7_000)


def following(**fleet: Any) -> dict[str, Any]:
    state = limiter(9.0)
    checked = {"version": 7, "canary": 0, "orders": 5, "orders_seen": 5}
    accepted = {"result": "accepted", "reason": ""}
    at = rfc3339(START_US + 8 * SECOND_US)
    return state | {
        "rulebook": {"last_load": accepted, "fleet": {**checked, "checked": at, **fleet}}
    }


def test_of_rules_a_release_and_how_far_behind_it_is_are_told() -> None:
    refused = following()
    refused["rulebook"]["last_load"] = {"result": "refused", "reason": "no signature"}
    states = (following(), following(orders=3, canary=8), refused)
    shown = pictured(*(looked(None, one, f"http://l{at}") for at, one in enumerate(states)))
    assert [(one.release, one.rules_age_us, one.rules_trouble) for one in shown.nodes] == [
        ("release 7", SECOND_US, ""),
        ("release 7, canary 8", SECOND_US, "2 changes behind"),
        ("release 7", SECOND_US, "the newest are refused: no signature"),
    ]
    page = tables.nodes(shown)["nodes"]
    assert "checked 1s ago" in page
    assert '<td class="bad">2 changes behind</td>' in page
    assert sentence_of(shown).words == "2 services run older rules: 2 changes behind."


def test_decisions_without_the_store_are_counted_apart() -> None:
    before = limiter(CRITICAL={"degraded_allowed": 0})
    after = limiter(1.0, CRITICAL={"degraded_allowed": 7, "degraded_refused": 3})
    picture = pictured(looked(before, after))
    assert picture.degraded == 10.0
    assert flows(picture) == {"CRITICAL": (7.0, 3.0, 3.0)}
    assert dict(picture.reasons) == {"store_unavailable": 3.0}


def test_a_first_look_has_no_rates_yet() -> None:
    picture = pictured(looked(None, dispatcher(latency=done(CRITICAL=1_000))))
    assert picture.admitted == 0
    assert not picture.silent


def test_slow_shards_are_read_with_their_limit() -> None:
    state = dispatcher(1.0, slow=[slow_shard("3", 0.3, waiting=5)])
    (found,) = pictured(looked(dispatcher(), state)).slow
    assert (found.node, found.shard, found.ratio) == ("kv-1", "3", 0.3)
    assert (found.waiting, found.limit, found.origin) == (5, 12, "found")


def test_prices_are_shown_only_where_there_are_some() -> None:
    plain = pictured(looked(dispatcher(), dispatcher(1.0)))
    assert "price" not in overview(plain, FleetReadings(10), 300)["classes"]
    classes = [{"class": "BULK", "admitted": 0, "refused": 0, "price_milli": 4_000}]
    priced = pictured(looked(dispatcher(), dispatcher(1.0, classes=classes, latency=done(BULK=1))))
    assert ">4.00<" in overview(priced, FleetReadings(10), 300)["classes"]


@pytest.mark.parametrize(
    "state",
    [
        {"app": "kv"},
        {"app": "kv", "board": {"version": 99}},
        {"app": "kv", "board": {"version": 1, "queue": 7}},
        {"app": "kv", "board": {"version": 1, "hot": [{"rate": 1}]}},
        {**pubsub(), "cluster": {"accounts": [{"factor": 0}]}},
        {**limiter(), "rulebook": {"fleet": {"version": 1}}},
        {"app": "limiter", "decisions": "none"},
        {"app": "limiter", "decisions": {}, "gate": {"shares": 3}},
    ],
    ids=str,
)
def test_a_state_that_cannot_be_read_spoils_no_other(state: dict[str, Any]) -> None:
    good = looked(dispatcher(latency=done(BULK=0)), dispatcher(1.0, latency=done(BULK=9)))
    picture = pictured(looked(None, state, "http://odd:1"), good)
    assert [node.url for node in picture.silent] == ["http://odd:1"]
    assert "cannot be understood" in picture.silent[0].error
    assert picture.admitted == 9.0


def test_a_service_of_another_kind_is_a_node_and_no_more() -> None:
    picture = pictured(looked(None, {"app": "rulebook", "version": "2.0"}))
    assert [(node.app, node.error) for node in picture.nodes] == [("rulebook", "")]


def test_the_overview_shows_what_memory_answers_and_the_slowest_shards_first() -> None:
    shield = {"looked": 0, "served": 0, "joined": 0, "stale_served": 0}
    before = dispatcher(shield=shield)
    slow = [slow_shard(str(at), 0.55 - at / 20) for at in range(7)]
    answered = {"looked": 90, "served": 70, "joined": 8}
    after = dispatcher(2.0, shield=shield | answered, slow=slow)
    picture = pictured(looked(before, after))
    assert picture.from_memory == 39.0
    parts = overview(picture, FleetReadings(10), 300)
    assert '<b class="">39/s</b><span>answered from memory</span>' in parts["numbers"]
    assert re.findall(r"<td[^>]*>(0\.\d\d)</td>", parts["slow"]) == [
        "0.25",
        "0.30",
        "0.35",
        "0.40",
        "0.45",
    ]
    assert '<a href="/queues">2 more</a>' in parts["slow"]
    calm = overview(pictured(looked(before, before)), FleetReadings(10), 300)
    assert "as long as usual" in calm["slow"]
