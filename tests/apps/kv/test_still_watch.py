"""An engine that stands still is in the log once, in /readyz and in the state."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from sluicegate.apps.kv.still_watch import STILL_US, StillWatch
from sluicegate.policies.stack import StackStats
from sluicegate.testing import HandClock
from tests.apps.kv.process import KvProcess
from tests.engines.child import until


class Counts:
    """A stack whose counts are set by hand."""

    def __init__(self) -> None:
        self.under_way = self.ended = 0

    def stats(self) -> StackStats:
        admitted = self.under_way + self.ended
        return StackStats(admitted, 0, admitted, 0, 0, self.under_way, self.ended, ())


def test_it_is_still_if_work_is_under_way_and_none_ends(caplog: pytest.LogCaptureFixture) -> None:
    clock, counts = HandClock(), Counts()
    watch = StillWatch(counts.stats, clock, "the engine x")

    def after(us: int) -> str:
        clock.advance(us=us)
        watch.look()
        return watch.why()

    assert after(10 * STILL_US) == ""  # nobody asks
    counts.under_way = 3
    assert after(STILL_US - 1) == ""
    assert after(1) == "the engine x stands still: none of 3 operations has ended for 5 s"
    assert after(STILL_US) != ""
    counts.ended += 1  # one ends: slow is not still
    assert after(STILL_US) == ""
    assert after(STILL_US - 1) == ""
    counts.ended += 1
    assert after(1) == ""
    assert [line.split(":")[0] for line in caplog.messages] == [
        "the engine x stands still",
        "the engine x works again, after 15.0 s",
    ]


def test_a_dispatcher_whose_engine_stands_still_is_not_ready(tmp_path: Path) -> None:
    control = tmp_path / "control.json"
    control.write_text("{}")

    def plan(**what: object) -> None:
        aside = tmp_path / "aside.json"
        aside.write_text(json.dumps(what))
        aside.rename(control)

    with KvProcess(tmp_path, "--engine", f"faulty+memory:?control={control}&work_ms=1") as kv:
        with socket.create_connection(("127.0.0.1", kv.port)) as client:
            client.sendall(b"SET t:a 1\r\n")
            assert client.recv(100) == b"+OK\r\n"
            plan(stalled=True)

            def is_out() -> bool:
                client.sendall(b"SET t:b 2\r\n")  # the plan is looked at now and then
                return kv.ask("/readyz")[0] == 503

            until(is_out, "it to be seen")
            assert "stands still: none of " in kv.ask("/readyz")[1]["reason"]
            assert kv.metric("sluicegate_kv_engine_still") == 1
            plan()
            until(lambda: kv.ask("/readyz")[0] == 200, "it to go on")
        assert kv.log.read_text().count("stands still") == 1
