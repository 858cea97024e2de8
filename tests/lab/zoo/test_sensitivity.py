"""Which constants matter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.zoo import sensitivity
from sluicegate.lab.zoo.play import Outcomes, Play
from sluicegate.lab.zoo.sensitivity import compare, lines
from tests.lab.zoo.shapes import SEED, outcomes, station

HERE = __name__
MATTERS = 8
IDLE = 0.5


class Fake(NamedTuple):
    name: str
    module: str
    attribute: str
    why: str = "a test"


CONSTANTS = (Fake("matters", HERE, "MATTERS"), Fake("idle", HERE, "IDLE"))


def test_each_constant_is_halved_and_doubled() -> None:
    shape = station(0.7)
    found = outcomes(shape, "nothing", "oracle")
    found["known"] = found["nothing"]
    bad = outcomes(station(3), "nothing")["nothing"]
    seen: list[tuple[str, object]] = []

    def play_all(plays: Sequence[Play]) -> list[Outcomes]:
        (one,) = plays
        assert one.change is not None
        assert one.candidates == ("known",)
        seen.append((one.change.attribute, one.change.value))
        return [{"known": bad if one.change.value == 4 else found["nothing"]}]

    plays = [Play(SEED, shape, ("known", "nothing", "oracle"))]
    rows = compare(plays, [found], play_all, CONSTANTS)
    assert seen == [("MATTERS", 4), ("MATTERS", 16), ("IDLE", 0.25), ("IDLE", 1.0)]
    assert [row.changed for row in rows] == [1, 0, 0, 0]
    assert rows[0].lost == ("service: small (known): of nothing",)
    assert not any(row.lost for row in rows[1:])
    assert "it changes nothing" in lines(rows)[-1]


def test_compiled_module_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "__file__", "constants.so")
    with pytest.raises(BadValue, match="interpreted"):
        compare([], [], lambda _: [], CONSTANTS)


def test_missing_list_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensitivity, "CONSTANTS", "sluicegate.nowhere.constants")
    with pytest.raises(BadValue, match="register"):
        sensitivity.registered()
