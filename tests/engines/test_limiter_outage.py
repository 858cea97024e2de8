"""The rate-limit service while its Redis is paused and killed, time after time.

`h2load` asks a real `sluicegate limiter` at a steady rate and writes down how long each answer
took. It runs alone, and what was answered while the machine itself stalled is left out: time-outs
are timed. A run in which that is too much is played again. Ten minutes where the
proofs are wanted in full, else a part of one.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.apps.limiter.process import LimiterProcess, rules_file
from tests.engines.stalls import Stalls
from tests.prove.seeds import whole
from tests.prove.test_limiter_service import CLIENTS, PLENTY, h2load, mesh_request_file, needs

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer

LATE_US = 200_000  # as Envoy waits, in the configuration that is shipped
LATE_SHARE_MAX = 0.0001
LEFT_OUT_SHARE_MAX = 0.1
TRIES_MAX = 3
RATE = 500


@dataclass(slots=True)
class Answers:
    """What `h2load` got: how many, how many during stalls, and what the late others took."""

    count: int
    left_out: int
    late_us: list[int]

    def __str__(self) -> str:
        return (
            f"{len(self.late_us)} of {self.count} took more than 200 ms, beside {self.left_out} "
            f"while the machine stalled: {sorted(self.late_us)[-10:]} us"
        )


@pytest.mark.engine
@pytest.mark.alone
@needs("h2load")
def test_answers_come_within_envoys_timeout_while_redis_fails(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    for _ in range(TRIES_MAX):
        answers = ask_while_it_fails(tmp_path, redis_server, 600 if whole() else 25)
        if answers.left_out <= LEFT_OUT_SHARE_MAX * answers.count:
            break  # else the machine stalled for so long that the run says little
    assert answers.left_out <= LEFT_OUT_SHARE_MAX * answers.count, str(answers)
    assert len(answers.late_us) <= LATE_SHARE_MAX * answers.count, str(answers)


@pytest.mark.engine
@pytest.mark.alone
@needs("h2load")
def test_limiter_that_waits_longer_for_its_redis_is_found_late(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    answers = ask_while_it_fails(tmp_path, redis_server, 8, "?timeout_ms=300")
    assert len(answers.late_us) > 5 * LATE_SHARE_MAX * answers.count, str(answers)


def ask_while_it_fails(
    folder: Path, redis_server: RedisServer, seconds: int, options: str = ""
) -> Answers:
    log = folder / "calls.tsv"
    log.unlink(missing_ok=True)  # of an earlier try, behind which it would be written
    with (
        LimiterProcess(
            folder,
            "--rules", rules_file(folder, PLENTY),
            "--store", f"redis://127.0.0.1:{redis_server.port}{options}",
            "--dlq", f"files:{folder / 'letters'}",
        ) as limiter,
        Stalls() as stalls,
    ):  # fmt: skip
        load = threading.Thread(
            target=h2load,
            args=(
                limiter.port, mesh_request_file(folder), "-m", "8", "--rps", str(RATE // CLIENTS),
                "-D", str(seconds), "--log-file", str(log),
            ),
        )  # fmt: skip
        load.start()
        end_s = time.monotonic() + seconds - 5
        turn = 0
        while time.monotonic() < end_s:
            turn += 1
            time.sleep(2)
            if turn % 2:
                redis_server.pause()
                time.sleep(1.5)
                redis_server.resume()
            else:
                redis_server.kill()
                time.sleep(1.5)
                redis_server.restart()
        load.join()
        degraded = limiter.metric("sluicegate_limiter_decisions_total", outcome="degraded_allowed")
    calls = [line.split("\t") for line in log.read_text().splitlines()]
    assert {status for _, status, _ in calls} == {"200"}
    assert len(calls) >= 0.9 * RATE * seconds
    assert degraded > 0.1 * len(calls)
    answers = Answers(len(calls), 0, [])
    for started, _, took in calls:
        started_s = int(started) / 1e6
        if stalls.overlap(started_s, started_s + int(took) / 1e6):
            answers.left_out += 1
        elif int(took) > LATE_US:
            answers.late_us.append(int(took))
    return answers
