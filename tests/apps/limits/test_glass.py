from __future__ import annotations

import json
import shlex
from argparse import ArgumentParser
from pathlib import Path

import pytest

from sluicegate import BadValue, Unavailable
from sluicegate.apps.limits import glass

BREAK = ("break", "--for", "15m", "--by", "ann", "--why", "the rule is wrong")


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A source that needs no flag."""
    url = f"file:{tmp_path}/glass.json"
    monkeypatch.setenv(glass.STORE_VARIABLE, url)
    return url


def run(*flags: str) -> int:
    parser = ArgumentParser(prog="sluicegate limits glass", allow_abbrev=False)
    glass.add_arguments(parser)
    return glass.run(parser.parse_args(flags))


def output_of(capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    assert run(*flags) == 0
    return capsys.readouterr().out


def test_what_is_broken_is_listed_mended_and_audited(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert output_of(capsys, "list") == "nothing is open\n"
    assert output_of(capsys, "audit") == "nothing has been opened\n"
    output = output_of(capsys, *BREAK, "--rule", "login", "--key", "tenant:42")
    opening_id = output.split()[2]
    about = f"{opening_id} stops rule 'login' for key 'tenant:42' until "
    assert output.startswith(f"glass broken: {about}")
    assert f"sluicegate limits glass mend {opening_id} --by WHO\n" in output
    listed = output_of(capsys, "list")
    assert listed.startswith(about)
    assert ", by ann: the rule is wrong; 1" in listed
    assert listed.endswith(" left\n")
    assert output_of(capsys, "mend", opening_id, "--by", "bob", "--why", "it is right again") == (
        f"mended: {opening_id}, which stopped rule 'login' for key 'tenant:42'\n"
    )
    assert output_of(capsys, "list") == "nothing is open\n"
    broken, mended = output_of(capsys, "audit").splitlines()
    assert f"{opening_id}  broken  rule 'login' for key 'tenant:42', until " in broken
    assert broken.endswith(", by ann: the rule is wrong")
    assert mended.endswith(
        f"{opening_id}  mended  rule 'login' for key 'tenant:42', by bob: it is right again"
    )


def test_programs_get_json(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    json_flag = ("--format", "json")
    opened = json.loads(output_of(capsys, *BREAK, "--all", *json_flag))["opened"]
    assert (opened["rule"], opened["key"], opened["by"]) == ("*", "*", "ann")
    assert opened["until_us"] - opened["opened_at_us"] == 15 * 60 * 1_000_000
    listed = json.loads(output_of(capsys, "list", *json_flag))
    assert (listed["open"], listed["damage"]) == ([opened], "")
    assert opened["opened_at_us"] <= listed["now_us"] < opened["until_us"]
    assert json.loads(output_of(capsys, "mend", "--all", "--by", "bob", *json_flag)) == {
        "mended": [opened]
    }
    audit = json.loads(output_of(capsys, "audit", *json_flag))["audit"]
    assert [(row["what"], row["by"], row["opening"]) for row in audit] == [
        ("break", "ann", opened),
        ("mend", "bob", opened),
    ]
    assert json.loads(output_of(capsys, "audit", "--last", "1", *json_flag))["audit"] == audit[1:]


@pytest.mark.parametrize(
    ("flags", "remedy"),
    [
        (BREAK, "say --all"),
        ((*BREAK, "--all", "--rule", "login"), "leave one or the other out"),
        ((*BREAK, "--all", "--key", "ann"), "leave one or the other out"),
        ((*BREAK, "--rule", "*"), "leave the flag out"),
        ((*BREAK, "--key", ""), "leave the flag out"),
        ((*BREAK[:2], "25h", *BREAK[3:], "--all"), "from 1s to 24h"),
        ((*BREAK[:2], "0.5s", *BREAK[3:], "--all"), "from 1s to 24h"),
        ((*BREAK[:2], "15", *BREAK[3:], "--all"), "as 90s, 15m or 2h"),
        ((*BREAK[:4], " ", *BREAK[5:], "--all"), "printable"),
        (("mend", "--by", "ann"), "give one id, or --all"),
        (("mend", "a1", "--all", "--by", "ann"), "give one id, or --all"),
        (("mend", "a1", "--by", "ann"), "no opening has this id"),
        (("audit", "--last", "0"), "from 1 to"),
        (("list", "--store", "memory:"), "which processes can share"),
    ],
)
def test_what_is_asked_wrongly_is_told_with_its_remedy_and_opens_nothing(
    url: str, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], remedy: str
) -> None:
    with pytest.raises(BadValue, match=remedy.replace("*", r"\*")):
        run(*flags)
    assert output_of(capsys, "list") == "nothing is open\n"


def test_who_and_why_and_how_long_cannot_be_left_out(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for flag in ("--for", "--by", "--why"):
        at = BREAK.index(flag)
        with pytest.raises(SystemExit):
            run(*BREAK[:at], *BREAK[at + 2 :], "--all")
        assert flag in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run("mend", "--all")
    with pytest.raises(SystemExit):
        run()


def test_without_a_store_the_flag_and_the_variable_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(glass.STORE_VARIABLE, raising=False)
    with pytest.raises(BadValue, match=r"--store.*SLUICEGATE_STORE_URL"):
        run("list")


def test_the_flag_wins_over_the_variable(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = f"file:{tmp_path}/other.json"
    output_of(capsys, *BREAK, "--all", "--store", other)
    assert output_of(capsys, "list") == "nothing is open\n"
    assert "every rule for every key" in output_of(capsys, "list", "--store", other)


def test_a_store_that_is_not_there_is_told(url: str) -> None:
    with pytest.raises(Unavailable):
        run("list", "--store", "redis://127.0.0.1:1")


def test_what_cannot_be_understood_is_told_with_its_way_out(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "glass.json").write_text("*")
    assert run("list") == 1
    assert "glass mend --all" in capsys.readouterr().out
    assert output_of(capsys, "mend", "--all", "--by", "ann") == "nothing was open\n"
    assert output_of(capsys, "list") == "nothing is open\n"
    assert output_of(capsys, "audit").endswith("mended  what could not be understood, by ann\n")


def test_a_line_of_the_audit_that_cannot_be_read_is_shown_harmless(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "glass.json.audit").write_bytes(b"\x1b[2J\n")
    output = output_of(capsys, "audit")
    assert "cannot be read" in output
    assert "\x1b" not in output


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1s", 1), ("90s", 90), ("15m", 900), ("15 min".replace(" ", ""), 900), ("1.5h", 5_400),
     (" 24H ", 86_400)],
)  # fmt: skip
def test_a_span_is_read_as_people_write_it(text: str, seconds: float) -> None:
    assert glass.span_s(text) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (900, "15 min 0 s"), (7_260, "2 h 1 min")],
)
def test_what_is_left_is_told_in_two_parts(seconds: float, text: str) -> None:
    assert glass.span_text(seconds) == text


def test_the_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    for flags in (["--help"], ["break", "--help"]):
        with pytest.raises(SystemExit) as ended:
            run(*flags)
        assert ended.value.code == 0
        assert (
            "sluicegate limits glass break --store redis://cache:6379 --rule login"
            in capsys.readouterr().out
        )


def test_every_example_works_as_it_is_written_but_for_the_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(glass.STORE_VARIABLE, raising=False)
    store = f"file:{tmp_path}/glass.json"
    joined = glass.EXAMPLES.replace("\\\n", " ").splitlines()
    examples = [shlex.split(line)[3:] for line in joined if line.startswith("  sluicegate limits")]
    assert {words[0] for words in examples} == {"break", "list", "mend", "audit"}
    opened = ""
    for words in examples:
        shown = [store if word.startswith("redis://") else word for word in words]
        told = output_of(capsys, *[opened if word == "3f9a01bc" else word for word in shown])
        if words[0] == "break":
            opened = told.split()[2]
            assert f"sluicegate limits glass mend {opened} --store {store} --by WHO\n" in told


def test_rate_for_one_key_is_listed_and_audited(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("break", "--key", "tenant:7", "--rate", "1000/minute", "--for", "30d")
    output = output_of(capsys, *words, "--by", "ann", "--why", "a launch")
    about = "holds key 'tenant:7' to '1000/minute' under every rule until "
    assert about in output
    assert about in output_of(capsys, "list")
    assert "'1000/minute'" in output_of(capsys, "audit")
    with pytest.raises(BadValue, match="name one"):
        run("break", "--all", "--rate", "1/s", "--for", "1h", "--by", "ann", "--why", "x")
    with pytest.raises(BadValue, match="366d"):
        run(*words[:-1], "400d", "--by", "ann", "--why", "x")
