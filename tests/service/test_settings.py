from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.service.settings import (
    Effective,
    Field,
    add_flags,
    gather,
    one_of,
    seconds,
    text,
    whole,
    yes_or_no,
)

FIELDS = (
    Field("port", whole(1, 65_535), "7070", "where to listen"),
    Field("rules", text, "", "files", several=True),
    Field("store", text, "memory:", "where counts are", secret=True),
    Field("grace_s", seconds(0, 60), "10", "time to end"),
    Field("shed", yes_or_no, "on", "whether to shed"),
    Field("failure", one_of("open", "closed"), "open", "what if the store is silent"),
)


def gathered(*words: str, environment: dict[str, str] | None = None) -> Effective:
    parser = ArgumentParser()
    add_flags(parser, FIELDS)
    return gather(FIELDS, parser.parse_args(words), "SG_", environment or {})


def test_a_default_is_overruled_by_a_file_that_by_a_variable_and_that_by_a_flag(
    tmp_path: Path,
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('port = 1\ngrace_s = 1.5\nshed = false\nrules = ["a", "b"]\n')
    found = gathered(
        "--config", str(file), "--port", "3", environment={"SG_PORT": "2", "SG_GRACE_S": "2"}
    )
    assert found.values == {
        "port": 3,
        "rules": ("a", "b"),
        "store": "memory:",
        "grace_s": 2.0,
        "shed": False,
        "failure": "open",
    }
    assert found.sources["port"] == "flag"
    assert found.sources["grace_s"] == "variable SG_GRACE_S"
    assert found.sources["shed"] == f"file {file}"
    assert found.sources["failure"] == "default"


def test_a_switch_may_be_said_alone() -> None:
    assert gathered("--shed").values["shed"] is True
    assert gathered("--shed", "--port", "3").values == gathered("--port", "3", "--shed=on").values
    assert gathered("--shed", "off").values["shed"] is False


def test_what_is_printed_is_a_settings_file_that_says_the_same(tmp_path: Path) -> None:
    first = gathered("--port", "9", "--rules", 'a "b"', "--rules", "c\\d")
    file = tmp_path / "printed.toml"
    file.write_text("\n".join(first.lines()))
    again = gathered("--config", str(file))
    assert again.values == first.values


def test_a_secret_is_never_printed() -> None:
    said = "\n".join(gathered("--store", "redis://ann:sesame@host:6379/0").lines())
    assert "sesame" not in said
    assert "redis://ann:(not shown)@host:6379/0" in said
    assert "sesame" not in "\n".join(gathered("--store", "sesame").lines())
    assert 'store = "memory:"' in "\n".join(gathered().lines())


@pytest.mark.parametrize(
    ("words", "environment", "said"),
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
    words: list[str], environment: dict[str, str], said: str
) -> None:
    with pytest.raises(BadValue) as caught:
        gathered(*words, environment=environment)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ("prot = 1", "prot"),
        ("port = [1, 2]", "give one value"),
        ("port = {a = 1}", "give a text or a number"),
        ("port = ", "not TOML"),
        ("port = 70000", "give a whole number"),
    ],
)
def test_a_wrong_file_is_told_with_the_name_in_it(tmp_path: Path, toml: str, said: str) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(toml)
    with pytest.raises(BadValue, match=said) as caught:
        gathered("--config", str(file))
    assert str(file) in f"{caught.value.field} {caught.value.value}"


def test_a_variable_holds_several_values_with_spaces_between() -> None:
    assert gathered(environment={"SG_RULES": "a b"}).values["rules"] == ("a", "b")
