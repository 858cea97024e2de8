"""Proofs that CI plays: one in four in each run, and all of them after some weeks."""

from __future__ import annotations

import pytest

from tests.prove.seeds import DRAWN, is_drawn

NAMES = [f"tests/test_a.py::test_{number}" for number in range(200)]


def test_draws_of_slices_reach_every_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICEGATE_PROVE", "slice")
    seen = set[str]()
    for seed in range(60):
        monkeypatch.setenv("SLUICEGATE_PROVE_SEED", str(seed))
        drawn = {name for name in NAMES if is_drawn(name)}
        assert 0.5 < len(drawn) * DRAWN / len(NAMES) < 1.5
        seen |= drawn
    assert len(seen) == len(NAMES)


@pytest.mark.parametrize("wish", ["full", ""])
def test_every_proof_is_played_in_full(monkeypatch: pytest.MonkeyPatch, wish: str) -> None:
    monkeypatch.setenv("SLUICEGATE_PROVE", wish)
    assert all(map(is_drawn, NAMES))
