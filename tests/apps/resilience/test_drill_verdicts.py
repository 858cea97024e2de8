"""Verdicts of a drill, on recorded stages: what is named, and what holds."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from sluicegate.apps.resilience.drill.caller import DrillAnswer
from sluicegate.apps.resilience.drill.load import DrillRecord, ask_once
from sluicegate.apps.resilience.drill.report import lines_of
from sluicegate.apps.resilience.drill.settings import DrillSettings
from sluicegate.apps.resilience.drill.usage import CpuTime, Usage, usage_of
from sluicegate.apps.resilience.drill.verdicts import (
    FIXES,
    DrillResult,
    HealthWatch,
    StageFinding,
    StageResult,
    calm_findings,
    dependency_findings,
    leak_findings,
    overload_findings,
)

SETTINGS = DrillSettings(beside="/about")
SECOND_US = 1_000_000
MIB = 1 << 20


def recorded(
    good: int,
    rejected: int = 0,
    hung: int = 0,
    wrong: dict[int, int] | None = None,
    unexpected: int = 0,
    broken: int = 0,
) -> DrillRecord:
    """A second of requests, those that were answered at equal distances."""
    wrong = wrong or {}
    return DrillRecord(
        SECOND_US,
        sent=good + rejected + hung + sum(wrong.values()) + unexpected + broken,
        good_us=[1_000] * good,
        good_at_us=[number * SECOND_US // good for number in range(good)],
        refused_us=[1_000] * rejected,
        wrong=wrong,
        unexpected=unexpected,
        broken=broken,
        hung=hung,
    )


def names(found: list[StageFinding]) -> list[str]:
    return [finding.name for finding in found]


def overload(
    record: DrillRecord, health_us: int = 1_000, cpu: CpuTime | None = None
) -> list[StageFinding]:
    return overload_findings(record, 100.0, SETTINGS, HealthWatch("/healthz", [health_us]), cpu)


def test_overload_with_rejections_holds() -> None:
    assert overload(recorded(100, rejected=400), cpu=CpuTime(1.0, 0.0)) == []


@pytest.mark.parametrize(
    ("record", "name"),
    [
        (recorded(100, wrong={500: 400}), "wrong answers"),
        (recorded(100, wrong={500: 30, 502: 370}), "wrong answers"),
        (recorded(100, unexpected=400), "answers without content"),
        (recorded(100, broken=400), "broken connections"),
        (recorded(60, hung=440), "callers hung up"),
        (recorded(60, rejected=440), "low goodput"),
    ],
)
def test_overload_that_is_not_held_names_cause(record: DrillRecord, name: str) -> None:
    assert names(overload(record)) == [name]


def test_few_wrong_answers_hold() -> None:
    assert overload(recorded(100, rejected=380, wrong={500: 20})) == []


def test_wrong_answers_are_counted_by_status() -> None:
    (finding,) = overload(recorded(100, wrong={502: 100, 500: 300}))
    assert finding.words == "80% got an error instead of a rejection: 300 x 500, 100 x 502"


def test_slow_health_is_named_although_goodput_holds() -> None:
    found = overload(recorded(100, rejected=400), health_us=101_000)
    assert names(found) == ["slow health check"]
    assert "/healthz took 101 ms" in found[0].words


def test_stage_without_health_path_is_judged_without() -> None:
    assert overload_findings(recorded(100), 100.0, SETTINGS, None, None) == []


@pytest.mark.parametrize(
    ("cpu", "named"),
    [
        (None, False),
        (CpuTime(0.89, 0.0), False),
        (CpuTime(0.9, 0.0), True),
        (CpuTime(0.24, 0.75), True),
    ],
)
def test_cpu_bound_is_named_in_stage_that_broke(cpu: CpuTime | None, named: bool) -> None:
    found = names(overload(recorded(60, hung=440), cpu=cpu))
    assert found == ["callers hung up", *(["CPU-bound"] if named else [])]


def test_cpu_bound_tells_running_from_waiting() -> None:
    *_, finding = overload(recorded(60, hung=440), cpu=CpuTime(0.24, 0.75))
    assert finding.words == "one process ran 24% of the time, and waited for a core 75% of it"


def test_calm_with_rejections_names_quota() -> None:
    assert names(calm_findings(recorded(90, rejected=10))) == ["quota"]


def test_calm_with_errors_names_them() -> None:
    assert names(calm_findings(recorded(75, wrong={500: 25}))) == ["not calm", "wrong answers"]


def test_calm_with_all_answered_holds() -> None:
    assert calm_findings(recorded(100)) == []


def test_dependency_that_is_waited_for_is_named() -> None:
    found = dependency_findings(recorded(0, hung=100), recorded(20, hung=80), SETTINGS)
    assert names(found) == ["waits for its dependency", "shared fate"]


@pytest.mark.parametrize(("status", "holds"), [(502, True), (500, False), (404, False)])
def test_failed_dependency_allows_bad_gateway_alone(status: int, holds: bool) -> None:
    found = dependency_findings(recorded(0, wrong={status: 100}), None, SETTINGS)
    assert names(found) == ([] if holds else ["wrong answers"])


def samples(*levels: tuple[int, int]) -> list[Usage]:
    return [Usage(memory, files, {}) for memory, files in levels]


def test_growth_in_both_halves_is_a_leak() -> None:
    found = leak_findings(samples((50 * MIB, 10), (54 * MIB, 110), (58 * MIB, 210)), 200)
    assert names(found) == ["memory leak", "file descriptor leak"]
    assert found[0].words == "memory grew by 8.39 MB in 200 requests of calm load, 41.9 kB each"
    assert found[1].words == "200 more files and sockets are open after 200 requests"


def test_growth_in_one_half_is_no_leak() -> None:
    assert leak_findings(samples((50 * MIB, 10), (90 * MIB, 90), (90 * MIB, 90)), 200) == []


def test_no_samples_are_no_leak() -> None:
    assert leak_findings([], 0) == []


@pytest.mark.parametrize("name", FIXES)
def test_report_prints_fix_of_each_finding(name: str) -> None:
    stage = StageResult("overload, 5 x", recorded(1), "words", (StageFinding(name, "figures"),))
    lines = list(lines_of(DrillResult(100.0, [stage])))
    assert lines[0] == "it broke in 1 of 1 stage: overload, 5 x."
    assert lines[-2:] == [f"  {name}: figures", f"    fix: {FIXES[name]}"]


@pytest.mark.parametrize(
    ("answer", "counted"),
    [
        (DrillAnswer(200), "good"), (DrillAnswer(304), "good"), (DrillAnswer(429), "rejected"),
        (DrillAnswer(503), "rejected"), (DrillAnswer(504), "rejected"), (DrillAnswer(500), "wrong"),
        (DrillAnswer(404), "wrong"), (DrillAnswer(200, expected=False), "unexpected"),
    ],
)  # fmt: skip
def test_answer_is_counted_by_status_and_content(answer: DrillAnswer, counted: str) -> None:
    async def ask() -> DrillAnswer:
        return answer

    record = DrillRecord()
    asyncio.run(ask_once(ask, record))
    counts = {
        "good": len(record.good_us), "rejected": len(record.refused_us),
        "wrong": sum(record.wrong.values()), "unexpected": record.unexpected,
    }  # fmt: skip
    assert counts == {**dict.fromkeys(counts, 0), counted: 1}


def test_added_record_keeps_counts_and_instants() -> None:
    whole = recorded(2, wrong={500: 1}, broken=1)
    whole.add(recorded(1, wrong={500: 1, 502: 2}, unexpected=3, hung=1))
    assert whole.wrong == {500: 2, 502: 2}
    assert (whole.sent, whole.errors, whole.hung, whole.span_us) == (12, 8, 1, 2 * SECOND_US)
    assert whole.good_at_us == [0, SECOND_US // 2, SECOND_US]


@pytest.mark.skipif(sys.platform != "linux", reason="/proc as Linux has it")
def test_usage_counts_all_processes_of_session() -> None:
    code = (
        "import subprocess, sys\n"
        "one = subprocess.Popen([sys.executable, '-c', 'import sys; sys.stdin.read()'],"
        " stdin=subprocess.PIPE)\n"
        "print(one.pid, flush=True)\n"
        "sys.stdin.read()\n"
        "one.communicate()\n"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        other = int(process.stdout.readline())
        usage = usage_of(process.pid)
        process.communicate(b"")
    assert usage is not None
    assert set(usage.cpu_us) == {process.pid, other}
    assert usage.memory_bytes > MIB
    assert usage.files >= 6
    assert usage_of(process.pid) is None


def test_busiest_process_is_compared_with_itself() -> None:
    before = Usage(0, 0, {1: CpuTime(100, 0), 2: CpuTime(900, 900)})
    after = Usage(0, 0, {1: CpuTime(600, 7), 2: CpuTime(1_000, 950), 3: CpuTime(5_000, 0)})
    assert after.busiest(before, 1_000) == (0.5, 0.007)
