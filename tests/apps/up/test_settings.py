from __future__ import annotations

import pytest

from sluicegate.apps.up.settings import (
    DEMO_RULES,
    LOAD_PER_S_MAX,
    RULES_MAX,
    parse_for,
    parse_listen,
    parse_load,
    parse_rules,
    rule_words,
)
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rule import Algorithm


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:7000", "127.0.0.1", 7000),
        ("localhost:0", "127.0.0.1", 0),
        ("127.8.9.1:65535", "127.8.9.1", 65535),
        ("[::1]:80", "::1", 80),
    ],
)
def test_an_address_on_this_machine_is_read(text: str, host: str, port: int) -> None:
    assert parse_listen(text) == (host, port)


@pytest.mark.parametrize(
    "text",
    ["", "7000", ":7000", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "::1:80"],
)
def test_what_is_no_address_is_told_how_to_write_one(text: str) -> None:
    with pytest.raises(BadValue, match="HOST:PORT"):
        parse_listen(text)


@pytest.mark.parametrize("text", ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "[2001:db8::1]:1"])
def test_an_address_that_others_reach_needs_insecure(text: str) -> None:
    with pytest.raises(BadValue, match="--insecure"):
        parse_listen(text)
    assert parse_listen(text, insecure=True)[1] == 1


def test_names_are_not_looked_up() -> None:
    with pytest.raises(BadValue, match="IP address"):
        parse_listen("localhost.evil.example:80")


def test_rules_are_named_rates_each_counted_in_its_way() -> None:
    api, login = parse_rules(["api=10/s  burst 20 ;", " login = 5/5m by sliding_log"])
    assert (api.name, api.rate, api.limit.burst) == ("api", "10/s burst 20", 20)
    assert api.limit.algorithm is Algorithm.GCRA
    assert (login.rate, login.limit.algorithm) == ("5/5m", Algorithm.SLIDING_LOG)


def test_the_words_of_rules_read_back_as_the_same_rules() -> None:
    rules = parse_rules(DEMO_RULES)
    assert parse_rules(rule_words(rules)) == rules


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        ([], "NAME = RATE"),
        ([" ; "], "NAME = RATE"),
        (["10/s"], "NAME = RATE"),
        (["Api = 10/s"], "a name is 1 to 32"),
        (["a b = 10/s"], "a name is 1 to 32"),
        (["x" * 33 + " = 10/s"], "a name is 1 to 32"),
        (["api = soon"], "--rules api"),
        (["api = 0/s"], "no zeros"),
        (["api = 10/s by magic"], "sliding_window"),
        (["api = 10/s burst 5 by fixed_window"], "no burst of its own"),
        (["api = 1/s", "api = 2/s"], "already"),
        ([f"r{i} = 1/s" for i in range(RULES_MAX + 1)], "the most"),
    ],
)
def test_a_rule_that_cannot_be_used_says_what_would_be_right(texts: list[str], why: str) -> None:
    with pytest.raises(BadValue, match=why):
        parse_rules(texts)


def test_load_and_time_have_bounds() -> None:
    assert (parse_load("0"), parse_load(str(LOAD_PER_S_MAX))) == (0, LOAD_PER_S_MAX)
    for text in ("-1", "1.5", "", "many", str(LOAD_PER_S_MAX + 1), "9" * 5000):
        with pytest.raises(BadValue, match="--load"):
            parse_load(text)
    assert parse_for("0.5") == 0.5
    for text in ("0", "-1", "nan", "inf", "soon"):
        with pytest.raises(BadValue, match="--for"):
            parse_for(text)
