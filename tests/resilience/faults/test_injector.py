"""The judgement of faults: whom they meet, by which draws, and that they are never silent."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue
from sluicegate.resilience.faults.injector import FaultDraws, FaultInjector
from sluicegate.resilience.faults.settings import FaultRule, FaultSettings, fault_settings
from sluicegate.telemetry.prometheus import page


def no_headers(name: str) -> str | None:
    return None


def picks(faults: FaultInjector, route: str, count: int) -> list[tuple[str, int] | None]:
    found = [faults.pick(route, no_headers) for _ in range(count)]
    return [None if one is None else (one.name, one.delay_us) for one in found]


def half(**more: object) -> FaultSettings:
    rule = FaultRule(share=0.5, delay_us=1_000, spread="exponential")
    return FaultSettings(on=True, seed=3, rules={"half": rule, **more})  # type: ignore[dict-item]


def test_nothing_is_injected_unless_it_is_switched_on() -> None:
    rules = {"all": FaultRule(status=500)}
    faults = FaultInjector(FaultSettings(rules=rules))
    assert faults.pick("/x", no_headers) is None
    faults.switch(on=True)
    assert faults.pick("/x", no_headers) is not None
    faults.switch(on=False)
    assert faults.pick("/x", no_headers) is None
    assert b"sluicegate_resilience_faults_on 0" in page(faults.families())
    assert b'sluicegate_resilience_faults_total{fault="all"} 1' in page(faults.families())


def test_a_warning_names_every_fault_at_start_and_when_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rules = {
        "slow": FaultRule(route="/price/*", share=0.1, delay_us=300_000, header="x-trial=1"),
        "gone": FaultRule(abort=True),
    }
    with caplog.at_level(logging.WARNING, "sluicegate.faults"):
        faults = FaultInjector(FaultSettings(on=True, rules=rules))
        faults.switch(on=False)
        FaultInjector(FaultSettings(rules=rules))
    on, off = (record.getMessage() for record in caplog.records)
    assert on == (
        "fault injection is ON: "
        "slow: waits 0.3 s (fixed), 10.00% of /price/* with x-trial=1; "
        "gone: breaks the connection, 100.00% of *"
    )
    assert off == "fault injection is off"


def test_health_is_spared() -> None:
    faults = FaultInjector(FaultSettings(on=True, rules={"all": FaultRule(status=503)}))
    assert faults.pick("/healthz", no_headers) is None
    assert faults.pick("/healthz/more", no_headers) is not None


@pytest.mark.parametrize(
    ("header", "value", "met"),
    [
        ("x-trial", "anything", True),
        ("x-trial", None, False),
        ("X-Trial=blue", "blue", True),
        ("X-Trial = blue", "blue", True),
        ("x-trial=blue", "green", False),
    ],
)
def test_a_header_says_whom_it_meets(header: str, value: str | None, met: bool) -> None:
    rules = {"one": FaultRule(header=header, abort=True)}
    faults = FaultInjector(FaultSettings(on=True, rules=rules))
    found = faults.pick("/x", lambda name: value if name == "x-trial" else None)
    assert (found is not None) is met


def test_the_same_seed_meets_the_same_requests_and_another_seed_others() -> None:
    first = picks(FaultInjector(half()), "/x", 200)
    assert picks(FaultInjector(half()), "/x", 200) == first
    other = FaultSettings(on=True, seed=4, rules=half().rules)
    assert picks(FaultInjector(other), "/x", 200) != first


def test_a_new_rule_leaves_the_draws_of_the_others_as_they_were() -> None:
    first = picks(FaultInjector(half()), "/x", 100)
    more = half(other=FaultRule(route="/y", status=500))
    assert picks(FaultInjector(more), "/x", 100) == first


@given(share=st.floats(0.05, 0.95), seed=st.integers(0, 1 << 60))
def test_it_meets_its_share(share: float, seed: int) -> None:
    rules = {"some": FaultRule(share=share, status=500)}
    faults = FaultInjector(FaultSettings(on=True, seed=seed, rules=rules))
    met = sum(one is not None for one in picks(faults, "/x", 400))
    assert abs(met / 400 - share) < 0.15  # six standard deviations


@pytest.mark.parametrize(("spread", "most"), [("even", 2_000), ("exponential", 5_000)])
def test_a_delay_is_spread_around_its_mean(spread: str, most: int) -> None:
    rule = FaultRule(delay_us=1_000, spread=spread, delay_us_max=5_000)
    faults = FaultInjector(FaultSettings(on=True, rules={"slow": rule}))
    delays = [one[1] for one in picks(faults, "/x", 2_000) if one is not None]
    assert 0 <= min(delays) < 100
    assert max(delays) <= most
    assert abs(sum(delays) / len(delays) - 1_000) < 100


def test_draws_are_numbers_from_0_to_1() -> None:
    draws = FaultDraws(1, "x")
    found = [draws.draw() for _ in range(1_000)]
    assert 0.0 <= min(found) < 0.01
    assert 0.99 < max(found) < 1.0


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (
            {"rules": {"a": {"share": 2.0, "abort": True}}},
            "faults.rules.a.share: 2.0 cannot be used; give a number from 0 to 1",
        ),
        (
            {"rules": {"a": {"delay": 5}}},
            "faults.rules.a.delay: 5 cannot be used; give one of route",
        ),
        ({"rules": {"a": {}}}, "faults.rules.a.delay_us: 0 cannot be used; give a delay, a status"),
        (
            {"rules": {"a": {"status": 200}}},
            "faults.rules.a.status: 200 cannot be used; give one that HTTP names",
        ),
        (
            {"rules": {"a": {"header": "x trial", "abort": True}}},
            "faults.rules.a.header: 'x trial' cannot be used; give a header's name",
        ),
        ({"rules": {"a": {"status": 500, "abort": True}}}, "give one of status, error and abort"),
        ({"rules": {"a b\n": {"abort": True}}}, "printable ASCII"),
        ({"rules": 5}, "faults.rules: 5 cannot be used; write it as a table"),
        ({"on": "yes"}, "faults.on: 'yes' cannot be used; give true or false"),
    ],
)
def test_wrong_settings_name_field_value_and_remedy(table: dict[str, object], words: str) -> None:
    with pytest.raises(BadValue) as caught:
        fault_settings(table)
    assert words in str(caught.value)
