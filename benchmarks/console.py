"""Console: what it costs a limiter that 100 people look, and how soon they see something.

    python -m benchmarks.console [--seconds 6] [--rounds 3]

Prints the first page of a cold console (and its first paint, where there is Chromium), the CPU of a
limiter and its p99 with and without 100 open pages, in turns, the pages of 1,000 services, and the
page that searches a million rules. The load, the limiter and the console share the machine, so p99
is a ratio of the same run.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.resource_rules import RULES, write
from tests.apps.console.process import ConsoleProcess
from tests.apps.limiter.process import NATIVE, LimiterProcess, rules_file
from tests.engines.child import free_port, until

OPEN_PAGES = 100
NODES = 1_000
ASKS_PER_S = 200  # a load that leaves the machine room: what is measured is the console
TICKS_PER_S = os.sysconf("SC_CLK_TCK")

# Answers as many services do, each at an address of 127.0.0.0/8.
FLEET = """
import asyncio, json, sys, time
async def serve(reader, writer):
    try:
        while await reader.readuntil(b"\\r\\n\\r\\n"):
            body = json.dumps({"app": "limiter", "version": "1", "up_us": 1,
                "at_us": time.time_ns() // 1000, "decisions": {"BULK": {"allowed": 1}}}).encode()
            writer.write(b"HTTP/1.1 200 OK\\r\\ncontent-type: application/json\\r\\n"
                b"content-length: %d\\r\\n\\r\\n" % len(body) + body)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
async def main():
    server = await asyncio.start_server(serve, "0.0.0.0", int(sys.argv[1]), backlog=2000)
    async with server:
        await server.serve_forever()
asyncio.run(main())
"""


def get(port: int, path: str) -> tuple[float, bytes]:
    """Seconds until a whole page was there, and the page."""
    began = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path)
    page = connection.getresponse().read()
    connection.close()
    return time.perf_counter() - began, page


def cpu_s(pid: int) -> float:
    """CPU seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def open_pages(port: int, number: int) -> list[socket.socket]:
    """Connections that follow the overview; a thread reads and forgets what comes."""
    sockets = []
    for _ in range(number):
        one = socket.create_connection(("127.0.0.1", port))
        one.sendall(b"GET /live/overview HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % port)
        one.setblocking(False)
        sockets.append(one)
    return sockets


def drain(sockets: list[socket.socket], ended: threading.Event, got: list[int]) -> None:
    """Read what comes, until the end."""
    while not ended.wait(0.05):
        for one in sockets:
            try:
                while data := one.recv(1 << 16):
                    got[0] += len(data)
            except BlockingIOError:
                pass


def ask(limiter: LimiterProcess, seconds: float) -> tuple[float, float]:
    """p99 of checks in ms at a steady pace, and the limiter's share of a core."""
    connection = http.client.HTTPConnection("127.0.0.1", limiter.port, timeout=10)
    body = json.dumps({"user_id": "ann", "resource_path": "/else"})
    headers = {"Content-Type": "application/json"}
    took = []
    began, before = time.perf_counter(), cpu_s(limiter.child.pid)
    due = began
    while (now := time.perf_counter()) < began + seconds:
        if now < due:
            time.sleep(due - now)
        at = time.perf_counter()
        connection.request("POST", "/v1/check", body, headers)
        connection.getresponse().read()
        took.append(time.perf_counter() - at)
        due = max(due + 1 / ASKS_PER_S, time.perf_counter() - 0.05)
    share = (cpu_s(limiter.child.pid) - before) / (time.perf_counter() - began)
    connection.close()
    return statistics.quantiles(took, n=100)[98] * 1_000, share


def first_page(folder: Path, limiter: LimiterProcess) -> None:
    """The first page of a console that has just begun."""
    with ConsoleProcess(folder, "--services", limiter.url) as console:
        took, page = get(console.port, "/")
        print(f"first page of a cold console: {took * 1_000:.0f} ms, {len(page):,} bytes")
    program = shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        program = None
    if program is None:
        return
    with (
        sync_playwright() as playwright,
        ConsoleProcess(folder, "--services", limiter.url) as console,
    ):
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        tab = browser.new_page()
        tab.goto(console.url)
        tab.wait_for_function("performance.getEntriesByName('first-contentful-paint').length")
        painted = tab.evaluate(
            "performance.getEntriesByName('first-contentful-paint')[0].startTime"
        )
        print(f"first paint in Chromium, of a cold console: {painted:.0f} ms (bar: 1,000 ms)")
        browser.close()


def many_pages(folder: Path, limiter: LimiterProcess, seconds: float, rounds: int) -> None:
    """A limiter's CPU and p99 with 100 open pages, and without."""
    with ConsoleProcess(folder, "--services", limiter.url) as console:
        closed, opened, p99s = [], [], []
        idle = [0.0, 0.0]
        for number in range(rounds):
            alone_ms, alone = ask(limiter, seconds)
            ended, got = threading.Event(), [0]
            sockets = open_pages(console.port, OPEN_PAGES)
            reader = threading.Thread(target=drain, args=(sockets, ended, got))
            reader.start()
            looked_ms, looked = ask(limiter, seconds)
            if number == rounds - 1:  # nobody asks the limiter but the console
                before, began = cpu_s(limiter.child.pid), time.perf_counter()
                time.sleep(seconds)
                idle[0] = (cpu_s(limiter.child.pid) - before) / (time.perf_counter() - began)
            ended.set()
            reader.join()
            for one in sockets:
                one.close()
            assert got[0] > OPEN_PAGES * 1_000, "the pages were not live"
            closed.append(alone)
            opened.append(looked)
            p99s.append(looked_ms / alone_ms)
            print(
                f"  p99 {alone_ms:.2f} ms alone, {looked_ms:.2f} ms with {OPEN_PAGES} pages; "
                f"limiter {alone:.2%} and {looked:.2%} of a core; {got[0] / 2**20:.1f} MiB sent"
            )
        more = statistics.median(opened) - statistics.median(closed)
        print(
            f"{OPEN_PAGES} open pages cost the limiter {more:+.2%} of a core (bar: 1%), its p99 "
            f"is {statistics.median(p99s):.2f} times that without (bar: 1.2), median of {rounds}; "
            f"a limiter that only the console asks takes {idle[0]:.2%} of a core"
        )


def many_nodes(folder: Path) -> None:
    """The pages of a thousand services."""
    port = free_port("127.0.0.1")
    fleet = subprocess.Popen([sys.executable, "-c", FLEET, str(port)])
    try:
        flags = []
        for at in range(NODES):
            flags += ["--services", f"http://127.1.{at // 250}.{at % 250 + 1}:{port}"]
        with ConsoleProcess(folder, *flags) as console:
            until(
                lambda: f"{NODES:,} of {NODES:,}".encode() in get(console.port, "/")[1],
                "all answer",
                children=[console.child],
            )
            for path in ("/", "/nodes"):
                took = [get(console.port, path)[0] for _ in range(10)]
                print(
                    f"{NODES:,} services, {path}: median {statistics.median(took) * 1_000:.0f} "
                    f"ms, worst of 10 {max(took) * 1_000:.0f} ms (bar: 1,000 ms)"
                )
    finally:
        fleet.terminate()
        fleet.wait()


def many_rules(folder: Path) -> None:
    """The page that searches a million rules, and what a search costs a check meanwhile."""
    rules = folder / "million"
    rules.mkdir()
    write(rules, RULES)
    with (
        LimiterProcess(folder, "--rules", str(rules), "--shed", "off") as limiter,
        ConsoleProcess(folder, "--services", limiter.url, "--timeout-s", "10") as console,
    ):
        for letters in ("", "rule-999999", "/catalog/5", "nowhere"):
            took, worst_ms = [], 0.0
            for _ in range(5):
                ended = threading.Event()
                asked: list[float] = []
                asker = threading.Thread(target=check_until, args=(limiter, ended, asked))
                asker.start()
                took.append(get(console.port, f"/rules?q={letters}")[0])
                ended.set()
                asker.join()
                worst_ms = max(worst_ms, *asked)
            print(
                f"of {RULES:,} rules those with {letters!r}: median "
                f"{statistics.median(took) * 1_000:.0f} ms, worst of 5 {max(took) * 1_000:.0f} ms; "
                f"the slowest check meanwhile {worst_ms:.1f} ms"
            )


def check_until(limiter: LimiterProcess, ended: threading.Event, took_ms: list[float]) -> None:
    """Ask the limiter, one check after another, and note how long each took."""
    while not ended.is_set():
        began = time.perf_counter()
        limiter.check("ann", "/catalog/5/rows")
        took_ms.append((time.perf_counter() - began) * 1_000)


def main() -> None:
    """Run all, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with LimiterProcess(folder, "--rules", rules_file(folder, NATIVE)) as limiter:
            first_page(folder, limiter)
            many_pages(folder, limiter, arguments.seconds, arguments.rounds)
        many_nodes(folder)
        many_rules(folder)


if __name__ == "__main__":
    main()
