"""The example of a protected service, as its first lines say to run it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx

EXAMPLE = Path(__file__).parents[2] / "examples" / "resilient_service.py"


@contextlib.contextmanager
def running(folder: Path, **changes: tuple[str, str]) -> Iterator[str]:
    text = EXAMPLE.with_suffix(".toml").read_text(encoding="utf-8")
    for old, new in (("port = 7098", "port = 0"), *changes.values()):
        assert old in text
        text = text.replace(old, new)
    settings = folder / "service.toml"
    settings.write_text(text, encoding="utf-8")
    command = [sys.executable, str(EXAMPLE), str(settings)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
            process.wait(60)


def test_a_caller_over_its_quota_takes_no_place_and_others_are_served(tmp_path: Path) -> None:
    calm = ('recommendations = "stressed"', 'recommendations = "never"')  # on a busy machine too
    with running(tmp_path, calm=calm) as url, httpx.Client(base_url=url, timeout=60) as client:
        rogue = [client.get("/page", headers={"x-caller": "rogue"}) for _ in range(8)]
        other = client.get("/page", headers={"x-caller": "shop"})
        assert client.get("/healthz").text == "ok"
        metrics = client.get("/metrics").text
    assert [reply.status_code for reply in rogue] == [200] * 5 + [429] * 3
    assert other.json() == {"page": "hello", "recommendations": "more of it"}
    assert 'sluicegate_resilience_admitted_total{class="DEGRADED"} 6' in metrics


def test_a_part_that_is_switched_off_is_left_out(tmp_path: Path) -> None:
    off = ('recommendations = "stressed"', 'recommendations = "always"')
    with running(tmp_path, off=off) as url:
        assert httpx.get(f"{url}/page", timeout=60).json() == {"page": "hello"}


def test_faults_are_switched_on_by_the_settings_and_never_in_silence(tmp_path: Path) -> None:
    on, all_of_it = ("on = false", "on = true"), ("share = 0.1", "share = 1.0")
    with running(tmp_path, on=on, all_of_it=all_of_it) as url:
        reply = httpx.get(f"{url}/page", timeout=60)
        metrics = httpx.get(f"{url}/metrics", timeout=60).text
    assert (reply.status_code, reply.headers["x-sluicegate-fault"]) == (200, "slow")
    assert "sluicegate_resilience_faults_on 1\n" in metrics
    assert 'sluicegate_slo_requests_total{objective="GET /page",outcome=' in metrics
