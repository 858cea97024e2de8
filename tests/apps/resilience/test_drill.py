"""`sluicegate resilience drill` on real services: what breaks is found, and what holds is not.

A drill measures real time, so its verdict is a proof; what needs no verdict is tested everywhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluicegate.apps.resilience.drill.caller import HttpCaller
from sluicegate.apps.resilience.drill.child import started
from sluicegate.apps.resilience.drill.load import DrillRecord
from sluicegate.apps.resilience.drill.proxy import DEAD, PASS, FaultProxy
from sluicegate.cli import main
from sluicegate.system import now_us
from tests.engines.child import free_port
from tests.resilience.client.server import HANGS, OK, serving

EXAMPLES = Path(__file__).parents[3] / "examples"
SERVICE = str(Path(__file__).with_name("drilled_service.py"))
ROOT = str(Path(__file__).parents[3])
# Wide enough for a machine that does other things too; what breaks is far below.
OVERLOADED = ["--only", "overload", "--seconds", "0.8", "--times", "5", "--goodput-min", "0.45"]
HURRIED = ["--patience-ms", "250"]
PATIENT = ["--patience-ms", "900", "--health-ms", "900"]
FAILING = ["--only", "dependency", "--seconds", "0.6", "--patience-ms", "600"]


def drill(*words: str) -> int:
    return main(["resilience", "drill", *words])


def stages(printed: str) -> dict[str, bool]:
    """Return each stage of the table, and whether it held."""
    rows = re.findall(r"^  (\S.*?)  +(held|BROKE) ", printed, re.MULTILINE)
    return {name.partition(",")[0]: verdict == "held" for name, verdict in rows}


def capacity(printed: str) -> int:
    """Return what the service can do, a second."""
    found = re.search(r"it can do ([\d,]+) requests a second", printed)
    assert found
    return int(found[1].replace(",", ""))


@pytest.mark.prove
def test_a_bounded_pool_breaks_under_overload(capsys: pytest.CaptureFixture[str]) -> None:
    """The control: a service that queues without end works for nobody."""
    command = [sys.executable, SERVICE, "fifo", "{port}"]
    assert drill(*OVERLOADED, *HURRIED, "--path", "/page", "--", *command) == 1
    printed = capsys.readouterr().out
    found = stages(printed)
    assert (found["calm"], found["overload"]) == (True, False)
    assert printed.startswith("it broke in ")
    assert "  callers hung up: " in printed
    assert "    fix: reject early instead of queueing: put protect(app) outermost" in printed


@pytest.mark.prove
def test_a_capacity_that_was_found_too_low_is_found_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of a service that was still warming up: five times a tenth of it is no overload."""
    command = [sys.executable, SERVICE, "warming", "{port}"]
    assert drill(*OVERLOADED, *HURRIED, "--path", "/page", "--", *command) == 1
    captured = capsys.readouterr()
    found = stages(captured.out)
    assert (found["calm"], found["overload"]) == (True, False), captured.out
    assert capacity(captured.out) > 60, captured.err


@pytest.mark.prove
def test_example_service_under_overload_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port("127.0.0.1")
    settings = (EXAMPLES / "resilient_service.toml").read_text(encoding="utf-8")
    settings = settings.replace("7098", str(port)).replace("5/hour", "100000/s")
    settings = settings.replace("places = 16", "places = 2").replace('"stressed"', '"never"')
    (tmp_path / "service.toml").write_text(settings)
    command = [
        sys.executable,
        str(EXAMPLES / "resilient_service.py"),
        str(tmp_path / "service.toml"),
    ]
    url = f"http://127.0.0.1:{port}/page"
    code = drill(*OVERLOADED, *PATIENT, "--url", url, "--", *command)
    captured = capsys.readouterr()
    assert code == 0, captured.out
    assert captured.out.startswith("it held in all 4 stages.\n")
    assert set(stages(captured.out)) == {"calm", "overload", "after overload", "leaks"}
    assert "drill: overload: 5 x its capacity" in captured.err


@pytest.mark.prove
def test_a_server_of_the_standard_library_is_drilled_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody wrote it for this: it knows neither our claims nor our marks, and refuses nobody.

    Its listen queue has five places, so at the rate that it can do a machine that does other things
    for 10 ms has it lose connections; at a hundred a second that takes 50.
    """
    (tmp_path / "index.html").write_text("a page")
    server = ["http.server", "--bind", "127.0.0.1", "--directory", str(tmp_path), "{port}"]
    brief = ["--only", "overload", "--seconds", "0.4", "--times", "1", "--rate-max", "60"]
    page = ["--path", "/index.html", "--health", "/index.html", "--health-ms", "5000"]
    drill(*brief, "--rate-max", "100", *PATIENT[:2], *page, "--", sys.executable, "-m", *server)
    printed = capsys.readouterr().out
    assert set(stages(printed)) == {"calm", "overload", "after overload", "leaks"}
    assert stages(printed)["calm"], printed
    if capacity(printed) > 100:
        assert "not tried: overload: it can do more than --rate-max 100 a second" in printed
        assert "of what was asked in time" in printed
    assert capacity(printed) > 20


def test_a_line_that_is_served_after_the_last_request_passes_for_no_capacity() -> None:
    """Two places of 10 ms do 200 requests a second, however many wait at the end of the slice."""
    every_5_ms = [5_000 * number for number in range(1, 101)]
    in_time = DrillRecord(200_000, good_at_us=every_5_ms[:40])
    a_line = DrillRecord(200_000, good_at_us=every_5_ms)  # as many again, and half, come after it
    stragglers = DrillRecord(200_000, good_at_us=[*every_5_ms[:40], 900_000, 901_000])
    assert in_time.goodput == a_line.goodput == stragglers.goodput == 200
    assert DrillRecord(200_000, good_at_us=[250_000]).goodput == 4
    assert DrillRecord(200_000).goodput == 0


def test_quota_in_calm_stage_is_named_and_ends_drill(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port("127.0.0.1")
    settings = (EXAMPLES / "resilient_service.toml").read_text(encoding="utf-8")
    (tmp_path / "service.toml").write_text(settings.replace("7098", str(port)))
    command = [
        sys.executable,
        str(EXAMPLES / "resilient_service.py"),
        str(tmp_path / "service.toml"),
    ]
    brief = ["--only", "overload", "--seconds", "0.3", "--times", "1", *PATIENT]
    assert drill(*brief, "--url", f"http://127.0.0.1:{port}/page", "--", *command) == 1
    printed = capsys.readouterr().out
    assert list(stages(printed)) == ["calm"]
    assert "    fix: raise the quota while the drill runs" in printed
    assert "not tried: every later stage: the calm one must hold first" in printed


@pytest.mark.prove
@pytest.mark.parametrize(("kind", "holds"), [("naive", False), ("careful", True)])
def test_a_dependency_that_fails_breaks_who_waits_for_it(
    kind: str, holds: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", ROOT)
    with serving(OK) as dependency:
        address = dependency.url.removeprefix("http://").strip("/")
        code = drill(
            *FAILING, "--path", "/page", "--beside", "/beside", "--dependency", address,
            "--", sys.executable, SERVICE, kind, "{port}", "{dependency}",
        )  # fmt: skip
    printed = capsys.readouterr().out
    found = stages(printed)
    assert code == (0 if holds else 1), printed
    assert found["dependency slow"] is holds
    assert found["dependency is back"], printed
    if not holds:
        assert "  waits for its dependency: " in printed
        assert "  shared fate: /beside needs no dependency" in printed
        assert "    fix: give each dependency its own slots" in printed


def test_a_service_that_does_not_use_the_proxy_is_no_drill_of_its_dependency(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with serving(OK) as dependency:
        address = dependency.url.removeprefix("http://").strip("/")
        command = [sys.executable, SERVICE, "fifo", "{port}"]
        assert drill(*FAILING, "--dependency", address, "--", *command) == 2
    assert "let the service call {dependency}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--url: None cannot be used; give it, or a command"),
        (["--url", "http://10.0.0.1/"], "a drill is for this machine"),
        (["--url", "http://example.com/"], "a drill is for this machine"),
        (["--url", "ftp://127.0.0.1/"], "give http://127.0.0.1:PORT/path"),
        (["--dependency", "10.0.0.1:80", "--", "true"], "give 127.0.0.1:PORT"),
        (["--seconds", "1000", "--", "true"], "--seconds: 1000.0 cannot be used; give a number"),
        (["--seconds", "nan", "--", "true"], "--seconds: nan cannot be used; give a number"),
        (["--patience-ms", "0", "--", "true"], "--patience-ms: 0 cannot be used"),
        (["--health-ms", "0", "--", "true"], "--health-ms: 0 cannot be used"),
        (["--rate-max", "0", "--", "true"], "--rate-max: 0 cannot be used"),
        (["--goodput-min", "2", "--", "true"], "--goodput-min: 2.0 cannot be used"),
        (["--times", "0", "--", "true"], "--times: 0.0 cannot be used"),
        (["--health", "up", "--", "true"], "--health: 'up' cannot be used"),
        (["--path", "page", "--", "true"], "--path: 'page' cannot be used"),
        (["--times", "a", "--", "true"], "--times: 'a' cannot be used"),
        (["--only", "dependency", "--", "true"], "--dependency: None cannot be used"),
        (["--", "/no/such/program"], "give a program that can be run"),
    ],
)
def test_what_it_cannot_drill_is_refused_in_a_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert drill(*words) == 2
    assert message in capsys.readouterr().err


def test_the_variable_port_is_the_drills_whatever_the_shell_has(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PORT", "of the shell")
    says = "import os; raise SystemExit('PORT=' + os.environ['PORT'])"
    assert drill("--", sys.executable, "-c", says) == 1
    named, ended = re.findall(r"PORT, (\d+)|PORT=(\d+)", capsys.readouterr().err)
    assert named[0] == ended[1]


def test_a_service_that_ends_is_told_with_its_last_words(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert drill("--", sys.executable, "-c", "raise SystemExit('no such database')") == 1
    assert "it ended with code 1: no such database" in capsys.readouterr().err


@pytest.mark.prove
@pytest.mark.parametrize(
    ("kind", "cause", "fix"),
    [
        ("failing", "wrong answers: ", "reject what it cannot do with 503"),
        ("empty", "answers without content: ", "answer 503 if the content is missing"),
        (
            "computing",
            "CPU-bound: one process ran ",
            "run one process for each core",
        ),
    ],
)
def test_cause_under_overload_is_named_with_its_fix(
    kind: str, cause: str, fix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [sys.executable, SERVICE, kind, "{port}"]
    assert drill(*OVERLOADED, *HURRIED, "--path", "/page", "--", *command) == 1
    printed = capsys.readouterr().out
    assert not stages(printed)["overload"], printed
    assert f"  {cause}" in printed
    assert f"    fix: {fix}" in printed


@pytest.mark.prove
def test_process_that_ends_under_overload_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, SERVICE, "dying", "{port}"]
    assert drill(*OVERLOADED, *HURRIED, "--path", "/page", "--", *command) == 1
    printed = capsys.readouterr().out
    assert list(stages(printed).values())[-1] is False
    assert "  process ended: it ended with code 7: out of something" in printed


ENDS = """
import http.server, os, sys
class Ends(http.server.SimpleHTTPRequestHandler):
    asked = 0
    def do_GET(self):
        Ends.asked += 1
        if Ends.asked > 20:
            os._exit(3)
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")
    def log_message(self, *words):
        print("served", Ends.asked, flush=True)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Ends).serve_forever()
"""


def test_process_that_ends_is_named_with_its_last_words(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = [sys.executable, "-c", ENDS, "{port}"]
    assert drill("--health", "/", "--patience-ms", "30000", "--", *command) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("it broke in 1 of 1 stage: search for its capacity.\n\n")
    assert "  process ended: it ended with code 3: served 20" in printed
    assert "    fix: bound what it holds" in printed
    assert "not tried: every later stage: the service has ended" in printed


def test_service_of_others_that_ends_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port("127.0.0.1")
    with subprocess.Popen([sys.executable, "-c", ENDS, str(port)]) as process:
        url = f"http://127.0.0.1:{port}/"
        code = drill("--health", "/", "--patience-ms", "30000", "--url", url)
        assert process.wait(30) == 3
    assert code == 1
    assert "  process ended: nothing listens on its port any more" in capsys.readouterr().out


@pytest.mark.prove
@pytest.mark.parametrize("front", [True, False])
def test_flask_with_four_threads_holds_behind_front_alone(
    front: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control is waitress with as many threads."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([ROOT, os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("SHOP_FOLDER", str(tmp_path))
    flags = [
        "--threads",
        "4",
        "--listen",
        "127.0.0.1:{port}",
        "tests.apps.resilience.serve.shop:app",
    ]
    served = ["sluicegate.cli", "resilience", "serve"] if front else ["waitress"]
    brief = ["--only", "overload", "--seconds", "2", "--times", "2", "--goodput-min", "0.45"]
    patient = ["--patience-ms", "500", "--health-ms", "450"]
    command = [sys.executable, "-m", *served, *flags]
    code = drill(*brief, *patient, "--path", "/work", "--", *command)
    printed = capsys.readouterr().out
    assert code == (0 if front else 1), printed
    assert stages(printed)["overload"] is front
    assert ("  slow health check: " in printed) is not front


@pytest.mark.prove
@pytest.mark.parametrize(
    ("kind", "leak"), [("leaking", "memory leak"), ("leaking-files", "file descriptor leak")]
)
def test_leak_is_named_with_its_fix(
    kind: str, leak: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [sys.executable, SERVICE, kind, "{port}"]
    brief = ["--only", "overload", "--seconds", "1.6", "--times", "1", *PATIENT]
    assert drill(*brief, "--path", "/page", "--", *command) == 1
    printed = capsys.readouterr().out
    assert not stages(printed)["leaks"], printed
    assert f"  {leak}: " in printed


@pytest.mark.prove
def test_unsteady_service_ends_drill_after_calm(capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, SERVICE, "unsteady", "{port}"]
    assert drill(*OVERLOADED, *PATIENT, "--path", "/page", "--", *command) == 1
    printed = capsys.readouterr().out
    assert stages(printed) == {"calm": False}
    assert "    fix: fix what fails at half load first" in printed
    assert re.search(r"^  wrong answers: 2\d% got an error", printed, re.MULTILINE)


def test_expected_text_that_is_missing_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, SERVICE, "fifo", "{port}"]
    assert drill("--path", "/page", "--expect", "<title>", "--", *command) == 2
    assert "--expect: '<title>' cannot be used; give text of a good answer" in (
        capsys.readouterr().err
    )


@contextlib.contextmanager
def drilling(mark: Path) -> Iterator[subprocess.Popen[str]]:
    """A drill of a service that starts a child of its own and writes both numbers down."""
    code = (
        "import os, pathlib, subprocess, sys, time\n"
        "one = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"pathlib.Path({str(mark)!r}).write_text(f'{{os.getpid()}} {{one.pid}} ')\n"
        "time.sleep(60)\n"
    )
    command = [sys.executable, "-m", "sluicegate.cli", "resilience", "drill"]
    with subprocess.Popen(
        [*command, "--", sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def alive(number: int) -> bool:
    try:
        state = (
            Path(f"/proc/{number}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
        )
    except OSError:
        return False
    return state != "Z"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_the_service_and_what_it_has_started(tmp_path: Path, number: int) -> None:
    mark = tmp_path / "pids"
    with drilling(mark) as process:
        while not mark.exists() or mark.read_text().count(" ") < 2:
            assert process.poll() is None
            os.sched_yield()
        pids = [int(word) for word in mark.read_text().split()]
        assert all(map(alive, pids))
        process.send_signal(number)
        assert process.wait(60) == 130
        assert not any(map(alive, pids))


def test_drill_end_waits_for_killed_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed child runs on until the kernel gets to it, which takes time on a busy machine."""
    sent: list[int] = []
    real = os.killpg

    def killpg(group: int, number: int) -> None:
        sent.append(number)
        if number != 0:
            real(group, number)
        elif sent.count(0) > 3:
            raise ProcessLookupError

    monkeypatch.setattr(os, "killpg", killpg)
    with started([sys.executable, "-c", "import time; time.sleep(60)"], {}):
        pass
    assert sent == [signal.SIGTERM, signal.SIGKILL, 0, 0, 0, 0]


def test_an_answer_that_came_too_late_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the loop was too busy to cancel in time."""

    async def exchange(*_: object) -> tuple[int, bytes, bool]:
        end_us = now_us() + 60_000
        while now_us() < end_us:
            pass
        return 200, b"", False

    async def ask(port: int, patience_us: int) -> int:
        caller = HttpCaller("127.0.0.1", port, patience_us)
        try:
            return (await caller.ask("/")).status
        finally:
            caller.close()

    monkeypatch.setattr(HttpCaller, "_exchange", exchange)
    with serving(OK) as server:
        port = int(server.url.rpartition(":")[2].strip("/"))
        assert asyncio.run(ask(port, 60_000_000)) == 200
        with pytest.raises(TimeoutError):
            asyncio.run(ask(port, 50_000))


EMPTY = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
NONE = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("script", "expect", "expected"),
    [
        ([OK, EMPTY, OK, NONE], "", [True, False, True, True]),
        ([EMPTY, EMPTY], "", [True, True]),
        ([OK, EMPTY], "ok", [True, False]),
        ([OK, NONE], "ok", [True, False]),
    ],
)
def test_success_without_expected_content_is_unexpected(
    script: list[bytes], expect: str, expected: list[bool]
) -> None:
    async def ask(port: int) -> list[bool]:
        caller = HttpCaller("127.0.0.1", port, 30_000_000, expect.encode())
        try:
            return [(await caller.ask("/")).expected for _ in script]
        finally:
            caller.close()

    with serving(*script) as server:
        assert asyncio.run(ask(server.port)) == expected


def test_the_proxy_passes_and_resets() -> None:
    async def ask(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            return await reader.read()
        finally:
            writer.close()

    async def play(target: tuple[str, int]) -> None:
        proxy = FaultProxy(target, 1_000)
        port = await proxy.start()
        try:
            assert await ask(port) == OK
            proxy.switch(DEAD)
            with pytest.raises(ConnectionResetError):
                await ask(port)
            proxy.switch(PASS)
            assert await ask(port) == OK
            assert proxy.connections == 3
        finally:
            await proxy.close()

    with serving(OK) as server:
        asyncio.run(play(("127.0.0.1", server.port)))


def test_a_proxy_that_is_closed_amid_an_answer_complains_of_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def play(target: tuple[str, int]) -> None:
        proxy = FaultProxy(target, 1_000)
        port = await proxy.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await asyncio.to_thread(server.hanging.wait, 30)
        await proxy.close()
        assert await reader.read() == b""
        writer.close()

    with serving(HANGS) as server:
        asyncio.run(play(("127.0.0.1", server.port)))
    assert caplog.messages == []
