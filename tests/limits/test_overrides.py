"""Another rate for one key, for a while, in every process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sluicegate import BadValue, Claim, Limiter
from sluicegate.limits.glass.sources import open_source
from tests.engines.child import until
from tests.engines.redis import RedisServer

RULES = {"login": "2/hour", "search": "2/hour"}


@pytest.fixture(params=["file", "redis"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return f"file:{tmp_path / 'overrides.json'}"
    server: RedisServer = request.getfixturevalue("redis_server")
    return server.url


def served(limiter: Limiter, key: str, rule: str = "login", times: int = 9) -> int:
    return sum(bool(limiter.take(key, rule=rule)) for _ in range(times))


def test_override_holds_for_its_key_alone(place: str) -> None:
    with Limiter(rules=RULES, glass=place, prefix="alone") as limiter:
        assert served(limiter, "ann") == 2
        one = limiter.override("ann", "5/hour", rule="login", ttl_s=60, by="ops", why="a launch")
        assert limiter.overrides() == [one]
        assert served(limiter, "ann") == 5
        assert served(limiter, "ann", "search") == 2
        assert served(limiter, "bob") == 2
        assert not limiter.take("ann", rule="login").overridden
        assert limiter.take("ann", rule="login").rule_id == "login override 5/hour"
        limiter.end_override(one.id, by="ops")
        assert limiter.overrides() == []
        assert served(limiter, "ann") == 0, "the earlier count is in force again"


def test_override_without_rule_holds_under_every_rule(place: str) -> None:
    with Limiter(rules=RULES, glass=place, prefix="every") as limiter:
        limiter.override("ann", "3/hour", ttl_s=60)
        assert [served(limiter, "ann", rule) for rule in RULES] == [3, 3]


def test_override_holds_for_every_operation(place: str) -> None:
    with Limiter(rules=RULES, glass=place, prefix="operations") as limiter:
        limiter.override("ann", "4/hour", ttl_s=60)
        assert limiter.peek("ann", 4, "login")
        assert limiter.judge(Claim("ann", "login")).decision
        assert limiter.wait("ann", rule="login", timeout_s=0)
        with limiter.reserve_all(Claim("ann", "login", 2)) as both:
            assert both.settle(1)
        assert limiter.reserve("ann", 1, "login")
        assert served(limiter, "ann") == 0
        booked = [limiter.book("ann", 1, "login") for _ in range(5)]
        assert [one is not None and one.retry_after_us > 0 for one in booked] == [False] * 4 + [
            True
        ]


def test_override_is_made_and_ended_from_a_loop(place: str) -> None:
    async def story() -> None:
        limiter = Limiter(rules=RULES, glass=place, prefix="loop")
        one = await limiter.aoverride("ann", "3/hour", ttl_s=60)
        assert [bool(await limiter.atake("ann", rule="login")) for _ in range(4)].count(True) == 3
        await limiter.aend_override(one.id)
        assert limiter.overrides() == []
        await limiter.aclose()

    asyncio.run(story())


def test_override_is_listed_and_audited(place: str) -> None:
    with Limiter(rules=RULES, glass=place, prefix="audit") as limiter:
        one = limiter.override("ann", "3/hour", ttl_s=60, by="ops", why="a launch")
        limiter.end_override(one.id, by="eve")

    async def audit() -> list[object]:
        source = open_source(place, prefix="audit")
        try:
            return list(await source.audit())
        finally:
            await source.close()

    lines = [(one.what, one.by, one.opening.rate) for one in asyncio.run(audit())]  # type: ignore[attr-defined]
    assert lines == [("break", "ops", "3/hour"), ("mend", "eve", "3/hour")]


OTHER = """
import sys
from sluicegate import Limiter
limiter = Limiter("1/hour", glass=sys.argv[1], prefix="other")
limiter.take("start following")
print("ready", flush=True)
sys.stdin.readline()
while not limiter.overrides():
    pass
print(limiter.overrides()[0].rate, flush=True)
"""


def test_override_reaches_other_processes(place: str) -> None:
    command = [sys.executable, "-c", OTHER, place]
    with (
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other,
        Limiter("1/hour", glass=place, prefix="other") as limiter,
    ):
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "ready\n"
        limiter.override("ann", "3/hour", ttl_s=60)
        began_s = time.monotonic()
        other.stdin.write("\n")
        other.stdin.flush()
        assert other.stdout.readline() == "3/hour\n"
        assert time.monotonic() - began_s < 30, "a second, on a machine that is not busy"


def test_second_override_of_a_key_replaces_the_first(place: str) -> None:
    with Limiter(rules=RULES, glass=place, prefix="second") as limiter:
        limiter.override("ann", "5/hour", rule="login", ttl_s=3_600, by="ops", why="a launch")
        other = limiter.override("ann", "4/hour", rule="search", ttl_s=60)
        one = limiter.override("ann", "3/hour", rule="login", ttl_s=60, by="eve", why="too much")
        assert limiter.overrides() == [other, one]
        assert served(limiter, "ann") == 3

    async def audit() -> list[object]:
        source = open_source(place, prefix="second")
        try:
            return list(await source.audit())
        finally:
            await source.close()

    lines = [(one.what, one.by, one.opening.rate) for one in asyncio.run(audit())]  # type: ignore[attr-defined]
    assert lines[2:] == [("mend", "eve", "5/hour"), ("break", "eve", "3/hour")]


def test_glass_of_true_is_the_store_of_the_limiter(redis_server: RedisServer) -> None:
    with (
        Limiter("2/hour", store_url=redis_server.url, glass=True, prefix="store") as limiter,
        Limiter("2/hour", glass=redis_server.url, prefix="store") as other,
    ):
        one = limiter.override("ann", "5/hour", ttl_s=60)
        other.take("start following")
        until(lambda: other.overrides() == [one], "it is followed elsewhere")
    with pytest.raises(BadValue, match="memory"):
        Limiter("2/hour", glass=True)
    with (
        Limiter("2/hour", store_url=redis_server.url) as limiter,
        pytest.raises(BadValue, match="glass=True"),
    ):
        limiter.override("ann", "5/hour", ttl_s=60)


def test_override_is_logged_in_its_own_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Limiter(rules=RULES, glass=f"file:{tmp_path / 'glass.json'}") as limiter:
        one = limiter.override("ann", "5/hour", rule="login", ttl_s=60, by="ops", why="a launch")
        limiter.end_override(one.id, by="ops")
    begun, ended = (record.message for record in caplog.records if one.id in record.message)
    assert begun.startswith(
        f"override: {one.id} holds key 'ann' to '5/hour' under rule 'login' until"
    )
    assert ended.startswith(f"override ended: {one.id} no longer holds key 'ann' to '5/hour'")


def test_override_of_wrong_values_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="glass"):
        Limiter("1/hour").override("ann", "3/hour", ttl_s=60)
    with Limiter("1/hour", glass=f"file:{tmp_path / 'glass.json'}") as limiter:
        for key, rate, ttl_s in (("ann", "3/fortnight", 60), ("*", "3/hour", 60), ("a", "1/s", 0)):
            with pytest.raises(BadValue):
                limiter.override(key, rate, ttl_s=ttl_s)
        assert limiter.overrides() == []
