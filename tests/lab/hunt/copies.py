"""A private copy of the package, in which a mutant can be planted. Nothing here is a test.

    python -m tests.lab.hunt.copies NAME...

finds a setup for each mutant of that name (all that have none, if none is named): it hunts with the
mutant planted until the named invariant breaks, shrinks that, and keeps it if the sound code breaks
nothing in it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, final

from tests.lab.mutants import MUTANTS, CoreMutant, Mutant, ScenarioMutant

SOURCE: Final = Path(__file__).parents[3] / "src" / "sluicegate"
CAUGHT: Final = Path(__file__).parent / "caught"
SECONDS_MAX: Final = 600  # for a child on a busy machine; alone each takes one or two
SEEDS: Final = 200
TRIES_MAX: Final = 80

# Plays the setup on its standard input, and prints what broke.
PLAY: Final = """
import json, sys
from sluicegate.lab.hunt.setup import parse
from sluicegate.lab.hunt.search import violations_of
print(json.dumps([broken.invariant for broken in violations_of(parse(sys.stdin.read()))]))
"""
# Plays one case of a scenario with one seed, and prints which figures of ours miss their goals.
CLAIM: Final = """
import json, sys
from dataclasses import replace
from sluicegate.lab.scenario import run_trials
from sluicegate.lab.scenarios import TABLE
scenario, case = TABLE[sys.argv[1]], sys.argv[2]
asked = [one for one in scenario.goals if not one.cases or case in one.cases]
goals = tuple(replace(one, cases=()) for one in asked)
played = replace(scenario, rigs={case: scenario.rigs[case]}, goals=goals)
judged = run_trials(played, [scenario.ours], [1]).judge(scenario.ours)
print(json.dumps([one.goal.figure for one in judged if not one.met]))
"""
# Hunts on one stage for one invariant, and prints a small setup that breaks it.
FIND: Final = """
import json, sys
from sluicegate.lab.random_source import RandomSource
from sluicegate.lab.hunt.draws import STAGES, SetupDraws
from sluicegate.lab.hunt.search import breaks
from sluicegate.lab.hunt.setup import render
from sluicegate.lab.hunt.shrink import shrink
stage, invariant, first, last, tries = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
breaks_it = breaks(invariant)
for seed in range(first, last):
    drawn = STAGES[stage](seed, SetupDraws(RandomSource(seed).of("setup")))
    if breaks_it(drawn):
        small = shrink(drawn, breaks_it, tries_max=tries).setup
        print(json.dumps({"seed": seed, "text": render(small, invariant)}))
        break
else:
    print(json.dumps({"seed": last, "text": ""}))
"""


@final
class Copy:
    """The package in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._planted = 0
        ignored = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(SOURCE, folder / "sluicegate", ignore=ignored)

    def text(self, file: str) -> str:
        return (self.folder / "sluicegate" / file).read_text(encoding="utf-8")

    def put(self, file: str, text: str) -> None:
        path = self.folder / "sluicegate" / file
        path.write_text(text, encoding="utf-8")
        # Compiled modules are told apart by whole seconds, and mutants follow each other faster.
        self._planted += 1
        at_s = 1_000_000_000 + 10 * self._planted
        os.utime(path, (at_s, at_s))

    def plant(self, mutant: Mutant | ScenarioMutant | CoreMutant) -> str:
        """Put the mistake in; what stood there, to be put back."""
        sound = self.text(mutant.file)
        assert sound.count(mutant.old) == 1, f"{mutant.name}: its text must stand there once"
        self.put(mutant.file, sound.replace(mutant.old, mutant.new))
        return sound

    def run(self, program: str, *words: str, stdin: str = "") -> object:
        """What a child prints last that imports this copy, as JSON."""
        child = subprocess.run(
            [sys.executable, "-c", program, *words],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            env={**os.environ, "PYTHONPATH": str(self.folder), "PYTHONHASHSEED": "0"},
            check=False,
            cwd=self.folder,
        )
        assert child.returncode == 0, child.stderr[-2_000:]
        return json.loads(child.stdout.splitlines()[-1])

    def misses_of(self, scenario: str, case: str) -> list[str]:
        """The figures that miss their goals in one case of a scenario."""
        answer = self.run(CLAIM, scenario, case)
        assert isinstance(answer, list)
        return [str(figure) for figure in answer]

    def passes(self, tests: str) -> bool:
        """Whether this copy passes the tests of a file."""
        root = SOURCE.parents[1]
        program = "import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))"
        words = (f"--rootdir={root}", "-q", "-x", "-p", "no:cacheprovider", str(root / tests))
        child = subprocess.run(
            [sys.executable, "-c", program, *words],
            capture_output=True,
            timeout=SECONDS_MAX,
            env={**os.environ, "PYTHONPATH": os.pathsep.join((str(self.folder), str(root)))},
            check=False,
            cwd=self.folder,
        )
        assert child.returncode in {0, 1}, child.stdout[-2_000:]
        return child.returncode == 0

    def violations_of(self, setup: str) -> list[str]:
        """What breaks when it plays this setup."""
        answer = self.run(PLAY, stdin=setup)
        assert isinstance(answer, list)
        return [str(name) for name in answer]


def file_of(mutant: Mutant) -> Path:
    """Where its setup is kept."""
    name = re.sub(r"[^a-z0-9]+", "-", mutant.name.lower()).strip("-")
    return CAUGHT / f"{name}.json"


def find(mutant: Mutant, copy: Copy) -> str | None:
    """A small setup that shows the mutant, and breaks nothing without it."""
    first = 0
    while first < SEEDS:
        sound = copy.plant(mutant)
        try:
            words = (mutant.stage, mutant.breaks, str(first), str(SEEDS), str(TRIES_MAX))
            answer = copy.run(FIND, *words)
        finally:
            copy.put(mutant.file, sound)
        assert isinstance(answer, dict)
        if answer["text"] and copy.violations_of(answer["text"]) == []:
            return str(answer["text"])
        first = int(answer["seed"]) + 1
    return None


def main(names: list[str]) -> None:
    """Find what is asked for, and say what was found."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder))
        for mutant in MUTANTS:
            if mutant.name not in names if names else file_of(mutant).exists():
                continue
            text = find(mutant, copy)
            if text is not None:
                file_of(mutant).write_text(text, encoding="utf-8")
            sys.stdout.write(f"{'caught' if text else 'not caught'}: {mutant.name}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
