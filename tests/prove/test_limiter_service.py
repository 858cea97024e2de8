"""The rate-limit service, held for long: ten million requests by `h2load` and `redis-benchmark`.

Where only a slice is wanted they are half a million. What it does while its Redis fails is timed in
`tests/engines/test_limiter_outage.py`, where nothing else runs beside it.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from tests.apps.limiter.process import ENVOY, NATIVE, LimiterProcess, rules_file
from tests.prove.seeds import seeds, whole

METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
GROWTH_MAX = 1.02
CLIENTS = 4
PLENTY = ENVOY.replace("requests_per_unit: 3", "requests_per_unit: 100000000")


def needs(*tools: str) -> pytest.MarkDecorator:
    packages = {"h2load": "nghttp2-client", "redis-benchmark": "redis-tools"}
    missing = [f"{tool} (apt-get install {packages[tool]})" for tool in tools if not which(tool)]
    return pytest.mark.skipif(bool(missing), reason=f"there is no {', '.join(missing)}")


def which(tool: str) -> str | None:
    return shutil.which(tool)


def mesh_request_file(folder: Path, user: str = "ann") -> Path:
    """A file with one RateLimitRequest, as gRPC frames it."""

    def field(number: int, data: bytes) -> bytes:
        return bytes([number << 3 | 2, len(data)]) + data

    entry = field(1, b"user") + field(2, user.encode())
    message = field(1, b"shop") + field(2, field(1, entry))
    file = folder / f"{user}.bin"
    file.write_bytes(b"\0" + len(message).to_bytes(4, "big") + message)
    return file


def h2load(port: int, body: Path, *flags: str) -> str:
    command = [
        "h2load", "-t", "1", "-c", str(CLIENTS), "-d", str(body), "-H",
        "content-type: application/grpc", "-H", "te: trailers", *flags,
        f"http://127.0.0.1:{port}{METHOD}",
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.prove
@needs("h2load", "redis-benchmark")
@pytest.mark.parametrize("seed", seeds(full=1, part=1))
def test_after_millions_of_requests_nothing_has_grown(tmp_path: Path, seed: int) -> None:
    part = 1_000_000 if whole() else 50_000
    rules = tmp_path / "rules"
    rules.mkdir()
    rules_file(
        rules, ENVOY.replace("requests_per_unit: 3", "requests_per_unit: 100000000"), "e.yaml"
    )
    rules_file(rules, NATIVE, "n.yaml")
    with LimiterProcess(tmp_path, "--rules", str(rules), "--shed", "off") as limiter:
        body = mesh_request_file(tmp_path)

        def half_of_a_part(tool: str) -> None:
            if tool == "h2load":
                h2load(limiter.port, body, "-m", "64", "-n", str(part))
                return
            command = [
                "redis-benchmark", "-p", str(limiter.port), "-c", "50", "-P", "16", "-r", "50000",
                "-n", str(part), "-q", "SG.CHECK", "user:__rand_int__", "/api/v1/playback",
            ]  # fmt: skip
            subprocess.run(command, capture_output=True, check=True)

        def state(tasks_max: int = 0, looks: int = 10) -> dict[str, Any]:
            # At rest: some things are done now and then, each as a task of a moment.
            states: list[dict[str, Any]] = []
            for _ in range(looks):
                states.append(limiter.ask("/v1/state")[1])
                if states[-1]["process"]["tasks"] <= tasks_max:
                    break
                sleep(0.05)
            return min(states, key=lambda one: one["process"]["tasks"])

        for tool in ("h2load", "redis-benchmark"):
            half_of_a_part(tool)
        before = state()
        for _ in range(4):
            for tool in ("h2load", "redis-benchmark"):
                half_of_a_part(tool)
        after = state(before["process"]["tasks"], looks=600)  # what has leaked never ends
        counted = limiter.metric("sluicegate_limiter_decisions_total")
    assert counted == 10 * part
    assert after["process"]["tasks"] <= before["process"]["tasks"]
    assert after["process"]["threads"] == before["process"]["threads"]
    assert after["connections"]["grpc_streams"] == 0
    assert after["connections"]["listener"]["open"] <= 2
    growth = after["process"]["memory_bytes"] / before["process"]["memory_bytes"]
    # A small run has not yet filled what is kept on purpose: the audit's rings.
    assert growth <= (GROWTH_MAX if whole() else 1.5), f"memory grew {growth:.3f} times"
