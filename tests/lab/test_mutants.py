"""Mutants planted in a private copy of the package: each is caught, and nothing is without one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import Final

import pytest

from tests.lab.hunt.copies import SOURCE, Copy, file_of
from tests.lab.mutants import (
    BY_SCENARIO,
    BY_TESTS,
    MUTANTS,
    CoreMutant,
    Mutant,
    ScenarioMutant,
)
from tests.prove.seeds import first, seeds, whole

IN_CI: Final = 6  # of them, others for each seed of the slice
QUICK: Final = ("epoch check left out", "retry budget never charged")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copy]:
    folder = tmp_path_factory.mktemp("mutants")
    yield Copy(folder)
    shutil.rmtree(folder)


def setup_of(mutant: Mutant) -> str:
    return file_of(mutant).read_text(encoding="utf-8")


def chosen() -> list[Mutant]:
    """All in `make prove`; a few that change with the seed in CI."""
    wish = seeds(full=1, part=1)
    if not wish:
        return []
    if whole():
        return list(MUTANTS)
    start = wish[0] * IN_CI
    return [MUTANTS[(start + n) % len(MUTANTS)] for n in range(IN_CI)]


def is_caught(mutant: Mutant, copy: Copy) -> None:
    setup = setup_of(mutant)
    assert copy.violations_of(setup) == [], "the code as it is breaks nothing"
    sound = copy.plant(mutant)
    try:
        assert mutant.breaks in copy.violations_of(setup)
    finally:
        copy.put(mutant.file, sound)


def test_each_mutant_names_text_that_stands_once() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    for mutant in MUTANTS:
        text = (SOURCE / mutant.file).read_text(encoding="utf-8")
        assert text.count(mutant.old) == 1, mutant.name
        assert mutant.old != mutant.new
        assert json.loads(setup_of(mutant))["stage"] == mutant.stage
    others: tuple[ScenarioMutant | CoreMutant, ...] = (*BY_SCENARIO, *BY_TESTS)
    for other in others:
        assert (SOURCE / other.file).read_text(encoding="utf-8").count(other.old) == 1, other.name


@pytest.mark.parametrize(
    "mutant", first(1, ((m,) for m in MUTANTS if m.name in QUICK)), ids=lambda m: m.name
)
def test_the_quickest_are_caught(mutant: Mutant, copy: Copy) -> None:
    is_caught(mutant, copy)


@pytest.mark.prove
@pytest.mark.parametrize("mutant", chosen(), ids=lambda m: m.name)
def test_every_mutant_is_caught(mutant: Mutant, copy: Copy) -> None:
    is_caught(mutant, copy)


@pytest.mark.prove
@pytest.mark.parametrize("mutant", BY_SCENARIO if whole() else (), ids=lambda m: m.name)
def test_what_breaks_no_invariant_loses_a_claim(mutant: ScenarioMutant, copy: Copy) -> None:
    assert copy.misses_of(mutant.scenario, mutant.case) == [], "the code as it is loses nothing"
    sound = copy.plant(mutant)
    try:
        assert copy.misses_of(mutant.scenario, mutant.case)
    finally:
        copy.put(mutant.file, sound)


@pytest.mark.prove
@pytest.mark.parametrize("mutant", BY_TESTS, ids=lambda m: m.name)
def test_core_mutant_fails_the_tests_of_its_file(mutant: CoreMutant, copy: Copy) -> None:
    sound = copy.plant(mutant)
    try:
        assert not copy.passes(mutant.tests)
    finally:
        copy.put(mutant.file, sound)
