"""The small programs do what their first lines say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.apps.kv.process import KvProcess
from tests.engines.child import PATIENCE_S, Child, free_port, until

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def run(*words: str, **more: str) -> str:
    done = subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
        cwd=ROOT,
        env=os.environ | more,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=5).text == "ok\n"
    except httpx.TransportError:
        return False


def test_two_processes_of_the_web_app_hold_one_limit_together(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    pytest.importorskip("uvicorn")
    children, urls = [], []
    for number in range(2):
        port = free_port("127.0.0.1")
        command = [
            *(
                "env",
                f"STORE_URL={redis_server.patient_url}",
                sys.executable,
                "-m",
                "uvicorn",
                "--app-dir",
                str(EXAMPLES),
                "web_app:app",
            ),
            *("--port", str(port), "--log-level", "warning"),
        ]
        log = tmp_path / f"{number}.log"
        children.append(Child("uvicorn", command, log))
        urls.append(f"http://127.0.0.1:{port}")
    try:
        for url in urls:
            until(lambda url=url: answers(url), "the app", children=children)  # type: ignore[misc]
        user = {"x-user": "ann"}
        served = 0
        while httpx.post(f"{urls[served % 2]}/login", timeout=PATIENCE_S).status_code == 200:
            served += 1
            # Each by itself would serve five; time makes room for one more in 12 s.
            assert served < 10
        assert served >= 5
        reply = httpx.get(f"{urls[0]}/api/items", headers=user, timeout=PATIENCE_S)
        assert (reply.status_code, reply.headers["ratelimit-policy"][:5]) == (200, '"api"')
    finally:
        for child in children:
            child.stop()


def test_the_gateway_settles_what_was_used_and_gives_back_what_failed() -> None:
    lines = run(str(EXAMPLES / "llm_gateway.py")).splitlines()
    (left, left_after) = (int(re.findall(r"(\d+) tokens left", line)[0]) for line in lines[:2])
    assert left >= 2_000 - 104  # what was used, and not the estimate
    assert left_after >= left
    assert lines[1].startswith("ann: the model does not answer")
    assert re.fullmatch(r"ann: refused, again in \d+ s", lines[2])
    assert lines[3].startswith("bob: Hello!")


def test_a_tenant_beyond_its_quota_leaves_the_other_alone(tmp_path: Path) -> None:
    pytest.importorskip("hiredis")
    files = (f"{EXAMPLES}/tenant_store.toml", f"{EXAMPLES}/tenant_store.yaml")
    flags = ("--engine", "memory:", "--access", files[0], "--rules", files[1])
    with KvProcess(tmp_path, *flags) as kv:
        nightly, shop = run(str(EXAMPLES / "tenant_store.py"), str(kv.port)).splitlines()
    assert shop == "shop: {'served': 200}"
    assert "'LIMITED': " in nightly


def test_a_scenario_in_a_file_of_its_own_is_played_and_the_plain_line_fails_it() -> None:
    command = ("-m", "sluicegate.cli", "lab", "compare", "examples/own_scenario.py")
    printed = run(*command, "--with", "fifo", "--runs", "1")
    assert "queue meets every goal" in printed
    assert "fifo misses a goal" in printed
