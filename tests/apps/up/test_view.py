from __future__ import annotations

import io
import os
import pty

import pytest
from rich.cells import cell_len
from rich.console import Console

from sluicegate.apps.up.named_limits import NamedLimits
from sluicegate.apps.up.plain import line, opening, summary
from sluicegate.apps.up.settings import DEMO_RULES, Settings, parse_rules
from sluicegate.apps.up.view import About, can_show, frame, safe
from sluicegate.testing import HandClock

URL = "http://127.0.0.1:7000"


def busy(*rules: str) -> tuple[NamedLimits, About]:
    """A gate that has had a minute of work: `ann` below her limit, `bob` far above his."""
    clock = HandClock()
    parsed = parse_rules(rules or DEMO_RULES)
    gate = NamedLimits(parsed, clock)
    for _ in range(60):
        for _ in range(10):
            for name, key, cost in (("api", "ann", 0), ("api", "bob", 10), ("login", "bob", 1)):
                if name in gate.rules:
                    gate.check(name, key, cost)
            clock.advance(ms=100)
    return gate, About(URL, {rule.name: rule for rule in parsed}, compiled=False)


def screen(
    gate: NamedLimits, about: About, width: int, height: int, load: str = "no demo load"
) -> str:
    lines = frame(gate.snapshot(), about, gate.keys(), load, (width, height))
    assert len(lines) <= height
    for text in lines:
        assert cell_len(text.plain) <= width, text.plain
    out = io.StringIO()
    console = Console(file=out, width=width, height=height, color_system=None)
    for text in lines:
        console.print(text)
    return out.getvalue()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (120, 40), (150, 50)])
def test_the_screen_tells_who_is_refused_by_what_and_why(width: int, height: int) -> None:
    gate, about = busy()
    text = screen(gate, about, width, height, "demo load 400/s")
    assert "http://127.0.0.1:7000" in text
    assert "curl -i 'http://127.0.0.1:7000/v1/check?rule=api&key=you'" in text
    assert "up 1:00" in text
    assert "interpreted" in text
    assert "30 decisions/s" in text
    for rule in about.rules:
        assert f" {rule} " in text
    snapshot = gate.snapshot()
    assert f"{snapshot.admitted} admitted" in text
    assert "rate_limited" in text
    assert "The limit for this key is spent." in text
    assert "bob" in text
    assert "decision p50 <1 µs" in text
    assert "Ctrl-C ends it · demo load 400/s" in text


def test_the_taller_screen_shows_how_each_rule_counts() -> None:
    gate, about = busy()
    assert "sliding_log" in screen(gate, about, 100, 30)
    assert "sliding_log" not in screen(gate, about, 80, 24)


def test_the_screen_of_before_the_first_request_is_whole() -> None:
    gate = NamedLimits(parse_rules(DEMO_RULES), HandClock())
    about = About(URL, gate.rules, compiled=True)
    for size in ((80, 24), (120, 40)):
        text = screen(gate, about, *size)
        assert "0 decisions/s" in text
        assert "nothing yet" in text
        assert "compiled" in text


@pytest.mark.parametrize("size", [(60, 12), (61, 13), (75, 18), (200, 14), (90, 100)])
def test_odd_sizes_are_filled_and_never_overflow(size: tuple[int, int]) -> None:
    gate, about = busy()
    assert "Ctrl-C" in screen(gate, about, *size)


@pytest.mark.parametrize("size", [(1, 1), (20, 5)])
def test_a_screen_too_small_for_it_does_no_harm(size: tuple[int, int]) -> None:
    gate, about = busy()
    assert frame(gate.snapshot(), about, gate.keys(), "", size)


def test_many_rules_with_long_names_stay_within_the_screen() -> None:
    gate, about = busy(*(f"{'rule' * 7}{i:02} = 1000000/min burst 123456789" for i in range(60)))
    text = screen(gate, about, 80, 24)
    assert "rulerule" in text
    assert "… and 47 more" in text


def test_a_key_cannot_command_the_terminal() -> None:
    clock = HandClock()
    rules = parse_rules(["api = 1/h"])
    gate = NamedLimits(rules, clock)
    for _ in range(9):
        gate.check("api", "\x1b[2J\x07\u202eevil\n[red]", 1)
    about = About(URL, gate.rules, compiled=False)
    text = screen(gate, about, 120, 40)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert r"\x1b[2J\x07\u202eevil\n[red]" in text
    assert safe("水門 ok") == "水門 ok"
    gate.check("api", "水" * 200, 1)
    gate.check("api", "水" * 200, 1)
    assert "水" in screen(gate, about, 80, 24)


def test_a_quiet_sentence_does_not_quieten_what_stands_beside_it() -> None:
    gate, about = busy("api = 10/s", "login = 1/h")
    lines = frame(gate.snapshot(), about, gate.keys(), "", (100, 30))
    (beside,) = (line for line in lines if "is spent." in line.plain)
    place = beside.plain.index("bob")
    assert not beside.get_style_at_offset(Console(), place).dim
    assert beside.get_style_at_offset(Console(), beside.plain.index("spent")).dim


def test_insecure_and_our_own_faults_are_not_overlooked() -> None:
    gate, about = busy()
    gate.counts.faults, gate.counts.bad_requests = 2, 3
    text = screen(gate, about._replace(insecure=True), 100, 30)
    assert "anyone may ask" in text
    assert "our own faults 2" in text
    assert "bad requests 3" in text


def test_plain_lines_are_ascii_and_say_the_same() -> None:
    gate, _ = busy()
    text = line(gate.snapshot(), keys=4)
    assert text.isascii()
    assert "30/s" in text
    assert f"admitted {gate.snapshot().admitted}" in text
    assert "decision p99 <1 us" in text
    assert "bad requests" not in text
    gate.counts.faults = 1
    assert "FAULTS 1" in line(gate.snapshot(), keys=4)
    lines = summary(gate)
    assert lines.isascii()
    assert "api" in lines
    assert "pages" not in lines
    settings = Settings("127.0.0.1", 7000, parse_rules(DEMO_RULES), insecure=True)
    assert "anyone" in opening(URL, settings)


def test_it_draws_on_terminals_that_can_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    try:
        with open(os.dup(theirs), "w", encoding="utf-8") as terminal:
            monkeypatch.setenv("TERM", "xterm")
            assert can_show(terminal)
            monkeypatch.setenv("TERM", "dumb")
            assert not can_show(terminal)
        with open(os.dup(theirs), "w", encoding="ascii") as terminal:
            monkeypatch.setenv("TERM", "xterm")
            assert not can_show(terminal)
    finally:
        os.close(ours)
        os.close(theirs)
    assert not can_show(io.StringIO())


def test_where_the_services_are_stands_below_and_takes_no_more_than_its_lines() -> None:
    gate, about = busy()
    services = ("open http://127.0.0.1:7050 in a browser", "images does not run: \x1b[2J")
    lines = frame(gate.snapshot(), about, gate.keys(), "", (80, 24), services)
    assert len(lines) <= 24
    assert services[0] in lines[-2].plain
    assert "\x1b" not in lines[-1].plain
    assert lines[-1].plain.strip().startswith("images does not run")
