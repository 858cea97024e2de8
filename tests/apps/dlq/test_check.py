"""`sluicegate dlq check` reports what is wrong with a log, and by how much."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.apps.dlq.logs import dlq, letters_of, write
from tests.limits.planted import make_world, plant

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer


def test_a_true_log_is_all_as_it_should_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = write(f"files:{tmp_path}", letters_of(("ann", 4, True, 9), ("ann", 6, True, 8)))

    assert dlq("check", url) == 0
    assert capsys.readouterr().out == "2 letters, all as it should be\n"


def test_the_report_says_who_by_how_much_and_in_which_window(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    letters = letters_of(
        ("ann", 8, True, 9), ("ann", 5, True, 8), ("bob", 2, False, 7), ("cy", 1, True, 6)
    )
    url = write(f"files:{tmp_path}", [*letters[:3], letters[2]], closed=False)

    assert dlq("check", url) == 1

    output = capsys.readouterr().out
    assert output.startswith("3 letters, 1 wrongly admitted, 1 wrongly refused, 1 duplicated\n")
    assert "1 processes have not said that they ended" in output
    assert "wrongly admitted  ann by login  by 3: 2 of 5 were left of 10 (10 in 3,600 s)" in output
    assert "wrongly refused  bob by login  by 2: 10 were left" in output
    assert "ann by login: 2 letters, 13 units admitted, 3 beyond the limit, 0 refused" in output

    assert dlq("check", url, "--json", "--user", "bob") == 1
    fields = json.loads(capsys.readouterr().out)
    assert fields["counts"]["wrongly_refused"] == 1
    assert {one["user"] for one in fields["findings"]} == {"bob"}
    assert fields["still_open"] == ["n/1/1"]


def test_a_log_with_a_hundred_planted_errors_reports_exactly_those(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = make_world(11, processes=1)
    planted, expected = plant(world, range(0, 400, 4), Random(11))
    url = write(f"files:{tmp_path}/dlq", planted.letters, closed=False)
    decisions = tmp_path / "decisions.jsonl"
    decisions.write_text(
        "".join(
            json.dumps({
                "at_us": one.at_us, "user": one.user, "rule": one.rule_id, "weight": one.cost,
                "allowed": one.allowed, "degraded": one.degraded, "id": one.id,
            }) + "\n"
            for one in planted.decided
        )
    )  # fmt: skip

    assert dlq("check", url, "--decisions", str(decisions), "--json") == 1

    fields = json.loads(capsys.readouterr().out)
    assert expected.total() == 100
    assert sorted(f"{one['kind']} {one['id']}" for one in fields["findings"]) == sorted(expected)


def test_several_logs_are_read_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = write(f"files:{tmp_path}/1", letters_of(("ann", 6, True, 9), process="n/1/1"))
    two = write(f"files:{tmp_path}/2", letters_of(("ann", 6, True, 8), process="n/2/2"))

    assert dlq("check", one) == dlq("check", two) == 0
    assert dlq("check", one, two) == 1
    assert "by 2: 4 of 6 were left" in capsys.readouterr().out
    # Their folder stands for both.
    assert dlq("check", f"files:{tmp_path}?damage=stop") == 1
    assert "by 2: 4 of 6 were left" in capsys.readouterr().out


@pytest.mark.parametrize(
    "line",
    ["{", "[]", "{}", '{"at_us": 1, "user": 2, "rule": "r", "weight": 1, "allowed": true}'],
)
def test_decisions_that_cannot_be_read_are_named_by_file_and_line(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = write(f"files:{tmp_path}/dlq", letters_of(("ann", 1, True, 9)))
    file = tmp_path / "d.jsonl"
    file.write_text(f"\n{line}\n")

    assert dlq("check", url, "--decisions", str(file)) == 2
    assert f"sluicegate: {file}:2: " in capsys.readouterr().err
    assert dlq("check", url, "--decisions", str(tmp_path / "gone")) == 1


def test_the_counters_and_the_letters_together_may_be_over_the_limit(
    redis_server: RedisServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import asyncio

    from sluicegate.contracts.store import Charge, SharedKey
    from sluicegate.limits.late_charges import shared_id
    from sluicegate.limits.stores import open_stores
    from tests.apps.dlq.logs import TEN_AN_HOUR

    async def count() -> None:
        stores = open_stores(redis_server.url, "rate_limit")
        charge = Charge(shared_id(TEN_AN_HOUR), TEN_AN_HOUR, SharedKey("ann", "login"), 7)
        assert (await stores.here().take([charge])).allowed
        await stores.aclose()

    asyncio.run(count())
    url = write(f"files:{tmp_path}", letters_of(("ann", 5, True, 9), ("bob", 5, True, 8)))

    assert dlq("check", url, "--store", redis_server.url) == 1

    output = capsys.readouterr().out
    assert "2 letters, 1 over the limit now" in output
    assert "ann by login  by 2: the store has counted 7, and 1 letters hold 5" in output
    assert dlq("check", url, "--store", redis_server.url, "--user", "bob") == 0
