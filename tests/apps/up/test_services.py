"""What `sluicegate up` starts: the services as children, and the story of the load."""

from __future__ import annotations

import asyncio
import io
import json
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from sluicegate.apps.up import run, services
from sluicegate.apps.up.children import ChildProcess
from sluicegate.apps.up.run import why_none
from sluicegate.apps.up.services import Services
from sluicegate.apps.up.story_parts import (
    CONTENTS,
    LIMITER_RULES,
    SCENES,
    STREAMS,
    Scene,
    image_stream,
    picture,
    scene_at,
)
from sluicegate.service.access_file import read_access_file
from sluicegate.testing import SeededChance
from tests.apps.limiter.process import LimiterProcess, rules_file
from tests.apps.up.running import DEADLINE_S


def test_a_service_ends_when_what_started_it_is_gone() -> None:
    command = [sys.executable, "-m", services.CHILD, "console", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert b"is ready" in child.stdout.readline()
        child.stdin.close()  # as the kernel does for whoever is killed
        assert child.wait(DEADLINE_S) == 0


def test_a_service_whose_packages_are_missing_says_how_to_get_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(services, "find_spec", lambda name: None if name == "pyvips" else name)
    missing = {one.name: services.missing_package(one) for one in services.plans(tmp_path)}
    assert missing["images"] == (
        "the package pyvips is missing; pip install '.[images]' in the checkout"
    )
    assert missing["limiter"] == missing["kv"] == missing["pubsub"] == ""


def test_a_child_that_cannot_start_says_why() -> None:
    async def story(port: int) -> tuple[str, str, int | None]:
        child = await ChildProcess.start(services.CHILD, "console", "--listen", f"127.0.0.1:{port}")
        line = await child.first_line()
        await child.stop()
        return line, child.complaint, child.code

    with socket.create_server(("127.0.0.1", 0)) as taken:
        line, complaint, code = asyncio.run(story(taken.getsockname()[1]))
    assert (line, code) == ("", 1)
    assert "is in use" in complaint


def test_whoever_comes_without_a_token_may_do_what_is_tried(tmp_path: Path) -> None:
    services.write_files(tmp_path)
    anonymous, callers = read_access_file(str(tmp_path / "callers.toml"))
    assert "*" in anonymous.tables
    assert [one.name for one in callers] == ["shop", "search", "feed", "nightly"]


def test_each_scene_comes_in_its_turn_and_they_begin_again() -> None:
    whole_s = sum(scene.seconds for scene in SCENES)
    assert [scene_at(at) for at in (0, 20, 35, 50, 70)] == list(SCENES)
    assert scene_at(whole_s) is SCENES[0]
    assert scene_at(3 * whole_s - 0.001) is SCENES[-1]


def test_a_scene_changes_one_thing() -> None:
    calm = Scene("", 1)
    noisy = calm._replace(noise=10.0)
    rates = [stream.rate_of(calm) for stream in STREAMS]
    loud = [stream.rate_of(noisy) for stream in STREAMS]
    assert sum(one != two for one, two in zip(rates, loud, strict=True)) == 1
    hot = calm._replace(hot_share=1.0)
    chance = SeededChance(1)
    reads = {STREAMS[0].make(hot, chance).path for _ in range(20)}
    assert len(reads) == 1
    assert len({STREAMS[0].make(calm, chance).path for _ in range(20)}) > 10


def test_what_the_load_asks_of_the_limiter_meets_each_of_its_rules(tmp_path: Path) -> None:
    chance = SeededChance(1)
    asks = [one.make(SCENES[0], chance) for one in STREAMS if one.service == "limiter"]
    with LimiterProcess(tmp_path, "--rules", rules_file(tmp_path, LIMITER_RULES)) as limiter:
        answers = [limiter.ask(ask.path, json.loads(ask.body))[1] for ask in asks]
    assert [(one["rule_id"], one["priority"]) for one in answers] == [
        ("checkout", "CRITICAL"),
        ("search", "DEGRADED"),
        ("export", "BULK"),
    ]


def test_pictures_are_images_of_which_some_are_the_same() -> None:
    assert Image.open(BytesIO(picture(3))).size == (160, 120)
    assert picture(3) == picture(3 + CONTENTS)
    assert picture(3) != picture(4)
    ask = image_stream("http://127.0.0.1:9").make(SCENES[0], SeededChance(1))
    assert ask.path.startswith("/img/w=")


def test_up_beside_running_console_names_its_url() -> None:
    command = [sys.executable, "-m", services.CHILD, "console", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        found = re.search(rb"127\.0\.0\.1:(\d+)", child.stdout.readline())
        assert found is not None
        said = asyncio.run(why_none(int(found[1])))
        child.stdin.close()
    assert said == f"already running: open http://127.0.0.1:{int(found[1])}"


def test_up_beside_another_server_names_free_ports() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nother")
        writer.close()

    async def story() -> str:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            return await why_none(server.sockets[0].getsockname()[1])

    assert "--free-ports" in asyncio.run(story())


def test_up_without_console_names_url_of_each_service() -> None:
    """It named the console's failure and no URL."""
    running = Services(own_ports=True, load=False)
    running.urls = {"limiter": "http://127.0.0.1:7070", "kv": "http://127.0.0.1:7080"}
    running.failures["console"] = "port 7050 on 127.0.0.1 is in use"
    running.settled = True
    assert running.lines() == [
        "limiter runs on http://127.0.0.1:7070",
        "kv runs on http://127.0.0.1:7080",
        "console does not run: port 7050 on 127.0.0.1 is in use",
    ]


def test_up_with_all_ports_taken_ends_with_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """It printed four lines and then waited for a signal."""

    @asynccontextmanager
    async def none(*, own_ports: bool, load: bool) -> AsyncIterator[Services]:
        services = Services(own_ports=own_ports, load=load)
        services.failures["kv"] = "port 7080 on 127.0.0.1 is in use"
        services.settled = True
        yield services

    monkeypatch.setattr(run, "started", none)
    monkeypatch.setattr(run, "CONSOLE_PORT", 1)
    out = io.StringIO()
    assert run.up(for_s=60, own_ports=True, load=False, out=out) == 1
    assert "kv does not run: port 7080" in out.getvalue()
    assert "--free-ports" in out.getvalue()
