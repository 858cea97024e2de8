"""What `sluicegate pubsub top` makes of what nodes say."""

from __future__ import annotations

from typing import Any

from sluicegate.apps.pubsub.accounts_view import lines_of
from sluicegate.command_line.account_rates import NodeSample, picture_of

S = 1_000_000


def node(
    name: str, at_s: float, *accounts: dict[str, Any], failing: dict[str, str] | None = None
) -> NodeSample:
    return NodeSample(
        f"http://{name}",
        {
            "at_us": round(at_s * S),
            "node": name,
            "members": ["n1", "n2", "n3"],
            "failing": failing or {},
            "accounts": list(accounts),
        },
    )


def period(used: int, nominal: int = 0) -> dict[str, int]:
    return {"used": used, "nominal": nominal, "restricted_at": nominal * 5 // 2}


def account(name: str, attempted: int, admitted: int, **more: Any) -> dict[str, Any]:
    usage = {"hour": period(0), "month": period(0)}
    some = {"factor": 0.0, "per_s": 100, "master": "n1", "heard_us": 40_000}
    some |= {"usage": usage, "warnings": []}
    return {"account": name, "attempted": attempted, "admitted": admitted, **some, **more}


def test_counts_of_all_nodes_become_rates_of_an_account() -> None:
    before = [node("n1", 1, account("a", 0, 0)), node("n2", 5, account("a", 1_000, 500))]
    after = [
        node("n1", 3, account("a", 200, 100, factor=0.5)),
        node("n2", 6, account("a", 1_300, 575, factor=0.75, heard_us=90_000)),
    ]
    (one,) = picture_of(before, after)["accounts"]
    assert one == {
        "account": "a",
        "attempted": 400.0,
        "admitted": 125.0,
        "limit": 100,
        "masters": ["n1"],
        "age_us": 90_000,
        "factor": 0.6875,  # by what is attempted where
        "hour": period(0),
        "month": period(0),
        "warnings": [],
    }


def test_usage_is_what_the_best_informed_node_says_and_warnings_are_named() -> None:
    usage = {"hour": period(90, 100), "month": period(5_000)}
    later = {"hour": period(95, 100), "month": period(5_005)}
    warning = {"limit": "hour", "used": 95, "nominal": 100, "restricted_at": 250}
    samples = [
        node("n1", 1, account("shop", 1, 1, usage=later, warnings=[warning])),
        node("n2", 1, account("shop", 1, 1, usage=usage, warnings=[])),
        node("n3", 1, account("over", 1, 1, usage={**usage, "month": period(2_500, 1_000)},
                              warnings=[{**warning, "limit": "month"}])),
    ]  # fmt: skip
    picture = picture_of(samples, samples)
    over, shop = picture["accounts"]
    assert (shop["hour"], shop["month"]) == (later["hour"], later["month"])
    assert (shop["warnings"], over["warnings"]) == (["hour"], ["month"])
    lines = lines_of(picture)
    assert lines[2].split()[-2:] == ["hour", "month"]
    assert lines[4].split()[-4:] == ["95", "of", "100", "5,005"]
    assert lines[5:] == [
        "  over has used 250% of its month: restricted until it ends",
        "  shop has used 95% of its hour: restricted at 250",
    ]


def test_a_node_that_is_new_or_has_restarted_counts_from_zero() -> None:
    before = [node("n1", 1, account("a", 5_000, 5_000))]
    after = [node("n1", 2, account("a", 10, 10)), node("n2", 2, account("a", 700, 700))]
    (one,) = picture_of(before, after)["accounts"]
    assert one["attempted"] == one["admitted"] == 10


def test_who_does_not_answer_is_named_by_whom_and_no_name_controls_the_terminal() -> None:
    bad = account("evil\x1b[2J\nname" + "x" * 100, 0, 0, heard_us=-1, per_s=0, master="")
    samples = [
        node("n1", 1, bad, failing={"n3": "refused"}),
        node("n2", 1, failing={"n3": "refused"}),
        NodeSample("http://n3", None, "refused"),
    ]
    lines = lines_of(picture_of(samples, samples))
    assert lines[0].startswith("2 of 3 nodes: 0 messages/s")
    assert "  http://n3 does not answer: refused" in lines
    assert "  n3 does not answer n1, n2" in lines
    assert "never" in lines[-1]
    assert not any("\x1b" in line or "\n" in line for line in lines)
    assert max(map(len, lines)) < 130


def test_the_busiest_accounts_come_first_and_the_rest_are_counted() -> None:
    before = [node("n1", 1)]
    counts = [account(f"a{number}", number * 10, 0) for number in range(30)]
    picture = picture_of([node("n1", 1, *[account(f"a{n}", 0, 0) for n in range(30)])], [
        node("n1", 2, *counts)
    ])  # fmt: skip
    lines = lines_of(picture, rows=3)
    assert [line.split()[0] for line in lines[3:6]] == ["a29", "a28", "a27"]
    assert lines[-1] == "  and 27 accounts more"
    assert picture_of(before, before)["accounts"] == []
