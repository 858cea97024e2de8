"""Scenarios and drills are started, watched, stopped and compared from the console."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluicegate.apps.console.lab_runs import (
    AT_ONCE_MAX,
    KEPT_MAX,
    OUTPUT_CHARS_MAX,
    SCENARIO,
    LabChoice,
    LabRun,
    LabRuns,
)
from sluicegate.apps.console.pages import lab as pages
from sluicegate.apps.console.settings import ConsoleSettings
from sluicegate.contracts.errors import BadValue
from sluicegate.system import SystemClock
from tests.apps.console.changing import Person
from tests.apps.console.process import HOSTILE, ConsoleProcess
from tests.engines.child import until

LAB = "/lab"


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    folder = tmp_path_factory.mktemp("lab")
    with ConsoleProcess(folder, "--services", "http://127.0.0.1:9", "--lab", "loopback") as console:
        yield console


def start(person: Person, trial: str, **fields: str) -> tuple[int, str, str]:
    return person.send("/lab/start", {"trial": trial, **fields}, at=LAB)


def children_of(pid: int) -> list[int]:
    """The processes that it has started and that run still."""
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_runs_are_started_watched_stopped_and_compared(console: ConsoleProcess) -> None:
    person = Person(console)
    page = person.get(LAB)
    assert 'value="scenario overload"' in page
    assert 'value="drill hot-key"' in page
    status, place, _ = start(person, "scenario coalescing", seed="1")
    assert (status, place) == (303, "/lab/run?id=1")
    # One that takes long is stopped, with all that it has started.
    status, place, _ = start(person, "scenario priority", seeds="20")
    assert (status, place) == (303, "/lab/run?id=2")
    until(lambda: children_of(console.child.pid), "the child", children=[console.child])
    status, _, page = start(person, "scenario overload")
    if status == 400:  # the first may have ended
        assert f"{AT_ONCE_MAX} run already" in page
    assert person.send("/lab/stop", {"id": "2"}, at=LAB)[0] == 303
    until(lambda: "data-ended" in person.get("/lab/output?id=2"), "its end")
    assert "stopped" in person.get("/lab/run?id=2")
    until(lambda: "data-ended" in person.get("/lab/output?id=1"), "the end of the first")
    assert "coalesc" in person.get("/lab/output?id=1")
    compared = person.get("/lab/compare?id=1&other=2")
    assert "run 1: coalescing, seed 1" in compared
    assert "What differs" in compared


def test_what_is_not_in_the_list_is_not_run(console: ConsoleProcess) -> None:
    person = Person(console)
    for trial in ("scenario ../x.py", "scenario --help", "drill all", "x", f"scenario {HOSTILE}"):
        status, _, page = start(person, trial)
        assert status == 400, trial
        assert "choose one of the list" in page
        assert HOSTILE not in page
    assert start(person, "scenario overload", seed="-1")[0] == 400
    assert start(person, "scenario overload", seeds="1000")[0] == 400
    assert person.post("/lab/start", {"trial": "scenario overload"})[0] == 400
    assert person.ask("GET", "/lab/run?id=99")[0] == 400


def test_what_runs_ends_with_the_console(tmp_path: Path) -> None:
    with ConsoleProcess(
        tmp_path, "--services", "http://127.0.0.1:9", "--lab", "loopback"
    ) as console:
        assert start(Person(console), "scenario priority", seeds="20")[0] == 303
        until(lambda: children_of(console.child.pid), "the child", children=[console.child])
        (child,) = children_of(console.child.pid)
        assert console.end() == 0
        until(lambda: not os.path.exists(f"/proc/{child}"), "its end")


def test_it_is_off_unless_it_is_allowed_and_loopback_means_loopback(tmp_path: Path) -> None:
    with ConsoleProcess(tmp_path, "--services", "http://127.0.0.1:9") as console:
        assert console.ask(LAB)[0] == 404
    with pytest.raises(BadValue, match="say anywhere"):
        ConsoleSettings(listen=("0.0.0.0:7050",), lab="loopback", insecure=True).check()
    ConsoleSettings(listen=("0.0.0.0:7050",), lab="anywhere", insecure=True).check()


def test_output_is_bounded_and_shown_as_text() -> None:
    run = LabRun(1, LabChoice(SCENARIO, "x", HOSTILE), 0, HOSTILE, 0)
    for _ in range(40):
        run.add(f"{HOSTILE} \u202e\x1b[31m" + "x" * 20_000 + "\n")
    assert len(run.output) <= OUTPUT_CHARS_MAX + 100
    assert run.output.startswith("(the beginning is cut)")
    for html in (pages.output(run), *pages.run(run, "").values()):
        assert HOSTILE not in html
        assert "\u202e" not in html
        assert "\x1b" not in html
    runs = LabRuns(SystemClock())
    assert KEPT_MAX > AT_ONCE_MAX  # so there is always one that may go
    with pytest.raises(BadValue, match="not kept any more"):
        runs.stop(1)
