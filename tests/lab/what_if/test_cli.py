"""The verb: where its rulebooks and its traffic come from, what it prints, what it refuses."""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser, Namespace
from pathlib import Path

import pytest

from sluicegate.contracts.checks import CheckRequest
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.lab import command
from sluicegate.lab.what_if import command as what_if
from sluicegate.lab.what_if.sources import read_books, read_traffic
from tests.shadow.capture.world import written

BEGAN_US = 1_700_000_000_000_000
RULES = """
version: 1
callers: {names: {gateway: CRITICAL}}
rules:
  - {rule_id: logs, resource_path: /logs, per: resource, limit: 10, window_seconds: 1,
     algorithm: fixed_window}
"""
STEADY = ("--workers", "1", "--cost", "10000", "--service", "constant")


def lab(*words: str) -> int:
    parser = ArgumentParser(allow_abbrev=False)
    command.add_arguments(parser)
    return command.run(parser.parse_args(("what-if", *words)))


def requests(count: int = 1_000) -> list[tuple[int, int, CheckRequest]]:
    """200 a second, the one half of the gateway and CRITICAL, the other BULK."""
    gateway = CheckRequest("gateway", "/play", priority=Criticality.CRITICAL)
    logs = CheckRequest("logger", "/logs", priority=Criticality.BULK)
    return [(BEGAN_US + 6_000 * at, 0, logs if at % 2 else gateway) for at in range(count)]


@pytest.fixture
def rules(tmp_path: Path) -> str:
    folder = tmp_path / "new"
    folder.mkdir()
    (folder / "rules.yaml").write_text(RULES)
    return str(folder)


@pytest.fixture
def csv(tmp_path: Path) -> str:
    path = tmp_path / "requests.csv"
    rows = [
        f"{at_us / 1e6:.6f},{ask.user_id},{ask.resource_path},{ask.priority.name}\n"
        for at_us, _, ask in requests()
        if ask.priority is not None
    ]
    path.write_text("time,user,path,priority\n" + "".join(rows))
    return str(path)


@pytest.fixture
def capture(tmp_path: Path) -> str:
    folder = tmp_path / "capture"
    written(folder, requests())
    key = tmp_path / "capture.key"
    key.write_text(f"sluicegate-capture-key-1 {(b'k' * 32).hex()}\n")
    key.chmod(0o600)
    return str(folder)


def run_json(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    assert lab(*words, "--json") == 0
    answer: dict[str, object] = json.loads(capsys.readouterr().out)
    return answer


def test_the_table_sets_rulebooks_side_by_side_under_one_sentence(
    capsys: pytest.CaptureFixture[str], csv: str, rules: str
) -> None:
    assert lab("--csv", csv, "--rules", "none", "--rules", rules, *STEADY) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert lines[0].startswith("new serves CRITICAL best: 100.00% in time")
    assert "against 12.40% with none; the price: BULK 12.00% in time" in lines[0]
    assert (
        lines[2] == "1,000 requests of 2 entities in 5.99 s: 166.8 units a second, a load of 1.668"
    )
    assert lines[3] == (
        "1 worker for 100 units a second, constant service times; fifo before them; "
        "callers wait 500 ms; seed 0"
    )
    table = {line.split("  ")[0]: line.split()[-2:] for line in lines[5:] if "  " in line}
    assert table["offered"] == ["1,000", "1,000"]
    assert table["refused by rules"] == ["0", "440"]
    assert table["answered in time"] == ["123", "560"]
    assert lines.index("CRITICAL") < lines.index("BULK")
    assert "new refused by: logs 440" in lines
    assert printed.err == ""


def test_a_redacted_capture_tells_what_the_log_told(
    capsys: pytest.CaptureFixture[str], csv: str, capture: str, rules: str, tmp_path: Path
) -> None:
    words = ("--rules", "none", "--rules", rules, *STEADY)
    plain = run_json(capsys, "--csv", csv, *words)
    for where in (
        ("--capture", capture),
        ("--capture", capture, "--key", f"{capture}.key"),
        ("--capture", str(next(Path(capture).iterdir()))),
    ):
        answer = run_json(capsys, *where, *words)
        assert answer["sentence"] == plain["sentence"]
        assert answer["rulebooks"] == plain["rulebooks"]
    os.rename(f"{capture}.key", tmp_path / "elsewhere")
    with pytest.raises(BadValue, match="redacted"):
        lab("--capture", capture, *words)
    with pytest.raises(BadValue, match="--key"):
        lab("--capture", capture, "--key", str(tmp_path / "nowhere"), *words)


def test_lines_of_json_and_logs_of_envoy_are_traffic_too(
    capsys: pytest.CaptureFixture[str], csv: str, rules: str, tmp_path: Path
) -> None:
    words = ("--rules", rules, *STEADY)
    plain = run_json(capsys, "--csv", csv, *words)
    jsonl, envoy = tmp_path / "r.jsonl", tmp_path / "envoy.log"
    rows = [
        {
            "time": at_us / 1e6,
            "user": ask.user_id,
            "path": ask.resource_path,
            "priority": str(ask.priority.name if ask.priority is not None else ""),
        }
        for at_us, _, ask in requests()
    ]
    jsonl.write_text("".join(json.dumps(row) + "\n" for row in rows))
    envoy.write_text(
        "".join(
            json.dumps({"start_time": row["time"], "who": row["user"], "path": row["path"],
                        "class": row["priority"]}) + "\n"
            for row in rows
        )
    )  # fmt: skip
    for where in (
        ("--jsonl", str(jsonl)),
        ("--envoy-log", str(envoy), "--map", "user=who", "--map", "priority=class"),
    ):
        answer = run_json(capsys, *where, *words)
        assert answer["rulebooks"] == plain["rulebooks"]


def test_same_words_print_same_bytes(
    capsys: pytest.CaptureFixture[str], csv: str, rules: str
) -> None:
    texts = []
    for _ in range(2):
        words = ("--rules", rules, "--retries", "smart", "--with", "queue", "--seed", "9")
        assert lab("--csv", csv, *words, "--json") == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    report = json.loads(texts[0])
    assert (report["format"], report["version"]) == ("sluicegate what-if", 1)
    assert (report["settings"]["seed"], report["settings"]["with"]) == (9, "queue")
    assert report["settings"]["capacity_chosen"]
    assert report["capture"]["load"] == pytest.approx(0.8, rel=1e-3)
    assert any("Say --capacity" in note for note in report["notes"])


@pytest.mark.parametrize("source", ["--csv", "--capture"])
def test_no_more_than_so_many_requests_are_played_and_the_rest_is_told(
    capsys: pytest.CaptureFixture[str], csv: str, capture: str, rules: str, source: str
) -> None:
    where = (source, csv if source == "--csv" else capture)
    answer = run_json(capsys, *where, "--rules", rules, "--requests", "100", "--capacity", "1000")
    assert answer["capture"]["requests"] == 100  # type: ignore[index]
    assert any("900 requests were lost, or beyond a bound" in note for note in answer["notes"])  # type: ignore[attr-defined]


def test_rulebooks_are_called_by_the_ends_of_their_paths_where_these_differ(
    tmp_path: Path,
) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "rules").mkdir(parents=True)
        (tmp_path / name / "rules" / "r.yaml").write_text(RULES)
    (tmp_path / "empty").mkdir()
    one, other = (str(tmp_path / name / "rules") for name in ("a", "b"))

    def names(*paths: str) -> list[str]:
        return [
            book.name for book in read_books(paths, semantics="sluicegate", merge_domains=False)
        ]

    assert names("none", f"{one}/", f"{one}/r.yaml") == ["none", "rules", "r.yaml"]
    assert names(one, other) == [one, other]
    assert names(one, one, one) == [one, f"{one} (2)", f"{one} (3)"]
    empty, _ = read_books(
        [str(tmp_path / "empty"), one], semantics="sluicegate", merge_domains=False
    )
    assert empty.rules.empty


@pytest.mark.parametrize(
    ("words", "field", "remedy"),
    [
        (("--rules", "nowhere"), "--rules", "folder or a file that is there, or none"),
        ((), "--rules", "1 to 8 times"),
        (("--rules", "none") * 9, "--rules", "1 to 8 times"),
        (("--rules", "none", "--speed", "0"), "--speed", "above 0"),
        (("--rules", "none", "--speed", "nan"), "--speed", "above 0"),
        (("--rules", "none", "--capacity", "-1"), "--capacity", "above 0"),
        (("--rules", "none", "--workers", "0"), "--workers", "whole number"),
        (("--rules", "none", "--workers", "x"), "--workers", "whole number"),
        (("--rules", "none", "--cost", "BULK=3"), "--cost", "other classes"),
        (
            ("--rules", "none", "--cost", "9", "--workers", "3", "--capacity", "5"),
            "--workers",
            "leave out one",
        ),
        (("--rules", "none", "--service", "uniform"), "--service", "lognormal"),
        (("--rules", "none", "--timeout", "0"), "--timeout", "above 0"),
        (("--rules", "none", "--retries", "many"), "--retries", "none, naive, smart"),
        (("--rules", "none", "--with", "nobody"), "--with", "fifo, chain, queue"),
        (("--rules", "none", "--queue", "0"), "--queue", "whole number"),
        (("--rules", "none", "--requests", "0"), "--requests", "whole number"),
        (("--rules", "none", "--seed", "-1"), "--seed", "whole number"),
        (("--rules", "none", "--jsonl", "other"), "--capture", "once"),
        (("--rules", "none", "--map", "user=x"), "--map", "--envoy-log"),
        (("--rules", "none", "--key", "x"), "--key", "--capture"),
    ],
)
def test_what_cannot_be_used_is_named_with_what_can(
    csv: str, words: tuple[str, ...], field: str, remedy: str
) -> None:
    with pytest.raises(BadValue) as caught:
        lab("--csv", csv, *words)
    assert caught.value.field == field
    assert remedy in caught.value.remedy


def test_flags_that_do_not_fit_together_are_told_before_anything_is_read(rules: str) -> None:
    with pytest.raises(BadValue, match="leave out one"):
        lab("--csv", "nowhere", "--rules", rules, *STEADY, "--capacity", "700")


def test_traffic_is_wanted_from_one_place_that_is_there(rules: str, tmp_path: Path) -> None:
    for words in ((), ("--capture", str(tmp_path / "nowhere"))):
        with pytest.raises(BadValue, match="--capture"):
            lab("--rules", rules, *words)
    with pytest.raises(BadValue, match="import"):
        lab("--rules", rules, "--csv", str(tmp_path / "nowhere"))
    with pytest.raises(BadValue, match="--map"):
        lab("--rules", rules, "--envoy-log", str(tmp_path / "x"), "--map", "nobody=x")


def test_traffic_in_which_nothing_is_says_why(rules: str, tmp_path: Path) -> None:
    path = tmp_path / "of-another-kind"
    path.write_text("time,user,path\n")
    for flag, why in (("--capture", "there is no request in it: Damaged"), ("--csv", "no request")):
        with pytest.raises(BadValue, match=why) as caught:
            lab(flag, str(path), "--rules", rules)
        assert (caught.value.field, caught.value.value) == (flag, str(path))


def test_a_rules_file_of_another_name_is_not_taken_for_no_rules(tmp_path: Path) -> None:
    path = tmp_path / "rules.txt"
    path.write_text(RULES)
    with pytest.raises(BadValue, match=r"\.yaml"):
        read_books([str(path)], semantics="sluicegate", merge_domains=False)


def test_interrupt_clears_the_bar(monkeypatch: pytest.MonkeyPatch, csv: str, rules: str) -> None:
    writes: list[str] = []

    class Bar:
        def __init__(self, write: object, *, live: bool) -> None: ...

        def show(self, done: int, total: int, text: str) -> None:
            writes.append(text)
            if text == "new":
                raise KeyboardInterrupt

        def clear(self) -> None:
            writes.append("cleared")

    monkeypatch.setattr(what_if, "ProgressBar", Bar)
    with pytest.raises(KeyboardInterrupt):
        lab("--csv", csv, "--rules", rules)
    assert writes[0] == "reading"
    assert writes[-2:] == ["new", "cleared"]


def test_a_tenth_of_all_entities_meets_a_tenth_of_the_capacity(tmp_path: Path, rules: str) -> None:
    folder = tmp_path / "tenth"
    written(folder, requests(), share=1_000)
    arguments = Namespace(
        capture=str(folder), key="", envoy_log=None, csv=None, jsonl=None, map=[],
        capacity="1000", workers="40", cost=None, service="constant", timeout="500",
        retries="none", queue="10", seed="0",
    )  # fmt: skip
    (tmp_path / "tenth.key").write_text(f"sluicegate-capture-key-1 {(b'k' * 32).hex()}\n")
    (tmp_path / "tenth.key").chmod(0o600)
    books = read_books([rules], semantics="sluicegate", merge_domains=False)
    traced = read_traffic(arguments, books, requests_max=10_000, progress=lambda done, total: None)
    from sluicegate.lab.what_if.traffic import Traffic

    traffic = Traffic(traced.captured, [0] * len(traced.captured.queries), speed=1.0)
    served = what_if.planner(arguments, 1.0)(traffic).backend
    assert (served.capacity, served.workers) == (100.0, 4)
    assert served.unit_us[0] == 40_000
    arguments.capacity = None
    served = what_if.planner(arguments, 1.0)(traffic).backend
    assert traffic.load(served) == pytest.approx(0.8, rel=1e-6)


def test_help_shows_flags_and_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        lab("--help")
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    for word in ("examples:", "--capture DIR|FILE", "--capacity", "--with chain", "none"):
        assert word in printed
