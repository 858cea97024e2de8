from __future__ import annotations

from pathlib import Path

import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.lab.hunt import search
from sluicegate.lab.hunt.draws import STAGES, draw_setup
from sluicegate.lab.hunt.setup import (
    FILE_BYTES_MAX,
    HuntFault,
    HuntLoad,
    Setup,
    parse,
    read_file,
    render,
)

LOAD = HuntLoad(name="shop")


def setup_of(**changes: object) -> Setup:
    fields: dict[str, object] = {"stage": "server", "seed": 1, "span_ms": 100, "loads": (LOAD,)}
    return Setup(**{**fields, **changes})  # type: ignore[arg-type]


def test_every_setup_that_is_drawn_is_the_same_again_and_survives_its_file() -> None:
    stages = set()
    for seed in range(300):
        drawn = draw_setup(seed)
        assert drawn == draw_setup(seed)
        assert parse(render(drawn)) == drawn
        stages.add(drawn.stage)
    assert stages == set(STAGES) == set(search.STAGES)


def test_a_file_leaves_out_what_is_as_usual() -> None:
    text = render(setup_of(faults=(HuntFault(what="pause", until_ms=5),)), "bounded: it was not")
    assert '"breaks": "bounded: it was not"' in text
    assert '"per_s"' not in text
    assert '"knobs"' not in text
    assert '"until_ms": 5' in text


def test_a_load_claims_what_it_is_if_it_says_nothing() -> None:
    assert HuntLoad(name="a", criticality="bulk").claimed is Criticality.BULK
    bot = HuntLoad(name="bot", criticality="BULK", claims="CRITICAL")
    assert (bot.allowed, bot.claimed) == (Criticality.BULK, Criticality.CRITICAL)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"span_ms": 0}, "span_ms"),
        ({"seed": -1}, "seed"),
        ({"loads": ()}, "loads"),
        ({"loads": (LOAD, LOAD)}, "loads"),
    ],
)
def test_a_setup_that_cannot_be_played_names_the_field(
    change: dict[str, object], field: str
) -> None:
    with pytest.raises(BadValue, match=field):
        setup_of(**change)


@pytest.mark.parametrize("change", [{"per_s": -1}, {"callers": 0}, {"criticality": "vital"}])
def test_a_load_that_cannot_come_names_the_field(change: dict[str, object]) -> None:
    with pytest.raises(BadValue, match=rf"shop\.{next(iter(change))}"):
        HuntLoad(name="shop", **change)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    ["no json", "[]", "{}", '{"sluicegate_hunt": 2}', '{"sluicegate_hunt": 1, "stage": "server"}'],
)
def test_a_file_of_another_kind_is_refused(text: str) -> None:
    with pytest.raises(BadValue):
        parse(text)


def test_a_file_with_a_word_too_many_is_refused() -> None:
    text = render(setup_of()).replace('"name"', '"nome"')
    with pytest.raises(BadValue, match="compare it"):
        parse(text)


def test_a_file_larger_than_any_setup_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "huge.json"
    file.write_bytes(b" " * (FILE_BYTES_MAX + 1))
    with pytest.raises(BadValue, match="larger"):
        read_file(file)
