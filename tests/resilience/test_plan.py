"""The plan of settings: its numbers, its warnings, and the file that all of it is read from."""

from __future__ import annotations

import asyncio
import tomllib
from pathlib import Path

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.request import Request
from sluicegate.policies.client.call_result import CallResult, ResultKind
from sluicegate.resilience.client.calls import Call, ResilientClient
from sluicegate.resilience.kit import build_client, build_dependencies
from sluicegate.resilience.plan import plan_of
from sluicegate.resilience.settings import Resilience, resilience_settings
from sluicegate.testing import SeededChance

EXAMPLE = Path(__file__).parents[2] / "examples" / "resilience.toml"


def settings_of(text: str) -> Resilience:
    return resilience_settings(tomllib.loads(text))


def warnings_of(text: str) -> tuple[str, ...]:
    return plan_of(settings_of(text)).warnings


CALM = """
plan = { deadline_us = 1_000_000 }
client = { timeout_us = 800_000, attempt_us = 200_000 }
"""


def test_twenty_dependencies_with_and_without() -> None:
    plan = plan_of(Resilience.load(EXAMPLE))
    assert plan.without == pytest.approx(0.999**20)
    core, extras = plan.dependencies
    assert plan.answered == pytest.approx(core.repeated**8)
    assert plan.complete == pytest.approx(core.repeated**8 * extras.repeated**12)
    assert plan.answered > 0.9995
    assert plan.without < 0.99 < plan.complete < 0.995
    assert plan.warnings == ()


def test_a_longest_call_is_attempts_and_waits_up_to_what_is_granted() -> None:
    one = "dependencies = { a = { } }"
    retry = "\n[client.retry]\nbase_us = 10_000\nattempts = [3, 3, 3, 1]\n"
    client = "[client]\ntimeout_us = 5_000_000\nattempt_us = 100_000"
    assert plan_of(settings_of(f"{one}\n{client}{retry}")).time_us == 330_000
    client = "[client]\ntimeout_us = 200_000\nattempt_us = 100_000"
    assert plan_of(settings_of(f"{one}\n{client}{retry}")).time_us == 200_000
    soft = "dependencies = { a = { soft = true, timeout_us = 50_000 } }"
    assert plan_of(settings_of(f"{soft}\n{client}{retry}")).time_us == 50_000
    client = "[client]\ntimeout_us = 5_000_000\nattempt_us = 5_000_000"
    deadline = "plan = { deadline_us = 70_000 }"
    assert plan_of(settings_of(f"{one}\n{deadline}\n{client}{retry}")).time_us == 70_000


def test_one_after_another_adds_up_and_together_does_not() -> None:
    text = CALM + "dependencies = { a = { count = 3 }, b = { } }"
    together = plan_of(settings_of(text)).time_us
    apart = settings_of(text.replace("1_000_000 }", "1_000_000, together = false }"))
    assert plan_of(apart).time_us == 4 * together


def test_what_is_not_idempotent_is_tried_once() -> None:
    (one,) = plan_of(settings_of("dependencies = { pay = { idempotent = false } }")).dependencies
    assert (one.attempts, one.calls) == (1, 1)
    assert one.repeated == pytest.approx(0.999)


def test_each_attempt_may_have_its_hedges() -> None:
    retry = "[client.retry]\nattempts = [3, 3, 3, 1]\n[plan]\nlayers = [2]\n"
    dependencies = "[dependencies]\na = { }\npay = { idempotent = false }\n"
    for hedge, calls in (("", 6), ("[client.hedge]\n", 12), ("[client.hedge]\nhedges_max = 2", 18)):
        one, pay = plan_of(settings_of(dependencies + retry + hedge)).dependencies
        assert (one.calls, pay.calls) == (calls, 2)
    most = "dependencies = { a = { hedge = true, attempts = 100 } }"
    assert plan_of(settings_of(most)).calls == 200


def test_while_all_fail_the_load_is_bounded_by_the_budget_and_not_by_the_attempts() -> None:
    text = "dependencies = { a = { attempts = 4 } }\nclient = { retry_budget = { %s } }"
    for milli, load in ((100, 1.1), (0, 1.0), (10_000, 4.0)):
        (one,) = plan_of(settings_of(text % f"deposit_milli = {milli}")).dependencies
        assert one.storm == pytest.approx(load)


@pytest.mark.parametrize("budget_milli", [100, 10_000])
def test_the_load_while_all_fail_is_what_a_real_client_sends(budget_milli: int) -> None:
    text = (
        "dependencies = { a = { } }\n[client.retry]\nbase_us = 1\nwait_us_max = 1\n"
        "attempts = [3, 3, 3, 1]\n[client.throttle]\nrequests_min = 100_000\n"
        "[client.breaker]\nfailures_in_row = 1_000_000\n"
        f"[client.retry_budget]\nreserve_milli_per_s = 0\n"
        f"deposit_milli = {budget_milli}\n"
    )
    settings = settings_of(text)
    client = build_client(settings, chance=SeededChance(1))
    sent = failing_calls(client, 300)
    (one,) = plan_of(settings).dependencies
    assert sent / 300 == pytest.approx(one.storm, rel=0.1)


def failing_calls(client: ResilientClient, count: int) -> int:
    sent = 0

    def fail(call: Call) -> CallResult[None]:
        nonlocal sent
        sent += 1
        return CallResult(ResultKind.UNREACHED, error=ConnectionError("down"))

    for number in range(count):
        # An operation each has a breaker each, so none opens; the budget is the backend's.
        client.call_now(fail, Request("", shard="a", operation=str(number)), idempotent=True)
    return sent


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("dependencies = { a = { } }", "plan.deadline_us is 0: no caller's deadline"),
        (
            "plan = { deadline_us = 100_000 }\ndependencies = { a = { } }",
            "client.timeout_us (10 s) is longer than the callers wait",
        ),
        (
            CALM + 'endpoints = { "/x" = { timeout_s = 2.0 } }',
            "endpoints./x.timeout_s (2 s) is longer than the callers wait (1 s)",
        ),
        (
            CALM + "dependencies = { pay = { idempotent = false, attempts = 3 } }",
            "dependencies.pay.attempts is 3 and it is not idempotent",
        ),
        (
            CALM + "dependencies = { pay = { idempotent = false, hedge = true } }",
            "dependencies.pay.hedge is on and it is not idempotent",
        ),
        (
            CALM + "dependencies = { a = { hedge = true } }",
            "dependencies.a.hedge is on and there is no [client.hedge]",
        ),
        (
            CALM.replace("1_000_000 }", "1_000_000, layers = [3, 3] }") + "dependencies.a = { }",
            "3 layers repeat the same work: 3 x 3 x 3 = 27 calls",
        ),
        (
            CALM + "dependencies = { a = { attempt_us = 900_000 } }",
            "an attempt may take 0.9 s and the whole call has 0.8 s",
        ),
        (
            CALM.replace("1_000_000 }", "1_000_000, together = false }")
            + "dependencies = { a = { count = 2 } }",
            "one after another the dependencies take up to 1.6 s",
        ),
    ],
)
def test_it_warns_of_what_hurts(text: str, words: str) -> None:
    assert any(words in warning for warning in warnings_of(text)), warnings_of(text)


def test_it_warns_of_nothing_that_is_fine() -> None:
    """The control: what is warned of above is not found where nothing is wrong."""
    assert warnings_of(CALM + "dependencies = { a = { } }") == ()
    once = CALM.replace("1_000_000 }", "1_000_000, layers = [1, 1] }")
    assert warnings_of(once + "dependencies = { a = { } }") == ()
    pay = "dependencies = { pay = { idempotent = false, attempts = 1 } }"
    assert warnings_of(CALM + pay) == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("dependencies = 5", "resilience.dependencies: 5 cannot be used; write it as a table"),
        ("dependencies = { a = { availability = 2.0 } }", "resilience.dependencies.a.availability"),
        ("dependencies = { a = { softy = true } }", "resilience.dependencies.a.softy"),
        ("dependencies = { a = { count = 1001 } }", "give a number from 1 to 1,000"),
        ("dependencies = { a = { count = 600 }, b = { count = 600 } }", "name at most 1,000"),
        ("plan = { layers = 3 }", "resilience.plan.layers: 3 cannot be used; give a list"),
        ("plan = { layers = ['x'] }", "plan.layers: ['x'] cannot be used; give a list of whole"),
        ("client = { retry = 5 }", "client.retry: 5 cannot be used"),
        ("faults = { rules = { a = { } } }", "faults.rules.a.delay_us"),
    ],
)
def test_wrong_settings_name_field_value_and_remedy(text: str, words: str) -> None:
    with pytest.raises(BadValue) as caught:
        settings_of(text)
    assert words in str(caught.value)


def test_one_file_builds_the_whole(tmp_path: Path) -> None:
    file = tmp_path / "resilience.toml"
    file.write_text(
        "port = 1\n[resilience]\nslots = 7\n[resilience.client]\ntimeout_us = 9_000\n"
        "[resilience.dependencies.trends]\nsoft = true\ncap = 1\ntimeout_us = 20_000\n"
        "[resilience.dependencies.price]\n[resilience.faults.rules.a]\nabort = true\n"
    )
    settings = Resilience.load(file)
    assert (settings.slots, settings.client.timeout_us) == (7, 9_000)
    assert list(settings.faults.rules) == ["a"]
    assert build_client(settings).settings is settings.client
    found = build_dependencies(settings)
    assert found["price"].fallback is None

    async def never() -> str:
        await asyncio.Event().wait()
        return ""

    async def play() -> tuple[bool, bool]:
        late = await found["trends"].call(never, default=str)
        hard = await found["price"].call(lambda: asyncio.sleep(0, "4.99"))
        return late.degraded, hard.unwrap() == "4.99"

    assert asyncio.run(play()) == (True, True)


@pytest.mark.parametrize("text", ["not = = toml", None])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "bad.toml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(BadValue, match=r"bad\.toml"):
        Resilience.load(file)
