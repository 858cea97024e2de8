"""Measured costs become weights: those that were put in come out, and ranks are kept."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.apps.kv.calibration import CostSample, calibrate_costs, fit_costs, spearman
from sluicegate.apps.kv.chain import OPERATIONS
from sluicegate.apps.kv.weights import read_weights_file, weights_text
from sluicegate.contracts.errors import BadValue
from tests.engines.child import run_to_end

SHAPES = [(1, 64), (1, 16_384), (10, 640), (100, 6_400), (100, 102_400), (1_000, 64_000)]


def samples(operation: str, base: float, row: float, byte: float) -> list[CostSample]:
    return [
        CostSample(operation, rows, size, base + row * rows + byte * size) for rows, size in SHAPES
    ]


@given(st.floats(0.1, 1_000), st.one_of(st.just(0.0), st.floats(0.01, 100)), st.floats(0.0001, 0.1))
def test_costs_that_follow_the_model_are_found_again(base: float, row: float, byte: float) -> None:
    fit = fit_costs(samples("get", base, row, byte))
    for rows, size in SHAPES:
        true = base + row * rows + byte * size
        assert fit.cost_us(rows, size) == pytest.approx(true, rel=0.01)


def test_no_weight_is_below_zero_whatever_was_measured() -> None:
    noisy = [CostSample("get", rows, size, 10.0 - at) for at, (rows, size) in enumerate(SHAPES)]
    fit = fit_costs(noisy)
    assert fit.base_us > 0
    assert fit.row_us >= 0
    assert fit.byte_us >= 0


def test_a_get_of_one_row_is_one_unit_and_the_others_are_told_in_it() -> None:
    calibration = calibrate_costs(
        samples("get", 2.0, 0.0, 0.001) + samples("put", 170.0, 2.0, 0.002), overhead_us=18.0
    )
    assert calibration.unit_us == pytest.approx(20.0, rel=0.01)
    assert calibration.weights["put"].base_ru == pytest.approx(188 / 20, rel=0.02)
    assert calibration.weights["get"].byte_ru == pytest.approx(0.001 / 20, rel=0.02)
    assert calibration.rank == pytest.approx(1.0)
    with pytest.raises(BadValue, match="measure get too"):
        calibrate_costs(samples("put", 1, 1, 1))


def test_ranks_are_alike_only_if_they_are() -> None:
    assert spearman([1, 2, 3, 4], [10, 20, 30, 40]) == 1
    assert spearman([1, 2, 3, 4], [4, 3, 2, 1]) == -1
    assert spearman([1, 1, 2], [1, 1, 2]) == 1


def test_a_weights_file_says_what_it_was_written_from(tmp_path: Path) -> None:
    calibration = calibrate_costs(
        samples("get", 2.0, 0.0, 0.001) + samples("scan", 3.0, 0.5, 0.001)
    )
    path = tmp_path / "weights.toml"
    path.write_text(weights_text(calibration.weights, {"get": "a comment"}))
    read = read_weights_file(str(path))
    assert set(read) == set(OPERATIONS)
    assert read["scan"].row_ru == pytest.approx(calibration.weights["scan"].row_ru, rel=1e-4)
    assert read["put"].base_ru == 6  # the seed's


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("version = 2", "version"),
        ("version = 1\n[take]\nbase_ru = 1", "take"),
        ("version = 1\n[get]\nbase_ru = 1", "get"),
        ("version = 1\n[get]\nbase_ru = -1\nrow_ru = 0\nbyte_ru = 0\nms_ru = 0", "base_ru"),
        ("version = 1\n[get]\nbase_ru = nan\nrow_ru = 0\nbyte_ru = 0\nms_ru = 0", "base_ru"),
        ("version = 1\n[get]\nbase_ru = 0\nrow_ru = 0\nbyte_ru = 0\nms_ru = 0", "get"),
        ("get = [", "TOML"),
    ],
)
def test_a_wrong_weights_file_names_its_field(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "weights.toml"
    path.write_text(text)
    with pytest.raises(BadValue, match=message):
        read_weights_file(str(path))


def test_an_engine_is_calibrated_by_what_its_operations_take(tmp_path: Path) -> None:
    command = ["kv", "calibrate", "--engine", f"lmdb:{tmp_path / 'data'}", "--seconds", "1"]
    done = run_to_end([sys.executable, "-m", "sluicegate.cli", *command])
    assert done.returncode == 0, done.stderr
    path = tmp_path / "weights.toml"
    path.write_text(done.stdout)
    weights = read_weights_file(str(path))
    # What is synced costs more than what is read, a thousand rows more than ten.
    assert weights["put"].base_ru > 1.2 * weights["get"].base_ru
    assert weights["scan"].row_ru > 0
