from __future__ import annotations

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.arguments import parse_service, parse_share, parse_us
from sluicegate.lab.durations import Bimodal, Constant, Exponential, Lognormal, Pareto

MEAN = 1_000_000


def test_service_times_are_named() -> None:
    assert parse_service("--service", "constant", MEAN) == Constant(1_000_000)
    assert parse_service("--service", "exponential", MEAN) == Exponential(1e6)
    assert parse_service("--service", "lognormal", MEAN) == Lognormal(1e6, 1.0)
    assert parse_service("--service", "lognormal:0.5", MEAN) == Lognormal(1e6, 0.5)
    assert parse_service("--service", "pareto", MEAN) == Pareto(1e6, 1.5)
    assert parse_service("--service", "pareto:3", MEAN) == Pareto(1e6, 3.0)


def test_two_modes_have_the_mean_that_was_asked_for() -> None:
    found = parse_service("--service", "bimodal:5%/20", MEAN)
    assert isinstance(found, Bimodal)
    assert found.mean_us == pytest.approx(MEAN, rel=1e-5)
    assert found.seldom.mean_us == pytest.approx(20 * found.often.mean_us, rel=1e-4)
    assert found.rare == 0.05


@pytest.mark.parametrize(
    "text",
    [
        "uniform",
        "constant:3",
        "lognormal:x",
        "lognormal:9",
        "pareto:1",
        "pareto:many",
        "pareto:",
        "pareto:\uff12",
        "bimodal:5%/",
        "bimodal:0%/3",
        "bimodal:5%/0.5",
        "bimodal:5%/x",
        "",
    ],
)
def test_a_distribution_that_is_none_is_refused_by_its_flag(text: str) -> None:
    with pytest.raises(BadValue, match=r"--service.*exponential, constant, lognormal"):
        parse_service("--service", text, MEAN)


def test_times_have_a_unit() -> None:
    assert parse_us("--work", "30ms") == 30_000
    assert parse_us("--work", "1.5 s") == 1_500_000
    assert parse_us("--work", "250us") == 250
    assert parse_us("--work", "2min") == 120_000_000
    for text in (
        "30",
        "30 minutes",
        "ms",
        "-3ms",
        "0s",
        "nan s",
        "inf s",
        "1e9h",
        "\uff15ms",
        "1_0ms",
        "",
    ):
        with pytest.raises(BadValue, match=r"--work.*30ms, 0\.5s"):
            parse_us("--work", text)


def test_shares_are_parts_or_percent() -> None:
    assert parse_share("--mix", "20%") == 0.2
    assert parse_share("--mix", "0.2") == 0.2
    for text in ("0", "120%", "x%", "nan", "\u0662\u0660%", ""):
        with pytest.raises(BadValue, match=r"--mix.*20% or 0\.2"):
            parse_share("--mix", text)
