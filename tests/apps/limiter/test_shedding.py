"""What the limiter sheds for, on a machine that other programs fill, and when it fills itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sluicegate.policies.admission.utilization_gate import SIGNALS
from sluicegate.system import LoadMeter
from tests.apps.limiter.process import NATIVE, LimiterProcess, rules_file
from tests.engines.child import until

ASKS = 200
# A caller that leaves the service no rest: as soon as it has its answers it asks for more.
FLOOD = """
import socket, sys
words = [b"SG.CHECK", b"bob", b"/bulk/x"]
ask = b"*%d\\r\\n" % len(words) + b"".join(b"$%d\\r\\n%s\\r\\n" % (len(one), one) for one in words)
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
while True:
    connection.sendall(ask * 200)
    answers = 0
    while answers < 200:
        answers += connection.recv(1 << 16).count(b"*")
"""


@contextmanager
def programs(count: int, *words: str) -> Iterator[None]:
    started = [subprocess.Popen([sys.executable, "-c", *words]) for _ in range(count)]
    try:
        yield
    finally:
        for one in started:
            one.kill()
            one.wait()


def fill_machine(looks: int) -> None:
    """Return when the machine has been full for so many looks in a row."""
    meter, full = LoadMeter(), 0

    def look() -> bool:
        nonlocal full
        load = meter.look().cpu
        full = full + 1 if load > 0.9 else full if load == 0 else 0
        return full >= looks

    until(look, "a full machine")


def test_an_idle_limiter_beside_busy_neighbours_refuses_nobody(tmp_path: Path) -> None:
    rules = rules_file(tmp_path, NATIVE)
    with LimiterProcess(tmp_path, "--rules", rules) as limiter:
        with programs(4, "while True: pass"):
            fill_machine(20)
            answers = [limiter.check(f"user {number}", "/bulk/x") for number in range(ASKS)]
        assert [one["reason"] for one in answers if not one["allowed"]] == []
        assert "sheds" not in limiter.log.read_text()


def test_an_overloaded_limiter_sheds_and_tells_why(tmp_path: Path) -> None:
    rules = rules_file(tmp_path, NATIVE)
    with LimiterProcess(tmp_path, "--rules", rules) as limiter:
        with programs(8, FLOOD, str(limiter.port)):
            until(
                lambda: limiter.metric("sluicegate_limiter_decisions_total", outcome="shed"),
                "a shed request",
                children=[limiter.child],
            )
        log = limiter.log.read_text()
        assert log.count("overloaded and sheds what matters less") == 1
        assert "--shed off" in log
        entries = limiter.ask("/v1/audit?user=bob&since=10m")[1]["decisions"]
        signals = {one["signal"] for one in entries if one["reason"] == "shed"}
        assert signals
        assert signals <= SIGNALS.keys()
