"""A station of one's own, as somebody with their own numbers would try it."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.lab import command
from sluicegate.lab.arrivals import Diurnal, OnOff, ParetoOnOff, Poisson, Replay
from sluicegate.lab.durations import Constant, Pareto
from sluicegate.lab.own_numbers.numbers import WARM_US, OwnNumbers, parse_arrivals, read_numbers
from sluicegate.lab.own_numbers.play import CANDIDATES, play_once, rig_of
from sluicegate.lab.random_source import RandomSource

SMALL = ("--workers", "4", "--work", "20ms", "--seconds", "2", "--runs", "1")


def lab(*words: str) -> int:
    parser = ArgumentParser(allow_abbrev=False)
    command.add_arguments(parser)
    return command.run(parser.parse_args(("run", *words)))


def report(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    lab(*words, "--json")
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_answer_comes_first_in_one_sentence_and_then_what_was_played(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bursts = ("--arrivals", "on-off:50ms/50ms", "--mix", "critical=20%,bulk=80%")
    assert lab("overload", *SMALL, *bursts) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("dispatcher serves CRITICAL best: ")
    assert "in time (p99 " in lines[0]
    assert lines[1] == ""
    assert lines[2].startswith("4 workers of 20 ms (exponential) can do 200/s; arrivals on-off")
    assert "20% CRITICAL and 80% BULK; callers wait: CRITICAL 500 ms and BULK 500 ms" in lines[2]
    assert "dispatcher is the chain of sluicegate kv with its default settings" in lines
    assert any(line.startswith("goodput, of what can be done") for line in lines)


def test_what_ships_saves_what_matters_and_a_plain_queue_saves_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("--arrivals", "3x", "--mix", "critical=20%,bulk=80%", "--with", "protect,fifo")
    found = report(capsys, "overload", *SMALL, *words)
    rows = {book["name"]: book for book in found["candidates"]}
    assert list(rows) == ["dispatcher", "protect", "fifo"]
    for name in ("dispatcher", "protect"):
        critical, bulk = rows[name]["classes"]
        assert critical["in_time_share"] > 0.99
        assert 0.05 < bulk["in_time_share"] < 0.3
        assert 0.85 < rows[name]["goodput"] <= 1.05
    assert rows["fifo"]["goodput"] < 0.2
    assert len({book["offered"] for book in rows.values()}) == 1, "all meet the same requests"


def test_within_its_capacity_nobody_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--arrivals", "0.5x", "--with", "protect", "--service", "constant")
    found = report(capsys, "overload", *SMALL, *words)
    for book in found["candidates"]:
        assert book["in_time_share"] == 1.0
        assert book["refused"] == 0


def test_whoever_is_never_answered_counts(capsys: pytest.CaptureFixture[str]) -> None:
    """A stack answers the newest and lets the others lie: their callers have got nothing."""
    words = ("--arrivals", "2x", "--as", "lifo", "--with", "none", "--service", "constant")
    found = report(capsys, "overload", *SMALL, *words)
    [book] = found["candidates"]
    assert book["late"] + book["refused"] < 0.1 * book["offered"]
    assert book["in_time_share"] < 0.6


FILE = """
workers = 4
work = "20ms"
arrivals = "2x"
mix = "critical=20%,bulk=80%"
deadline = "500ms,bulk=1s"
seconds = 2
with = ["fifo"]

[goals]
critical = 0.99
p99 = "2s"
"""


def test_a_file_says_the_same_as_flags_and_its_goals_are_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(FILE)
    assert lab(str(path), "--runs", "1") == 0
    output = capsys.readouterr().out
    assert "met     CRITICAL >= 0.99  " in output
    assert "met     p99_ms <= 2000  " in output
    assert "callers wait: CRITICAL 500 ms and BULK 1000 ms" in output
    assert lab(str(path), "--runs", "1", "--as", "fifo", "--with", "none") == 1
    output = capsys.readouterr().out
    assert "MISSED  CRITICAL >= 0.99  " in output
    assert "0 of 1" in output


def test_a_flag_counts_more_than_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(FILE)
    numbers = read_numbers({"workers": "9", "service": "pareto:2"}, str(path))
    assert numbers.workers == 9
    assert numbers.service == Pareto(20_000.0, 2.0)
    assert numbers.arrivals == Poisson(900.0), "twice what nine can do"
    assert numbers.patience_us(Criticality.BULK) == 1_000_000
    assert numbers.patience_us(Criticality.CRITICAL) == 500_000


@pytest.mark.parametrize(
    ("text", "arrivals"),
    [
        ("2x", Poisson(2_000.0)),
        ("0.8x", Poisson(800.0)),
        ("400", Poisson(400.0)),
        ("poisson:400", Poisson(400.0)),
        ("poisson:400/s", Poisson(400.0)),
        ("poisson:1.5x", Poisson(1_500.0)),
        ("poisson@1.5x", Poisson(1_500.0)),
        ("poisson", Poisson(2_000.0)),
        ("on-off:50ms/50ms", OnOff(on_per_s=4_000.0, on_us=50_000, off_us=50_000)),
        ("on-off:20ms/60ms@1x", OnOff(on_per_s=4_000.0, on_us=20_000, off_us=60_000)),
        ("pareto:1s/3s@300", ParetoOnOff(on_per_s=1_200.0, on_us=1_000_000, off_us=3_000_000)),
        ("diurnal:5s@0.9x", Diurnal(mean_per_s=900.0, day_us=5_000_000)),
        ("diurnal@0.9x", Diurnal(mean_per_s=900.0, day_us=20_000_000)),
    ],
)
def test_arrivals_are_a_shape_and_how_much_of_it(text: str, arrivals: object) -> None:
    assert parse_arrivals("--arrivals", text, 1_000.0) == arrivals


def test_a_trace_gives_its_instants_and_may_be_made_denser(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("time,key\n" + "".join(f"{at / 10},a\n" for at in range(1, 12)))
    assert parse_arrivals("--arrivals", f"trace:{path}", 100.0) == Replay(
        tuple(range(0, 1_100_000, 100_000))
    )
    denser = parse_arrivals("--arrivals", f"trace:{path}@2x", 100.0)
    assert isinstance(denser, Replay)
    assert denser.speed == pytest.approx(200 / 11)
    keys = tmp_path / "keys.txt"
    keys.write_text("a\nb\n")
    with pytest.raises(BadValue, match="give a trace whose format and columns show"):
        parse_arrivals("--arrivals", f"trace:{keys}", 100.0)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--workers", "0"), "--workers: '0' cannot be used; give a whole number from 1"),
        (("--workers", "many"), "--workers: 'many'"),
        (("--work", "30"), "--work: '30' cannot be used; give a time above 0 with its unit"),
        (("--service", "uniform"), "--service: 'uniform' cannot be used; give one of exponential"),
        (("--arrivals", "weekly"), "--arrivals: 'weekly' cannot be used; give one of 2x, poisson"),
        (("--arrivals", "on-off:50ms"), "--arrivals: '50ms' cannot be used; give how long it is"),
        (("--arrivals", "on-off:50/50"), "--arrivals: '50' cannot be used; give a time"),
        (("--arrivals", "on-off:50ms/50ms@lots"), "--arrivals: .* say how much: 400 a second"),
        (("--arrivals", "0x"), "--arrivals: '0x' cannot be used; say how much"),
        (("--arrivals", "2x@3x"), "--arrivals: '2x@3x' cannot be used; say once how much"),
        (("--arrivals", "trace:no.csv"), "no.csv"),
        (("--mix", "critical=20%,bulk=70%"), "--mix: .* make the shares 100% together"),
        (("--mix", "gold=100%"), "--mix: 'gold' cannot be used; give one of CRITICAL"),
        (("--mix", "bulk=50%,bulk=50%"), "--mix: .* name BULK once"),
        (("--mix", "bulk"), "--mix: 'bulk' cannot be used; give a share to each class"),
        (("--deadline", "soon"), "--deadline: 'soon' cannot be used; give a time"),
        (("--deadline", "1s,gold=2s"), "--deadline: 'gold'"),
        (("--seconds", "0"), "--seconds: '0' cannot be used; give a whole number from 1"),
        (("--with", "best"), "--with: 'best' cannot be used; give one of dispatcher, protect"),
        (("--as", "best", "--workers", "2"), "--as: 'best' cannot be used; give one of"),
        (("--workers", "9", "--case", "2x"), "--case: '2x' cannot be used; leave it out"),
        (("--workers", "90000", "--work", "1ms"), "that is 180,000,000 a second, and at most"),
        (("--arrivals", "poisson:"), "'poisson:' cannot be used; say what comes behind its last"),
        (("--arrivals", "2x@"), "'2x@' cannot be used; say what comes behind its last mark"),
        (("--arrivals", "on-off:/50ms"), "--arrivals: '' cannot be used; give a time"),
        (("--arrivals", "1_0x"), "--arrivals: '1_0x' cannot be used; say how much"),
        (("--arrivals", "trace:no.csv"), "--arrivals: 'trace:no.csv' .* path of a file that is"),
        (("--deadline", "1s,2s"), "--deadline: '1s,2s' cannot be used; say once how long callers"),
        (("--deadline", "1s,bulk=2s,bulk=3s"), "--deadline: .* say once how long BULK wait"),
        (("--with", "fifo,none"), "--with: 'none' cannot be used; .*token-bucket, or none alone"),
        (("--workers", "2", "--seeds", "0"), r"--seeds \(or --runs\): '0'"),
    ],
)
def test_what_cannot_be_is_refused_by_its_field_its_value_and_a_remedy(
    words: tuple[str, ...], error: str
) -> None:
    with pytest.raises(BadValue, match=error):
        lab("overload", *words)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("workerz = 4", r"mine\.toml: workerz.*give one of workers, work"),
        ("workers = 0", r"mine\.toml: workers: '0'"),
        ("workers = true", r"mine\.toml: workers: True .*give a text or a whole number"),
        ("work = 30", r"mine\.toml: work: '30' .*30ms"),
        ("work = ", "NAME: .*it is not TOML"),
        ("[goals]\nspeed = 1", r"mine\.toml: goals\.speed.*give one of goodput, p50"),
        ("[goals]\ncritical = 1", r"goals\.critical.*degraded"),
        ("[goals]\np99 = 60", r"goals\.p99: '60' .*30ms"),
        ("goals = 3", r"mine\.toml: goals: 3 .*make it a table"),
        ("mix = {bulk = 1}", r"mine\.toml: mix: {'bulk': 1} .*, as the flag --mix takes it"),
        ("with = ['best']", r"mine\.toml: with: 'best' cannot be used; give one of dispatcher"),
        ("as = 'best'", r"mine\.toml: as: 'best' cannot be used; give one of dispatcher"),
        ("workers = 90000\nwork = '1ms'", r"mine\.toml: arrivals: '2x' cannot be used; that is"),
        ("arrivals = 'trace:no.csv'", r"mine\.toml: arrivals: 'trace:no\.csv' cannot be used"),
        ("arrivals = 'trace:mine.toml'", r"arrivals: .*give a trace whose format and columns show"),
    ],
)
def test_a_mistake_in_a_file_names_the_file_and_its_field(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, error: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(text)
    with pytest.raises(BadValue, match=error):
        lab("mine.toml")


def test_a_flag_beside_a_file_is_named_as_a_flag(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(FILE)
    with pytest.raises(BadValue, match=r"^--with: 'best'"):
        lab(str(path), "--with", "best")


def test_a_trace_that_ends_within_the_warm_up_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "short.csv"
    path.write_text("time,key\n0.1,a\n1.9,a\n")
    with pytest.raises(BadValue, match=r"--arrivals: 'trace:.* it ends within the warm-up"):
        lab("overload", "--arrivals", f"trace:{path}", "--with", "none", "--runs", "1")


def test_a_figure_of_nothing_meets_no_goal_and_is_null_in_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        "workers = 2\nseconds = 1\narrivals = '0.0001x'\n[goals]\ndegraded = 0.9\np99 = '1s'\n"
    )
    assert lab(str(path), "--runs", "1", "--json") == 1
    output = capsys.readouterr().out
    assert "Infinity" not in output
    share, p99 = json.loads(output)["goals"]
    assert (share["worst"], share["met"]) == (0.0, False)
    assert (p99["worst"], p99["used"], p99["met"]) == (None, None, False)
    assert lab(str(path), "--runs", "1") == 1
    assert "MISSED  p99_ms <= 1000  never (seed 0)" in capsys.readouterr().out


def test_other_scenarios_take_no_numbers() -> None:
    with pytest.raises(BadValue, match=r"NAME: 'queues' .*leave out --workers, or name overload"):
        lab("queues", "--workers", "4")
    with pytest.raises(BadValue, match="it cannot be read"):
        lab("missing.toml")


def test_a_run_of_too_many_requests_says_what_to_give_less_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sluicegate.lab.own_numbers.numbers.ARRIVALS_MAX", 1_000)
    with pytest.raises(BadValue, match=r"--seconds: 8 .* one run may have 1,000 requests"):
        lab("overload", "--workers", "4", "--with", "none")


def test_help_names_the_flags_and_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        lab("--help")
    output = capsys.readouterr().out
    assert "--mix SHARES" in output
    assert "on-off:ON/OFF" in output
    assert "lab run overload --workers 16 --work 30ms --arrivals on-off:50ms/50ms" in output


def test_classes_share_one_stream_so_that_bursts_are_everybodys() -> None:
    numbers = OwnNumbers(
        workers=4,
        service=Constant(1_000),
        arrivals=OnOff(on_per_s=8_000, on_us=50_000, off_us=50_000),
        mix={Criticality.CRITICAL: 0.25, Criticality.BULK: 0.75},
        seconds=2,
    )
    rig = rig_of(numbers, 3)
    counts = []
    for kind in rig.kinds[:2]:
        assert isinstance(kind.arrivals, Replay)
        row = [0] * 200
        for at_us in kind.arrivals.us:
            row[(at_us - WARM_US) // 10_000] += 1
        counts.append(row)
    critical, bulk = counts
    assert sum(critical) == pytest.approx(sum(bulk) / 3, rel=0.1)
    quiet = [at for at in range(200) if bulk[at] == 0]
    assert len(quiet) > 30, "half of the time nobody comes"
    assert sum(critical[at] for at in quiet) < 0.02 * sum(critical)
    assert len(numbers.instants_us(RandomSource(3).of("arrivals"))) == sum(
        len(kind.arrivals.us) for kind in rig.kinds if isinstance(kind.arrivals, Replay)
    )


def test_the_same_seed_gives_the_same_run_and_another_one_does_not() -> None:
    numbers = OwnNumbers(workers=2, work_us=20_000, arrivals=Poisson(200.0), seconds=1)
    for name in ("dispatcher", "protect"):
        assert play_once(numbers, name, 1) == play_once(numbers, name, 1)
        assert play_once(numbers, name, 1) != play_once(numbers, name, 2)


def test_work_that_its_caller_has_given_up_is_work_for_nothing() -> None:
    """One of four units takes longer than anybody waits: the dispatcher's engine goes on with it,
    and nobody has an answer."""
    numbers = read_numbers(
        {"workers": "4", "work": "100ms", "service": "bimodal:25%/10", "arrivals": "0.5x"}
        | {"deadline": "200ms", "seconds": "4"}
    )
    for name in ("dispatcher", "protect"):
        [row] = play_once(numbers, name, 1).classes.values()
        assert row.late > 0.1 * row.offered, name
        unfinished = row.offered - row.in_time - row.late - row.refused
        assert 0 <= unfinished <= numbers.workers, name


def test_every_candidate_can_be_played() -> None:
    numbers = OwnNumbers(workers=2, work_us=20_000, arrivals=Poisson(150.0), seconds=1)
    for name in CANDIDATES:
        assert 0 <= play_once(numbers, name, 1).goodput <= 1.2, name
