"""The live views: rates from two boards, lines that no stranger's name can command."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import pty
import re
import struct
import termios
import threading
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from sluicegate.apps.kv import hot
from sluicegate.apps.kv.board import CALLERS_MAX, OTHERS, CallerUse, ClassUse, EngineUse, board
from sluicegate.apps.kv.shield.keys import key_of
from sluicegate.apps.kv.shield.settings import HotPlace, ShieldSettings
from sluicegate.apps.kv.shield.shield import Shield
from sluicegate.apps.kv.store_watch import StoreState
from sluicegate.apps.kv.top import command as top
from sluicegate.apps.kv.top.lines import hot_lines, printable, size, spelt, top_lines
from sluicegate.apps.kv.top.show import show
from sluicegate.command_line.board_rates import picture
from sluicegate.command_line.boards import BoardSample
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue, SluicegateError, Unavailable
from sluicegate.contracts.key_values import Upload
from sluicegate.policies.admission.degradation import OverloadLevel
from sluicegate.policies.admission.pressure import Pressure, SlowResource
from sluicegate.policies.stack import StackStats, StageStats
from sluicegate.telemetry.snapshot import Histogram
from sluicegate.testing import SeededChance

START = 1_000_000_000_000_000
SECOND = 1_000_000
KEY = key_of("shops", b"ann", b"cart")
BUSY = Pressure(
    OverloadLevel.STRESSED, ("9 wait for 64 slots (found)",), 0.28, "s1", 64, True, 60, 9, 4_096, 5,
    12_000, 0,
)  # fmt: skip
IDLE = Pressure(OverloadLevel.CALM, (), 1.0, "", 64, True, 0, 0, 0, 0, 0, 0)
CALM = BUSY._replace(level=OverloadLevel.CALM, why=(), ratio=1.0, slowest="")


def recorded(at_s: float = 0.0, count: int = 0, **some: Any) -> dict[str, Any]:
    """The board of a busy dispatcher, `count` of everything further on."""
    shield = Shield(ShieldSettings(), SeededChance(1)).stats()
    fields: dict[str, Any] = {
        "at_us": START + round(at_s * SECOND),
        "node": "kv-1",
        "stack": StackStats(
            3 * count, 0, 2 * count, count, 0, 7, 2 * count, (StageStats("queue", 0, count, 0, 0),)
        ),
        "refusals": {"quota_spent": count, "deadline": 0},
        "usage": {
            "ann": CallerUse(5_000 * count, 2 * count, 0, 100),
            "bob": CallerUse(1_000 * count, 0, count, 0, 4_000 * count),
        },
        "pressure": BUSY,
        "classes": [
            ClassUse(
                member,
                count,
                count if member is Criticality.BULK else 0,
                2_500 if member is Criticality.BULK else 1_000,
            )
            for member in Criticality
        ],
        "engine": {"get": EngineUse(count, 0, 250 * count)},
        "shield": shield._replace(hot=shield.hot._replace(cold=count, served=4 * count, cached=2)),
        "hot": [HotPlace(KEY, 800, 4 * count, count, 2_048)],
        "remembered": 1_000,
        "uploads": [
            Upload("shops", "night", "replace", "open", (0, 1), 5_000, 1 << 20, START, "ann")
        ],
    }
    return json.loads(json.dumps(board(**(fields | some))))  # type: ignore[no-any-return]


def picture_of(
    before: dict[str, Any] | None = None, after: dict[str, Any] | None = None
) -> dict[str, Any]:
    return picture(
        [BoardSample("u", before or recorded())], [BoardSample("u", after or recorded(2.0, 100))]
    )


# From counts to rates.


def test_counts_become_rates_by_the_time_between_the_boards() -> None:
    figures = picture_of()
    assert figures["work"] == {"entered": 150, "admitted": 100, "refused": 50, "under_way": 7}
    assert figures["callers"] == [
        {
            "caller": "ann",
            "ru": 250,
            "refused_ru": 0,
            "admitted": 100,
            "refused": 0,
            "quota_ru": 100,
        },
        {"caller": "bob", "ru": 50, "refused_ru": 200, "admitted": 0, "refused": 50, "quota_ru": 0},
    ]
    assert figures["refusals"] == {"quota_spent": 50, "deadline": 0}
    assert figures["engine"] == [{"operation": "get", "worked": 50, "failed": 0, "mean_us": 250}]
    assert figures["classes"][3] == {"class": "BULK", "price": 2.5, "admitted": 50, "refused": 50}
    assert figures["queue"]["delay_us"] == 12_000
    (key,) = figures["hot"]
    assert (key["share"], key["rate"], key["served"], key["forwarded"]) == (0.8, 250, 200, 50)


def test_what_ended_between_the_boards_says_how_long_requests_take() -> None:
    def took(at_s: float, fast: int, slow: int) -> dict[str, Any]:
        bounds = (200, 1_000, 10_000)
        gets = Histogram(bounds, (fast, 0, 0, 0), 0)
        scans = Histogram(bounds, (0, 0, slow, 0), 0)
        of = {
            ("get", Criticality.CRITICAL): gets,
            ("scan", Criticality.CRITICAL): scans,
            ("get", Criticality.BULK): Histogram(bounds, (7, 0, 0, 0), 0),
        }
        return recorded(at_s, took=of)

    latency = picture_of(took(0.0, 900, 50), took(2.0, 990, 60))["latency"]
    assert set(latency) == {"CRITICAL"}  # of BULK nothing ended in between
    assert latency["CRITICAL"]["p50_us"] == pytest.approx(200 * 50 / 90)
    assert latency["CRITICAL"]["p99_us"] == pytest.approx(1_000 + 9_000 * 9 / 10)
    assert picture_of()["latency"] == {}


def test_slow_shards_of_all_dispatchers_are_sorted_and_shown() -> None:
    def slow(shard: str, ratio: float) -> SlowResource:
        return SlowResource(shard, "get", ratio, 7, 12, "found")

    before = [BoardSample("a", recorded()), BoardSample("b", recorded())]
    after = [
        BoardSample("a", recorded(1, 10, slow=[slow("s1", 0.5)])),
        BoardSample("b", recorded(1, 10, slow=[slow("s2", 0.25)])),
    ]
    figures = picture(before, after)
    assert [one["shard"] for one in figures["slow"]] == ["s2", "s1"]
    lines = "\n".join(top_lines(figures))
    assert re.search(r"s2 +get +0.25 +7 +12 \(found\)", lines)


def test_without_prices_no_price_is_shown() -> None:
    classes = [ClassUse(member, 9, 0, 0) for member in Criticality]
    figures = picture_of(recorded(classes=classes), recorded(2.0, classes=classes))
    assert figures["classes"][0]["price"] is None
    assert "price" not in "\n".join(top_lines(figures))
    assert "price" in "\n".join(top_lines(picture_of()))


def test_two_dispatchers_are_added_up_and_of_levels_the_worst_is_told() -> None:
    before = [BoardSample("a", recorded()), BoardSample("b", recorded())]
    after = [BoardSample("a", recorded(1, 10)), BoardSample("b", recorded(2, 10, pressure=CALM))]
    figures = picture(before, after)
    assert figures["work"]["admitted"] == 30
    assert figures["callers"][0]["ru"] == 75
    assert figures["stress"]["ratio"] == 0.28
    assert (figures["queue"]["slots"], figures["queue"]["origin"]) == (128, "found")
    assert (figures["hot"][0]["guaranteed"], figures["hot"][0]["share"]) == (1_600, 0.8)


def test_a_dispatcher_that_was_restarted_has_no_rates_below_nothing() -> None:
    assert picture_of(recorded(0, 1_000), recorded(1, 10))["work"]["admitted"] == 20


def test_a_dispatcher_that_was_not_there_before_has_no_rates_yet() -> None:
    figures = picture([BoardSample("u", None, "gone")], [BoardSample("u", recorded(1, 10))])
    assert figures["work"]["admitted"] == 0
    assert picture_of(recorded(1), recorded(1, 10))["work"]["admitted"] == 0  # the same instant


def test_a_dispatcher_without_layers_has_a_board_too() -> None:
    bare = json.loads(json.dumps(board(at_us=START)))
    lines = top_lines(picture_of(bare, bare))
    assert lines[0].startswith("1 dispatcher: 0 asked/s")


def test_the_callers_on_the_board_are_bounded_and_the_rest_is_one() -> None:
    usage = {f"c{i:04}": CallerUse(i, 1, 2, 0, 1) for i in range(CALLERS_MAX + 5)}
    callers = recorded(usage=usage)["callers"]
    assert len(callers) == CALLERS_MAX + 1
    assert callers[0]["caller"] == f"c{CALLERS_MAX + 4:04}"
    assert callers[-1] == {
        "caller": OTHERS, "mru": 10, "admitted": 5, "refused": 10, "quota_ru": 0,
            "refused_mru": 5,
    }  # fmt: skip


def test_a_store_that_is_gone_for_some_is_told_with_the_one_that_lost_it_first() -> None:
    def stores(*states: StoreState | None) -> dict[str, Any]:
        boards = [recorded(60, store=one) for one in states]
        samples = [BoardSample(str(at), one) for at, one in enumerate(boards)]
        return picture(samples, samples)

    now_us = START + 60 * SECOND
    losses = [StoreState(True, now_us - s * SECOND, f"why {s}\x1b", 1) for s in (5, 40)]
    figures = stores(None, StoreState(False, now_us, "once", 1), *losses)
    assert figures["store"] == {
        "asked_by": 3,
        "gone_for": 2,
        "gone_us": 40 * SECOND,
        "why": "why 40\x1b",
    }
    (line,) = [line for line in top_lines(figures) if line.startswith("the store")]
    assert line.startswith("the store does not answer 2 of 3 dispatchers, for 40 s: why 40")
    assert "\x1b" not in line
    for there in (stores(None), stores(StoreState(False, now_us, "once", 1))):
        assert there["store"]["gone_for"] == 0
        assert not [line for line in top_lines(there) if "store" in line]


# From rates to lines.


def test_the_lines_tell_who_is_served_who_is_refused_and_what_is_hot() -> None:
    text = "\n".join(top_lines(picture_of()))
    for part in (
        "1 dispatcher: 350 asked/s, 200 answered from memory, 100 admitted, 50 refused, 7 under",
        "stressed (9 wait for 64 slots (found)): latency ratio 0.28 of s1",
        "queue: 9 waiting (4.0 KiB), delay 12.00 ms, 60 in flight, limit 64 (found), overloaded",
        "ann     250   250%      100         0",
        "quota_spent  50",
        "BULK         2.50",
        "get     50     0.25 ms",
        "shops:ann:cart  80.0%  250      200       50           2.0 KiB",
        "shops/night  replace  open",
        "250 point reads/s, 80.0% without the engine",
    ):
        assert part in text, part
    assert "deadline" not in text  # nobody was refused so


def test_what_there_is_no_room_for_is_counted() -> None:
    usage = {f"c{i}": CallerUse(i, 1, 2) for i in range(12)}
    lines = top_lines(picture_of(after=recorded(1, 1, usage=usage)))
    assert "  and 2 callers more" in lines


def test_who_does_not_answer_is_named_beside_the_others() -> None:
    figures = picture(
        [], [BoardSample("http://a", recorded()), BoardSample("http://b", None, "refused\x1b")]
    )
    assert top_lines(figures)[1] == "  http://b does not answer: refused\N{REPLACEMENT CHARACTER}"


def test_an_engine_that_fails_stands_above_all_and_nothing_is_calm() -> None:
    fails = StoreState(True, START - 3 * SECOND, "no space left on device", 1)
    after = recorded(2, 100, pressure=CALM, engine_state=fails)
    lines = top_lines(picture_of(recorded(), after))
    assert lines[0] == "the engine fails 1 of 1 dispatcher, for 5 s: no space left on device"
    assert not any("calm" in line for line in lines)


def test_an_engine_that_ends_nothing_stands_still_and_nothing_is_calm() -> None:
    engine = {"get": EngineUse(50, 0, 9)}
    before = recorded(0, 50, pressure=CALM, engine=engine)
    lines = top_lines(picture_of(before, recorded(2, 90, pressure=CALM, engine=engine)))
    assert lines[0] == "the engine stands still: of the work of 1 dispatcher none has ended"
    assert not any("calm" in line for line in lines)
    # One that ends what it does, or has nothing to do, is well.
    for after in (
        recorded(2, 90, pressure=CALM, engine={"get": EngineUse(51, 0, 9)}),
        recorded(2, 90, pressure=IDLE, engine=engine),
    ):
        lines = top_lines(picture_of(before, after))
        assert not any("engine" in line and "still" in line for line in lines)
        assert any(line.startswith("calm") for line in lines)


EVIL = "\x1b]0;gone\x07\x1b[2J\u202e\n\u2028x"


def test_no_name_and_no_key_commands_the_terminal() -> None:
    after = recorded(
        1,
        100,
        usage={EVIL: CallerUse(1, 1, 1)},
        refusals={EVIL: 5},
        engine={EVIL: EngineUse(1, 1, 1)},
        hot=[
            HotPlace(key_of("t", EVIL.encode(), EVIL.encode()), 5, 1, 1, 1),
            HotPlace(EVIL, 1, 1, 1, 1),
        ],
        uploads=[Upload(EVIL, EVIL, EVIL, EVIL, (), 1, 1, 1, EVIL)],
    )
    after["stress"].update(level=EVIL, why=[EVIL], slowest=EVIL)
    figures = picture(
        [BoardSample(EVIL, recorded())], [BoardSample(EVIL, after), BoardSample(EVIL, None, EVIL)]
    )
    lines = top_lines(figures) + hot_lines(figures)
    assert len(lines) > 20
    assert all(line.isprintable() for line in lines)


def test_a_name_without_end_is_cut() -> None:
    assert len(printable("x" * 1_000_000)) == 40
    assert spelt(key_of("t", b"\xff" * 240, b"")).startswith("t:\N{REPLACEMENT CHARACTER}")
    assert len(spelt(key_of("t", b"p" * 240, b"s" * 240))) == 48
    assert [size(n) for n in (0, 1_023, 1_024, 1 << 40)] == [
        "0 B",
        "1,023 B",
        "1.0 KiB",
        "1,024.0 GiB",
    ]


# A real server, and the commands.


@contextmanager
def serving(*answers: tuple[int, Any], token: str = "") -> Iterator[str]:
    """A server that gives one state after the other, and the last one again and again."""
    left = list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, content = left.pop(0) if len(left) > 1 else left[0]
            if self.path != "/v1/state":
                status, content = 404, {}
            if token and self.headers.get("Authorization") != f"Bearer {token}":
                status, content = 401, {}
            body = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


TWO = ((200, {"board": recorded()}), (200, {"board": recorded(2.0, 100)}))


def run_command(command: Any, *flags: str) -> tuple[int, str]:
    parser = ArgumentParser()
    command.add_arguments(parser)
    out = io.StringIO()
    return command.run(parser.parse_args([*flags, "--every", "0.1"]), out), out.getvalue()


def test_top_once_shows_a_picture_and_ends() -> None:
    with serving(*TWO) as url:
        code, text = run_command(top, url, "--once")
    assert code == 0
    assert text.startswith("1 dispatcher: 350 asked/s")


def test_top_as_json_is_the_whole_picture() -> None:
    with serving(*TWO) as url:
        _, text = run_command(top, "--url", url, "--once", "--json")
    assert json.loads(text)["work"]["entered"] == 150


def test_hot_shows_so_many_keys_with_their_places() -> None:
    keys = [HotPlace(key_of("t", b"%d" % i, b""), 10 - i, 1, 1, 1) for i in range(5)]
    boards = [(200, {"board": recorded(i, 10 * i, hot=keys)}) for i in range(2)]
    with serving(*boards) as url:
        _, text = run_command(hot, url, "--once", "--k", "2")
    assert "t:0" in text
    assert "t:1" in text
    assert "and 3 keys more" in text
    with serving(*boards) as url:
        _, text = run_command(hot, url, "--once", "--json", "--k", "2")
    assert [one["place"] for one in json.loads(text)["hot"]] == ["t:0", "t:1"]


def test_one_of_two_may_be_gone() -> None:
    with serving(*TWO) as url:
        _, text = run_command(top, url, "http://127.0.0.1:1", "--once")
    assert text.startswith("1 dispatcher: 350 asked/s")
    assert "http://127.0.0.1:1 does not answer" in text
    with serving(*TWO) as url:
        _, text = run_command(hot, url, "http://127.0.0.1:1", "--once")
    assert text.startswith("  http://127.0.0.1:1 does not answer")


@pytest.mark.parametrize(
    "wrong",
    [
        {"callers": [{"name": "ann"}]},
        {"callers": 7},
        {"hot": {"a": 1}},
        {"queue": [1]},
        {"stress": {"level": "calm"}},
        {"at_us": "noon"},
        {"at_us": float("inf")},
        {"uploads": [None]},
        {"engine": {"get": None}},
    ],
)
def test_a_malformed_board_is_told_beside_the_others(wrong: dict[str, Any]) -> None:
    with serving(*TWO) as url, serving((200, {"board": recorded() | wrong})) as other:
        _, text = run_command(top, url, other, "--once")
        assert text.startswith("1 dispatcher: 350 asked/s")
        assert f"{other} does not answer: its board cannot be understood" in text
        with pytest.raises(Unavailable, match="its board cannot be understood"):
            run_command(top, other, "--once", "--json")


def test_when_all_are_gone_it_says_so() -> None:
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
        run_command(top, "http://127.0.0.1:1", "--once")


def test_a_token_is_sent_and_the_lack_of_one_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(*TWO, token="secret") as url:
        with pytest.raises(SluicegateError, match="a token with the grant audit"):
            run_command(top, url, "--once")
        assert run_command(top, url, "--once", "--token", "secret")[0] == 0
        monkeypatch.setenv("SLUICEGATE_TOKEN", "secret")
        assert run_command(top, url, "--once")[0] == 0


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((200, {"app": "limiter"}), "is no dispatcher"),
        ((200, [1]), "is no dispatcher"),
        ((200, {"board": {"version": 2}}), "version 2, and this knows up to 1"),
        ((200, {"board": {}}), "version None"),
        ((200, b"<html>"), "no JSON"),
        ((503, {}), "it answers 503"),
    ],
)
def test_what_it_cannot_read_it_says(answer: tuple[int, Any], message: str) -> None:
    with serving(answer) as url, pytest.raises(SluicegateError, match=message):
        run_command(top, url, "--once")


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        (top, ["ftp://x"]),
        (top, ["--every", "0"]),
        (top, ["--rows", "0"]),
        (hot, ["--k", "0"]),
        (hot, ["--k", "101"]),
    ],
)
def test_wrong_flags_are_refused(command: Any, flags: list[str]) -> None:
    parser = ArgumentParser()
    command.add_arguments(parser)
    with pytest.raises(BadValue, match="--"):
        command.run(parser.parse_args([*flags, "--once"]), io.StringIO())


def stopped_after(pictures: int) -> Callable[[float], None]:
    """A pause that somebody interrupts after so many pictures."""
    left = [pictures]

    def pause(_: float) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt

    return pause


def live(flags: list[str], out: Any, terminal: str) -> int:
    parser = ArgumentParser()
    top.add_arguments(parser)
    return show(
        parser.parse_args(flags), top_lines, dict, out, terminal=terminal, pause=stopped_after(3)
    )


def test_without_a_terminal_it_goes_on_as_lines_until_it_is_interrupted() -> None:
    out = io.StringIO()
    with serving(*TWO) as url:
        assert live([url], out, "xterm") == 0
    first, second, third = out.getvalue().split("\n\n1 dispatcher: ")
    assert "350 asked/s" in first
    assert second.startswith("0 asked/s")  # nothing happened since the look before
    assert third.startswith("0 asked/s")
    assert "\x1b" not in out.getvalue()


def test_on_a_terminal_it_is_shown_in_place_and_the_terminal_is_given_back() -> None:
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    chunks: list[bytes] = []
    reader = threading.Thread(target=read_all, args=(main, chunks))
    reader.start()
    with serving(*TWO) as url, open(side, "w", encoding="utf-8") as out:
        assert live([url, "--rows", "2"], out, "xterm") == 0
    reader.join()
    os.close(main)
    text = b"".join(chunks).decode()
    assert text.count("\x1b[?1049h") == 1  # the other screen, and back
    assert text.index("\x1b[?1049l") > text.rindex("asked/s")
    assert "Ctrl-C ends" in text


def read_all(terminal: int, chunks: list[bytes]) -> None:
    """What is written to a terminal until its other side is closed, which Linux tells as an error.

    Somebody has to read it all the while, or whoever writes waits.
    """
    with contextlib.suppress(OSError):
        while part := os.read(terminal, 1 << 16):
            chunks.append(part)
