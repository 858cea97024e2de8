"""Parts of answers that are left out under stress, the work done in vain, and their metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from sluicegate.contracts.errors import BadValue, Refused
from sluicegate.policies.stress import StressLevel, StressSettings
from sluicegate.resilience.context import ServedRequest, degraded, require_time, serve
from sluicegate.resilience.server.asgi import ProtectedApp, protect
from sluicegate.resilience.server.metrics import families
from sluicegate.resilience.server.protection import Protection
from sluicegate.resilience.server.switch_file import SwitchFile
from sluicegate.resilience.settings import Resilience, resilience_settings
from sluicegate.system import now_us
from sluicegate.telemetry.prometheus import page
from tests.doors.test_frameworks import served
from tests.policies.virtual import VirtualLoop, pause_us, run

SWITCHES = {"recommendations": "stressed", "history": "hard"}


async def show(scope: Any, receive: Any, send: Any) -> None:
    parts = [name for name in SWITCHES if not degraded(name)]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": " ".join(parts).encode()})


def stress(app: ProtectedApp, lag_us: int) -> None:
    for _ in range(1_000):  # so many that the loop's own readings do not matter
        app.protection.stress.record_loop_lag(lag_us, now_us())


@pytest.mark.parametrize(
    ("lag_us", "shown"), [(0, "recommendations history"), (100_000, "history"), (900_000, "")]
)
def test_the_more_stress_the_less_is_in_an_answer(lag_us: int, shown: str) -> None:
    # Only what the test records: means over an hour, drawn anew each time.
    settings = StressSettings(window_us=3_600_000_000, stale_us=3_600_000_000, refresh_us=0)
    app = protect(show, Resilience(degrade=SWITCHES, stress=settings))
    stress(app, lag_us)
    with served(app) as port:
        assert httpx.get(f"http://127.0.0.1:{port}/").text == shown


def test_another_thread_sees_the_stress_until_nobody_asks_any_more() -> None:
    async def story(loop: VirtualLoop) -> list[StressLevel | None]:
        protection = Protection(clock=loop)

        def level() -> StressLevel | None:
            found = protection.stress_lately()
            return None if found is None else found.level

        seen = [level()]
        protection.begin("/")
        protection.stress.record_queue_delay(10_000_000, loop.now_us())
        await pause_us(100_000)
        seen.append(level())
        await pause_us(4_000_000)
        return [*seen, level()]

    assert run(story) == [None, StressLevel.HARD, None]


def test_an_operator_switches_parts_off_and_on_while_it_serves() -> None:
    app = protect(show, Resilience(degrade=SWITCHES))
    with served(app) as port:
        url = f"http://127.0.0.1:{port}/"
        assert httpx.get(url).text == "recommendations history"
        app.protection.degradation.replace({"recommendations": "always", "history": "never"})
        assert httpx.get(url).text == "history"
        with pytest.raises(BadValue, match=r"degrade\.history"):
            app.protection.degradation.replace({"history": "sometimes"})
        assert httpx.get(url).text == "history"
        assert b'degraded{part="recommendations"} 1' in page(families(app.protection))


def test_a_switch_without_a_level_and_a_level_that_does_not_exist_are_named() -> None:
    with pytest.raises(BadValue, match="degrade"):
        protect(show, Resilience()).protection.is_degraded("recomendations")
    with pytest.raises(BadValue, match=r"resilience\.degrade\.history"):
        resilience_settings({"degrade": {"history": "sometimes"}})
    assert resilience_settings({"degrade": SWITCHES}).degrade == SWITCHES
    assert not degraded("anything, outside of a request")


def test_time_that_is_over_is_refused_before_a_call_and_before_writing_a_result() -> None:
    require_time(now_us())
    with serve(ServedRequest(deadline_us=now_us() + 60_000_000)):
        require_time(now_us())
    with serve(ServedRequest(deadline_us=now_us())), pytest.raises(Refused):
        require_time(now_us())


def test_an_answer_that_nobody_waits_for_is_not_sent_and_counts_as_in_vain() -> None:
    """Only the caller's own time counts; one that gave none gets its answer, however late."""

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        while scope["path"] == "/late" and not app.protection.is_in_vain(deadline_us):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"large"})

    app = protect(slow)
    with served(app) as port:
        url = f"http://127.0.0.1:{port}"
        deadline_us = now_us() + 500_000
        late = httpx.get(f"{url}/late", headers={"x-sluicegate-deadline-ms": "100"})
        deadline_us = now_us() + 100_000
        unhurried = httpx.get(f"{url}/late")
    assert (late.status_code, late.json()["reason"]) == (504, "deadline")
    assert (unhurried.status_code, unhurried.content) == (200, b"large")
    text = page(families(app.protection))
    assert b"sluicegate_resilience_wasted_total 1\n" in text
    assert b'decisions_total{lane="light",stage="queue",outcome="admitted"} 2\n' in text


def test_a_real_parser_reads_every_metric() -> None:
    shown = page(families(protect(show, Resilience(degrade=SWITCHES)).protection)).decode()
    parsed = {family.name: family for family in text_string_to_metric_families(shown)}
    assert parsed["sluicegate_resilience_stress"].samples[0].value == 0


def test_switches_are_taken_from_the_file_and_a_bad_one_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "resilience.toml"

    def write(text: str) -> None:
        new = tmp_path / "new"
        new.write_text(text)
        new.replace(path)  # as a rename, so that it is complete at once
        assert file.watch.poll()

    path.write_text('[degrade]\nrecommendations = "never"\nhistory = "never"\n')
    app = protect(show, Resilience.load(path))
    file = SwitchFile(app.protection, str(path))
    with served(app) as port:
        url = f"http://127.0.0.1:{port}/"
        assert httpx.get(url).text == "recommendations history"
        write('[degrade]\nrecommendations = "always"\nhistory = "never"\n')
        assert httpx.get(url).text == "history"
        for bad in ('history = "never"', 'recommendations = "often"\nhistory = "never"', "= ="):
            write(f"[degrade]\n{bad}\n")
            assert file.failure
            assert httpx.get(url).text == "history"
        path.unlink()
        assert file.watch.poll()
        assert "resilience.toml" in file.failure
        assert httpx.get(url).text == "history"
        write('[degrade]\nrecommendations = "never"\nhistory = "always"\n')
        assert (httpx.get(url).text, file.failure) == ("recommendations", "")
