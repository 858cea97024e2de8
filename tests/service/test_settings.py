from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.service.settings import (
    SHARE,
    Effective,
    Setting,
    SettingsBase,
    add_flags,
    fields_of,
    milliseconds,
    one_of,
    read_settings,
    seconds,
    settings_from,
    whole,
)


@dataclass(frozen=True, kw_only=True)
class Shared(SettingsBase):
    """What both have. The rest of this is no title."""

    store: Annotated[str, Setting("where counts are", secret=True)] = "memory:"
    grace_s: Annotated[float, Setting("time to end", seconds(0, 60))] = 10.0


@dataclass(frozen=True, kw_only=True)
class Chosen(Shared):
    """Its own."""

    VARIABLES: ClassVar[str] = "SG_"

    port: Annotated[int, Setting("where to listen", whole(1, 65_535))] = 7070
    rules: Annotated[tuple[str, ...], Setting("files", metavar="PATH")] = ()
    shed: Annotated[bool, Setting("whether to shed")] = True
    share: Annotated[float, Setting("how much", SHARE)] = 0.05
    failure: Annotated[str, Setting("without a store", one_of("open", "closed"))] = "open"

    def check(self) -> None:
        """One pair does not go together."""
        super().check()
        if self.port == 13 and not self.shed:
            raise BadValue("--port", self.port, "give another with --shed off")


def gathered(*words: str, environment: dict[str, str] | None = None) -> Effective[Chosen]:
    parser = ArgumentParser()
    add_flags(parser, Chosen)
    return read_settings(Chosen, parser.parse_args(words), environment or {})


def test_a_default_is_overruled_by_a_file_that_by_a_variable_and_that_by_a_flag(
    tmp_path: Path,
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('port = 1\ngrace_s = 1.5\nshed = false\nrules = ["a", "b"]\n')
    chosen = gathered(
        "--config", str(file), "--port", "3", environment={"SG_PORT": "2", "SG_GRACE_S": "2"}
    )
    assert chosen.settings == Chosen(port=3, rules=("a", "b"), grace_s=2.0, shed=False)
    assert chosen.sources["port"] == "flag"
    assert chosen.sources["grace_s"] == "variable SG_GRACE_S"
    assert chosen.sources["shed"] == f"file {file}"
    assert chosen.sources["failure"] == "default"


@pytest.mark.parametrize(
    ("text", "grace_s"), [("5", 5.0), ("12ms", 0.012), ("1.5 s", 1.5), ("1m", 60.0), ("1e1", 10.0)]
)
def test_a_duration_takes_a_unit(text: str, grace_s: float) -> None:
    assert gathered("--grace-s", text).settings.grace_s == grace_s


@pytest.mark.parametrize("text", ["", "5sm", "m", "5 minutes", "0.5ms", "1.0001s", "61000"])
def test_whole_milliseconds_refuse_what_they_cannot_hold(text: str) -> None:
    parse = milliseconds(1, 60_000).parse
    assert (parse("1.5s", ""), parse("2_000", ""), parse("1m", "")) == (1_500, 2_000, 60_000)
    with pytest.raises(BadValue, match="give whole milliseconds from 1 to 60,000"):
        parse(text, "--pause-ms")


def test_a_switch_may_be_said_alone() -> None:
    assert gathered("--shed").settings.shed is True
    one, other = gathered("--shed", "--port", "3"), gathered("--port", "3", "--shed=on")
    assert one.settings == other.settings
    assert gathered("--shed", "off").settings.shed is False


def test_what_is_printed_is_a_settings_file_that_says_the_same(tmp_path: Path) -> None:
    first = gathered("--port", "9", "--rules", 'a "b"', "--rules", "c\\d")
    file = tmp_path / "printed.toml"
    file.write_text("\n".join(first.lines()))
    again = gathered("--config", str(file))
    assert again.settings == first.settings


@dataclass(frozen=True, kw_only=True)
class Tuned(Chosen):
    """One for experts."""

    pace: Annotated[int, Setting("how fast", whole(1, 9), expert=True)] = 5
    depth: Annotated[int, Setting("how deep", whole(1, 9))] = 5


def tuned(file: Path, toml: str) -> Effective[Tuned]:
    file.write_text(toml)
    parser = ArgumentParser()
    add_flags(parser, Tuned)
    return read_settings(Tuned, parser.parse_args(["--config", str(file)]), {})


def test_expert_settings_are_last_in_help_and_print_config(tmp_path: Path) -> None:
    parser = ArgumentParser()
    add_flags(parser, Tuned)
    everyday, _, expert = parser.format_help().partition("expert settings:")
    assert "--pace" in expert
    assert "--depth" in everyday
    assert "--grace-s" in everyday
    lines = tuned(tmp_path / "a.toml", "pace = 2").lines()
    names = [line.split()[0] for line in lines]
    assert names[-2:] == ["[expert]", "pace"]
    assert tuned(tmp_path / "b.toml", "\n".join(lines)).settings.pace == 2


def test_expert_table_of_file_is_read(tmp_path: Path) -> None:
    assert tuned(tmp_path / "a.toml", "depth = 3\n[expert]\npace = 2").settings == Tuned(
        depth=3, pace=2
    )


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("[expert]\ndepth = 2", "expert.depth"),
        ("pace = 1\n[expert]\npace = 2", "give it once"),
        ("expert = 1", "make it a table"),
    ],
)
def test_wrong_expert_table_is_rejected(tmp_path: Path, toml: str, message: str) -> None:
    with pytest.raises(BadValue, match=message):
        tuned(tmp_path / "a.toml", toml)


def test_a_secret_is_never_printed() -> None:
    text = "\n".join(gathered("--store", "redis://ann:sesame@host:6379/0").lines())
    assert "sesame" not in text
    assert "redis://ann:(not shown)@host:6379/0" in text
    assert "sesame" not in "\n".join(gathered("--store", "sesame").lines())
    assert 'store = "memory:"' in "\n".join(gathered().lines())


@pytest.mark.parametrize(
    ("words", "environment", "message"),
    [
        (["--port", "0"], {}, "--port: '0' cannot be used; give a whole number from 1 to 65,535"),
        ([], {"SG_PORT": "x"}, "SG_PORT: 'x' cannot be used"),
        (["--grace-s", "nan"], {}, "give seconds from 0 to 60"),
        (["--shed", "maybe"], {}, "give on or off"),
        (["--failure", "other"], {}, "give one of open, closed"),
        ([], {"SG_PROT": "1"}, "SG_PROT: '1' cannot be used; there is no such variable"),
        (["--config", "/nowhere"], {}, "it cannot be read"),
    ],
)
def test_a_wrong_text_is_told_with_the_place_it_is_in(
    words: list[str], environment: dict[str, str], message: str
) -> None:
    with pytest.raises(BadValue) as caught:
        gathered(*words, environment=environment)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("prot = 1", "prot"),
        ("port = [1, 2]", "give one value"),
        ("port = {a = 1}", "give a text or a number"),
        ("port = ", "not TOML"),
        ("port = 70000", "give a whole number"),
    ],
)
def test_a_wrong_file_is_told_with_the_name_in_it(tmp_path: Path, toml: str, message: str) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(toml)
    with pytest.raises(BadValue, match=message) as caught:
        gathered("--config", str(file))
    assert str(file) in f"{caught.value.field} {caught.value.value}"


def test_a_variable_holds_several_values_with_spaces_between() -> None:
    assert gathered(environment={"SG_RULES": "a b"}).settings.rules == ("a", "b")


def test_a_class_has_its_own_settings_first_then_those_it_inherits() -> None:
    names = [field.name for field in fields_of(Chosen)]
    assert names == ["port", "rules", "shed", "share", "failure", "store", "grace_s"]
    assert {field.group for field in fields_of(Chosen)} == {
        "Its own",
        "What both have. The rest of this is no title",
    }


def test_a_default_is_shown_as_it_would_be_written() -> None:
    parser = ArgumentParser()
    add_flags(parser, Chosen)
    text = " ".join(parser.format_help().split())
    for one in ("(default 7070)", "(default on)", "(default 0.05)", "(default open)"):
        assert one in text
    assert "--rules PATH" in text
    assert "--failure open|closed" in text


def test_settings_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(BadValue, match="give another with --shed off"):
        gathered("--port", "13", "--shed", "off")


def test_a_program_says_flags_and_the_environment_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SG_PORT", "9")
    assert settings_from(Chosen, "--share", "50%") == Chosen(share=0.5)


def test_a_setting_without_a_default_is_a_mistake_of_the_program() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Wrong(SettingsBase):
        """Wrong."""

        name: Annotated[str, Setting("no default")]

    with pytest.raises(TypeError, match="name needs a default"):
        fields_of(Wrong)


def test_what_kubernetes_says_of_a_service_by_our_name_is_not_ours() -> None:
    described = {
        "SG_SERVICE_HOST": "10.0.0.1",
        "SG_SERVICE_PORT": "7070",
        "SG_SERVICE_PORT_LIMITER": "7070",
        "SG_PORT_7070_TCP": "tcp://10.0.0.1:7070",
        "SG_PORT_7070_TCP_PROTO": "tcp",
        "SG_PORT_7070_TCP_PORT": "7070",
        "SG_PORT_7070_TCP_ADDR": "10.0.0.1",
        "SG_CANARY_PORT": "tcp://10.0.0.2:7070",
        "SG_CANARY_SERVICE_HOST": "10.0.0.2",
    }
    assert gathered(environment=described).lines() == gathered().lines()
    for name, value in (("SG_ADMIN_PORT", "7070"), ("SG_SERVICE", "x"), ("SG_PORTS", "tcp://a:1")):
        with pytest.raises(BadValue, match="there is no such variable"):
            gathered(environment={name: value})
