"""Many runs, one hash: a run is a function of its seed, whatever the process's own hashing does.

Half of the runs are in one process, half in another with another PYTHONHASHSEED: an order that came
from a set of strings would show.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from sluicegate.lab.hunt.setup import render
from sluicegate.lab.scenarios import TABLE
from tests.lab.hunt.test_stages import SMALL
from tests.prove.seeds import seeds, whole

RUNS = 20 if whole() else 4
SEED = 3

# Plays the first case of a scenario with our candidate, or a setup of the hunt, so many times.
CHILD = """
import sys
from hashlib import blake2b
what, name, runs, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
if what == "scenario":
    from sluicegate.lab.scenarios import find
    scenario = find(name)
    case = next(iter(scenario.rigs))
    def once():
        return sorted(scenario.run_once(scenario.ours, case, seed).items())
else:
    from sluicegate.lab.hunt.setup import parse
    from sluicegate.lab.hunt.search import play_setup
    setup = parse(sys.stdin.read())
    def once():
        record = play_setup(setup)
        fates = [(unit.status, unit.reason, unit.begun_us, unit.ended_us) for unit in record.units]
        return record.digest, fates, sorted(record.peaks.items()), record.spent, record.courses
for _ in range(runs):
    print(blake2b(repr(once()).encode(), digest_size=16).hexdigest(), flush=True)
"""


def hashes(what: str, name: str, stdin: str = "") -> list[str]:
    digests: list[str] = []
    for hash_seed in ("1", "4711"):
        child = subprocess.run(
            [sys.executable, "-c", CHILD, what, name, str(RUNS // 2), str(SEED)],
            input=stdin,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=False,
            timeout=3_600,
        )
        assert child.returncode == 0, child.stderr[-2_000:]
        digests += child.stdout.split()
    return digests


def chosen() -> list[str]:
    """All scenarios in `make prove`; one that changes with the seed in CI."""
    wish = seeds(full=1, part=1)
    if not wish:
        return []
    names = [*TABLE]
    return names if os.environ.get("SLUICEGATE_PROVE") == "full" else [names[wish[0] % len(names)]]


@pytest.mark.prove
@pytest.mark.parametrize("name", chosen())
def test_many_runs_of_a_scenario_have_one_hash(name: str) -> None:
    digests = hashes("scenario", name)
    assert len(digests) == RUNS
    assert len(set(digests)) == 1


@pytest.mark.prove
@pytest.mark.parametrize("stage", SMALL if seeds(1, 1) else [])
def test_many_runs_of_each_stage_of_the_hunt_have_one_hash(stage: str) -> None:
    digests = hashes("hunt", stage, render(SMALL[stage]))
    assert len(digests) == RUNS
    assert len(set(digests)) == 1


def test_many_runs_of_a_whole_client_have_one_hash() -> None:
    setup = replace(SMALL["client"], span_ms=300)
    assert len(set(hashes("hunt", "client", render(setup)))) == 1
