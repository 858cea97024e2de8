"""Every store on a disk that fails writes and syncs, tears writes, and loses power.

After a restart on a good disk every acknowledged write is read, no value is wrong, and a process
that survives recovers once the disk does.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from sluicegate.contracts.errors import DataLoss
from tests.prove.disk.shim import faults
from tests.prove.disk.stores import CONTROLS, NUMBERS, STORES, found_in, value_of
from tests.prove.seeds import seeds

CALLS_MAX = 250  # of the disk in one run, about: power is lost at one of them
PERMILLE = 40  # of the calls that fail


class Outcome(NamedTuple):
    """The output of a process, and how it ended."""

    acknowledged: frozenset[int]
    lines: list[str]
    killed: bool
    faults: int


def run(name: str, folder: Path, **settings: object) -> Outcome:
    arm, log = folder.with_name("arm"), folder.with_name("faults")
    program = [sys.executable, "-m", "tests.prove.disk.child", name, str(folder), str(arm)]
    env = faults(folder, arm=arm, log=log, **settings)
    done = subprocess.run(program, env=env, capture_output=True, text=True, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    lines = done.stdout.splitlines()
    acknowledged = frozenset(int(line.split()[1]) for line in lines if line.startswith("ok "))
    count = len(log.read_text().splitlines()) if log.exists() else 0
    return Outcome(acknowledged, lines, done.returncode != 0, count)


def check(name: str, outcome: Outcome, folder: Path) -> None:
    kinds = CONTROLS if name.startswith("control ") else STORES
    found = found_in(kinds[name.removeprefix("control ")], folder)
    told = [line for line in outcome.lines if line.startswith(("wrong", "stuck"))]
    assert not told
    wrong = [number for number, value in found.items() if value != value_of(number)]
    assert not wrong
    lost = outcome.acknowledged - set(found)
    if lost:
        raise AssertionError(f"lost: {sorted(lost)}")
    assert outcome.killed or outcome.lines[-1] == "recovered"


@pytest.mark.prove
@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("seed", seeds(40, 2))
def test_store_on_faulty_disk_keeps_what_it_acknowledged(
    name: str, seed: int, tmp_path: Path
) -> None:
    dice = random.Random(seed)
    cut = {"cut_at": dice.randrange(1, CALLS_MAX)} if dice.random() < 0.5 else {}
    outcome = run(name, tmp_path / "store", seed=seed, permille=PERMILLE, **cut)
    assert outcome.faults or outcome.lines[-1] == "recovered"
    check(name, outcome, tmp_path / "store")


@pytest.mark.prove
@pytest.mark.parametrize("name", CONTROLS)
def test_store_that_acknowledges_before_its_sync_is_caught(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    outcome = run(f"control {name}", folder, cut_at=NUMBERS)
    assert outcome.killed
    assert outcome.acknowledged
    # LMDB's whole file may be gone, which is refused at the start.
    with pytest.raises((AssertionError, DataLoss), match=r"lost|is empty"):
        check(f"control {name}", outcome, folder)


@pytest.mark.prove
@pytest.mark.parametrize("name", STORES)
def test_store_on_good_disk_acknowledges_every_write(name: str, tmp_path: Path) -> None:
    outcome = run(name, tmp_path / "store")
    assert outcome.acknowledged == set(range(NUMBERS))
    assert outcome.lines[-1] == "recovered"
    check(name, outcome, tmp_path / "store")
