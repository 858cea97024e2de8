from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from sluicegate import Decision, Limiter
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.contracts.guard import Guard as AnyGuard
from sluicegate.contracts.guard import Judgement
from sluicegate.limits.claims import Claim
from sluicegate.limits.rule import RuleLike
from sluicegate.rules.problems import BadRules
from sluicegate.rules.web.guard import GuardLimiter, RulesGuard
from sluicegate.rules.web.rule_set import WebRuleSet
from sluicegate.testing import START_US, HandClock
from tests.rules.web.arrivals import PlainArrival

LOGIN = {"match": {"path": "/login"}, "key": "address", "limit": "2/minute"}
API = {"match": {"path": "/api/**"}, "key": "user", "limit": "3/minute"}


class Recorder:
    """A limiter that admits all and remembers what it was asked and told."""

    def __init__(self) -> None:
        self.rules: list[set[str]] = []
        self.claims: list[tuple[Claim, ...]] = []

    def judge(self, *claims: Claim) -> Judgement:
        self.claims.append(claims)
        return Judgement(Decision(True, 1, 0, 0, None, "x"), [])

    async def ajudge(self, *claims: Claim) -> Judgement:
        return self.judge(*claims)

    def replace_rules(self, rules: Mapping[str, RuleLike]) -> None:
        self.rules.append(set(rules))


def text(login: str = "2/minute", api: str = "3/minute", more: str = "") -> str:
    return f"""
version: 1
rules:
  login: {{match: {{path: /login}}, key: address, limit: {login}}}
  api: {{match: {{path: /api/**}}, key: user, limit: {api}}}
{more}
"""


def test_it_is_a_guard_over_any_limiter() -> None:
    limits: GuardLimiter = Recorder()
    guard: AnyGuard = RulesGuard([{"rule_id": "a", "key": "address", "limit": "1/s"}], limits)
    judgement = guard.judge(PlainArrival())
    assert judgement is not None
    assert judgement.decision.allowed


def test_it_claims_what_matches_and_asks_nobody_where_nothing_does() -> None:
    recorder = Recorder()
    guard = RulesGuard({"rules": {"login": LOGIN, "api": API}}, recorder)
    assert guard.judge(PlainArrival("/other")) is None
    assert asyncio.run(guard.ajudge(PlainArrival("/other"))) is None
    assert recorder.claims == []
    guard.judge(PlainArrival("/login"))
    asyncio.run(guard.ajudge(PlainArrival("/api/x", user="ann")))
    assert recorder.claims == [
        (Claim("address:10.0.0.1", "login", 1),),
        (Claim("user:ann", "api", 1),),
    ]
    assert recorder.rules == [{"login", "api"}]


def test_a_refusal_names_its_rule_and_takes_nothing_from_the_others() -> None:
    clock = HandClock()
    limiter = Limiter(clock=clock)
    rules = {
        "each": {"key": "user", "limit": "2/minute"},
        "all": {"key": "everyone", "limit": "100/minute"},
    }
    guard = RulesGuard({"rules": rules}, limiter)
    judgements = [guard.judge(PlainArrival(user="ann")) for _ in range(4)]
    assert [one is not None and one.decision.allowed for one in judgements] == [
        True,
        True,
        False,
        False,
    ]
    judgement = judgements[-1]
    assert judgement is not None
    assert judgement.decision.rule_id == "each"
    assert [one.name for one in judgement.decisions] == ["each", "all"]
    assert limiter.peek("everyone", 0, "all").remaining == 98


def test_two_rules_never_share_a_bucket() -> None:
    guard = RulesGuard(
        {
            "rules": {
                "a": {"match": {"path": "/a"}, "key": "user", "limit": "1/minute"},
                "b": {"match": {"path": "/b"}, "key": "user", "limit": "1/minute"},
            }
        },
        Limiter(clock=HandClock()),
    )
    for path in ("/a", "/b"):
        judgement = guard.judge(PlainArrival(path, user="ann"))
        assert judgement is not None
        assert judgement.decision.allowed


def test_trials_admit_and_report() -> None:
    guard = RulesGuard(
        {"rules": {"trial": {"key": "user", "limit": "1/minute", "mode": "shadow"}}},
        Limiter(clock=HandClock()),
    )
    decisions = [guard.judge(PlainArrival(user="ann")) for _ in range(2)]
    assert decisions[1] is not None
    assert decisions[1].decision.allowed
    assert decisions[1].decision.shadow


def test_who_goes_unlimited_for_want_of_a_key_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    guard = RulesGuard(
        [{"rule_id": "a", "key": "user", "limit": "1/s", "or_key": "skip"}], Recorder()
    )
    with caplog.at_level(logging.WARNING, "sluicegate.rules"):
        assert [guard.judge(PlainArrival()) for _ in range(3)] == [None] * 3
    assert guard.status().keyless == {"a": 3}
    assert len(caplog.records) == 1
    assert "'a' did not apply" in caplog.text


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(text())
    return path


def spent(guard: RulesGuard, path: str) -> int:
    """How often it admits until it refuses."""
    for times in range(100):
        judgement = guard.judge(PlainArrival(path, user="ann"))
        assert judgement is not None
        if not judgement.decision.allowed:
            return times
    return 100


def test_a_good_file_takes_over_and_unchanged_limits_keep_their_counts(file: Path) -> None:
    clock = HandClock()
    guard = RulesGuard(file, Limiter(clock=clock), watch_every_s=None, clock=clock)
    first = guard.version
    assert (spent(guard, "/login"), spent(guard, "/api/x")) == (2, 3)
    clock.advance(s=1)
    file.write_text(text(api="9/minute"))
    assert guard.reload()
    assert guard.version != first
    assert spent(guard, "/login") == 0  # still spent
    assert spent(guard, "/api/x") > 0  # another limit
    status = guard.status()
    assert status == (str(file), guard.version, 2, START_US + 1_000_000, "", 0, {})


def test_a_bad_file_changes_nothing_and_says_why(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = HandClock()
    guard = RulesGuard(file, Limiter(clock=clock), watch_every_s=None, clock=clock)
    before = guard.book
    clock.advance(s=5)
    file.write_text(text(login="2/fortnight"))
    with caplog.at_level(logging.WARNING, "sluicegate.rules"):
        assert not guard.reload()
    assert guard.book is before
    status = guard.status()
    assert "line 4: rules.login.limit: '2/fortnight'" in status.error
    assert (status.loaded_us, status.failed_us) == (START_US, START_US + 5_000_000)
    assert f"stay as they are (version {before.version})" in caplog.text
    assert spent(guard, "/login") == 2
    file.unlink()
    assert not guard.reload()
    assert "No such file" in guard.status().error
    file.write_text(text())
    assert guard.reload()
    assert guard.status().error == ""
    assert guard.book is before  # the same bytes as before


def test_for_one_generation_the_limiter_knows_the_rules_that_have_gone(file: Path) -> None:
    recorder = Recorder()
    guard = RulesGuard(file, recorder, watch_every_s=None)
    more = "  more: {key: user, limit: 1/s}"
    file.write_text(text(more=more).replace("login:", "signin:"))
    guard.reload()
    file.write_text(text(more=more))
    guard.reload()
    assert recorder.rules == [
        {"login", "api"},
        {"login", "api", "signin", "more"},
        {"signin", "login", "api", "more"},
    ]


def test_a_book_from_elsewhere_can_be_put_in_force() -> None:
    guard = RulesGuard(
        [{"rule_id": "a", "key": "user", "limit": "1/s"}], Limiter(clock=HandClock())
    )
    assert guard.reload()
    guard.replace(WebRuleSet.of([{"rule_id": "b", "key": "user", "limit": "7/s"}]))
    judgement = guard.judge(PlainArrival(user="ann"))
    assert judgement is not None
    assert (judgement.decision.rule_id, judgement.decision.remaining) == ("b", 6)


def test_a_file_that_is_wrong_at_the_start_is_raised(file: Path) -> None:
    before = threading.active_count()
    file.write_text("version: 7")
    with pytest.raises(BadRules):
        RulesGuard(file, Recorder())
    with pytest.raises(Unavailable):
        RulesGuard(file.with_name("nope.yaml"), Recorder())
    with pytest.raises(BadValue):
        RulesGuard(file.with_name("rules.json"), Recorder())
    with pytest.raises(BadValue, match="every_s"):
        RulesGuard(file, Recorder(), watch_every_s=0)
    assert threading.active_count() == before


def until(met: Callable[[], bool]) -> None:
    """Wait for what another thread does."""
    waiting = threading.Event()
    for _ in range(1_000):
        if met():
            return
        waiting.wait(0.01)
    pytest.fail("it did not come to pass")


def test_a_watched_file_is_followed(file: Path) -> None:
    with RulesGuard(file, Limiter(clock=HandClock()), watch_every_s=0.01) as guard:
        file.write_text(text(login="5/minute"))  # in place
        until(lambda: spent(guard, "/login") == 5)
        file.write_text("version: 1\nrules: {")
        until(lambda: "this is not YAML" in guard.status().error)
        new = file.with_name("new.yaml")
        new.write_text(text(login="9/minute"))
        new.rename(file)
        until(lambda: guard.status().error == "" and spent(guard, "/login") == 9)
        good = guard.version
        file.unlink()
        until(lambda: "No such file" in guard.status().error)
        assert guard.version == good
    file.write_text(text())
    assert guard.version == good  # nobody watches any more


def test_a_guard_that_nobody_holds_ends_its_thread(file: Path) -> None:
    before = threading.active_count()
    guard = RulesGuard(file, Recorder(), watch_every_s=0.01)
    assert threading.active_count() == before + 1
    del guard
    gc.collect()
    until(lambda: threading.active_count() == before)


def test_judging_goes_on_while_rules_are_replaced(file: Path) -> None:
    guard = RulesGuard(file, Limiter(), watch_every_s=None)
    wrong: list[BaseException] = []
    done = threading.Event()

    def judge() -> None:
        try:
            while not done.is_set():
                guard.judge(PlainArrival("/login"))
                guard.judge(PlainArrival("/signin"))
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=judge) for _ in range(3)]
    for thread in threads:
        thread.start()
    for turn in range(20):
        other = text().replace("login:", "signin:") if turn % 2 else text(login=f"{turn + 1}/s")
        file.write_text(other)
        assert guard.reload()
    done.set()
    for thread in threads:
        thread.join()
    assert wrong == []
