"""`sluicegate dlq replay` charges a real store with what it has not counted, once."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sluicegate import Limiter
from sluicegate.apps.dlq.letters import with_timeout
from sluicegate.contracts.rule import Algorithm, Limit
from sluicegate.limits.rule import Rule
from tests.apps.dlq.logs import TEN_AN_HOUR, dlq, letters_of, write

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer


def remaining(server: RedisServer, user: str, limit: Limit = TEN_AN_HOUR) -> int:
    """What a limiter that shares the store and the rule's name sees."""

    async def look() -> int:
        limiter = Limiter(store_url=server.url, rules={"login": Rule(limit, failure="closed")})
        try:
            return (await limiter.apeek(user, 0, "login")).remaining
        finally:
            await limiter.aclose()

    return asyncio.run(look())


def test_what_was_admitted_is_charged_once_however_often_it_is_replayed(
    redis_server: RedisServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = write(
        f"files:{tmp_path}",
        letters_of(("ann", 4, True, 9), ("ann", 2, False, 8), ("bob", 1, True, 7)),
    )

    assert dlq("replay", url, "--store", redis_server.url, "--dry-run") == 0
    assert "ann by login: 4 units of 1 letters would be charged" in capsys.readouterr().out
    assert remaining(redis_server, "ann") == 10

    assert dlq("replay", url, "--store", redis_server.url) == 0
    output = capsys.readouterr().out
    assert "3 letters: 5 units charged, in 2 of 2 places" in output
    assert (remaining(redis_server, "ann"), remaining(redis_server, "bob")) == (6, 9)

    assert dlq("replay", url, "--store", redis_server.url) == 0
    assert "3 letters: 0 units charged" in capsys.readouterr().out
    assert (remaining(redis_server, "ann"), remaining(redis_server, "bob")) == (6, 9)


def test_what_comes_later_is_charged_by_the_next_replay_alone(
    redis_server: RedisServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    letters = letters_of(("ann", 4, True, 9), ("ann", 1, True, 8))
    url = write(f"files:{tmp_path}/dlq", letters[:1], closed=False)
    assert dlq("replay", url, "--store", redis_server.url) == 0
    write(url, letters[1:])
    capsys.readouterr()

    assert dlq("replay", url, "--store", redis_server.url, "--json") == 0
    fields = json.loads(capsys.readouterr().out)
    assert [(place["units"], place["counted_before"]) for place in fields["places"]] == [(1, 4)]
    assert remaining(redis_server, "ann") == 5


def test_a_letter_whose_window_has_passed_charges_nothing(
    redis_server: RedisServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limit = Limit(10, period_us=60_000_000, algorithm=Algorithm.SLIDING_WINDOW)
    url = write(
        f"files:{tmp_path}", letters_of(("ann", 4, True, 600), ("ann", 3, True, 1), limit=limit)
    )

    assert dlq("replay", url, "--store", redis_server.url) == 0
    assert "3 units of 1 letters charged" in capsys.readouterr().out
    assert remaining(redis_server, "ann", limit) == 7


def test_no_more_is_charged_than_the_limit_can_hold(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    url = write(f"files:{tmp_path}", letters_of(("ann", 400, True, 9), ("bob", 9, True, 8)))

    assert dlq("replay", url, "--store", redis_server.url, "--user", "ann") == 0
    assert (remaining(redis_server, "ann"), remaining(redis_server, "bob")) == (0, 10)


def test_a_check_after_the_replay_counts_no_letter_twice(
    redis_server: RedisServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = write(f"files:{tmp_path}", letters_of(("ann", 6, True, 9)))
    assert dlq("replay", url, "--store", redis_server.url) == 0
    assert dlq("check", url, "--store", redis_server.url) == 0


def test_a_store_that_is_away_is_said_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = write(f"files:{tmp_path}", letters_of(("ann", 6, True, 9)))

    assert dlq("replay", url, "--store", "redis://127.0.0.1:1") == 1
    fields = capsys.readouterr().err
    assert "is unavailable" in fields
    assert fields.count("\n") == 1


def test_many_users_are_charged_and_the_progress_is_told(
    redis_server: RedisServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    users = [(f"user-{n}", 1 + n % 3, True, 5) for n in range(2_100)]
    url = write(f"files:{tmp_path}", letters_of(*users))

    assert dlq("replay", url, "--store", redis_server.url) == 0

    output = capsys.readouterr()
    assert "2,100 letters: 4,200 units charged, in 2,100 of 2,100 places" in output.out
    assert output.err.splitlines() == [
        "sluicegate: 1,000 of 2,100 places",
        "sluicegate: 2,000 of 2,100 places",
    ]
    assert remaining(redis_server, "user-2000") == 10 - (1 + 2_000 % 3)


def test_a_store_is_given_more_time_than_a_decision_unless_its_url_says_how_much() -> None:
    assert with_timeout("redis://h") == "redis://h?timeout_ms=2000"
    assert with_timeout("redis+cluster://h?db=0") == "redis+cluster://h?db=0&timeout_ms=2000"
    assert with_timeout("redis://h?timeout_ms=5") == "redis://h?timeout_ms=5"
    assert with_timeout("sluicegate://h") == "sluicegate://h"
