"""Real processes that publish and are killed, and others that read all the while.

Run as a program it takes rollouts as lines of JSON and forks a process for each, so that a process
costs what a fork does and not what all imports do. It has no threads of its own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from sluicegate.contracts.errors import SluicegateError
from sluicegate.contracts.rulebook import BY_NODES
from tests.rules.publishing.world import BOB, LIVE_REF, World

RACE_CHANGES: Final = 5
STOP: Final = "stop"
REPORT: Final = "report.json"


# In the process that forks.


def main() -> None:
    """Take rollouts until there are no more."""
    for line in sys.stdin:
        order = json.loads(line)
        if order["do"] == "wait":
            _, status = os.waitpid(order["pid"], 0)
            answer: dict[str, Any] = {"code": os.waitstatus_to_exitcode(status)}
        else:
            pid = os.fork()
            if pid == 0:
                _child(order)
            answer = {"pid": pid}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _child(order: dict[str, Any]) -> None:
    code = 1
    try:
        folder = Path(order["folder"])
        if order["do"] == "watch":
            watch(folder)
        else:
            publish(folder, **order["with"])
        code = 0
    finally:
        sys.stderr.flush()
        os._exit(code)


def publish(folder: Path, *, call: str, id: str = "", point: str = "") -> None:  # noqa: A002
    """Do one thing, and die at a point of it."""

    def at(reached: str) -> None:
        if reached == point:
            os.kill(os.getpid(), signal.SIGKILL)

    world = World(folder, at=at)
    if call == "publish":
        world.admin.publish(id, by=BOB)
    elif call == "roll back":
        world.admin.roll_back("1", reason="a test", by=BOB)
    elif call == "canary":
        world.admin.canary(id, share=100, kind=BY_NODES, by=BOB)
    elif call == "look":
        world.look()
    elif call == "race":
        race(world, id)
    world.close()


def race(world: World, file: str) -> None:
    """Propose, approve and publish some changes of a file of one's own."""
    for limit in range(1, RACE_CHANGES + 1):
        text = f"version: 1\nrules:\n  - {{rule_id: {file}, resource_path: /{file}, "
        text += f"limit: {limit}, window_seconds: 60}}\n"
        live_id = world.approved({f"{file}.yaml": text})
        world.admin.publish(live_id, by=BOB)


def watch(folder: Path) -> None:
    """Read all there is to read, again and again, and note whatever is not whole."""
    world = World(folder, events=False)
    wrong: list[str] = []
    numbers: list[int] = []
    lives: list[int] = []
    last = False
    while not last:
        last = (folder / STOP).exists()
        try:
            number, live = _looked_at(world)
        except (SluicegateError, AssertionError) as error:
            wrong.append(repr(error))
        else:
            if not numbers or numbers[-1] != number:
                numbers.append(number)
            if not lives or lives[-1] != live:
                lives.append(live)
    report = {"wrong": wrong, "numbers": numbers, "lives": lives}
    (folder / REPORT).write_text(json.dumps(report))


def _looked_at(world: World) -> tuple[int, int]:
    """The rollout with all they name, verified; and the live ref with its files."""
    signed = world.store.rollout()
    assert signed is not None, "there is no rollout"
    rollout = signed.rollout
    by_number = world.store.rollout_at(rollout.number)
    assert by_number is not None, f"rollout {rollout.number} is current, and was not found"
    assert by_number.rollout == rollout
    versions = {rollout.live, *rollout.pins.values()}
    if rollout.canary is not None:
        versions.add(rollout.canary.version)
    for version in versions:
        release = world.store.release(version)
        assert release is not None, f"release {version} is to run and not there"
        assert world.store.snapshot(release.release).snapshot.rules > 0
    tip = world.tip(LIVE_REF)
    assert world.repository.files(tip), "live has no files"
    return rollout.number, rollout.live


# In the process that tests.


class Processes:
    """Has processes forked, and waits for them."""

    def __init__(self) -> None:
        self._program = subprocess.Popen(
            [sys.executable, "-m", "tests.rules.publishing.dying"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
        )

    def start(self, folder: Path, **what: str) -> int:
        """Start one that does this; its id."""
        return int(self._ask({"do": "publish", "folder": str(folder), "with": what})["pid"])

    def wait(self, pid: int) -> int:
        """Its exit code, below zero for a signal."""
        return int(self._ask({"do": "wait", "pid": pid})["code"])

    def run(self, folder: Path, **what: str) -> int:
        """Start one, and wait for it."""
        return self.wait(self.start(folder, **what))

    @contextmanager
    def watched(self, folder: Path) -> Iterator[dict[str, Any]]:
        """With one that reads all the while; at the end what it saw is in the answer."""
        report: dict[str, Any] = {}
        pid = int(self._ask({"do": "watch", "folder": str(folder)})["pid"])
        try:
            yield report
        finally:
            (folder / STOP).touch()
            code = self.wait(pid)
        assert code == 0
        report.update(json.loads((folder / REPORT).read_text()))

    def _ask(self, order: dict[str, Any]) -> dict[str, Any]:
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        print(json.dumps(order), file=self._program.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self._program.stdout.readline())
        return answer

    def close(self) -> None:
        """No more rollouts."""
        with self._program:
            assert self._program.stdin is not None
            self._program.stdin.close()
            self._program.wait(60)


if __name__ == "__main__":
    main()
    # What begets so many processes leaves without a word.
    os._exit(0)
