from __future__ import annotations

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.service.common_settings import ORIGIN, RulesSettings


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        (RulesSettings(tls_cert="c"), "--tls-key"),
        (RulesSettings(tls_key="k"), "--tls-key"),
        (RulesSettings(tls_client_ca="ca"), "--tls-client-ca"),
        (RulesSettings(rules=("r",), rulebook="files:b", rulebook_keys=("k",)), "--rules"),
        (RulesSettings(rulebook="files:b"), "--rulebook-keys"),
        (RulesSettings(workers=2, listen=("127.0.0.1:80", "127.0.0.1:0")), "--listen"),
    ],
)
def test_what_does_not_go_together_is_refused_by_its_flag(
    settings: RulesSettings, field: str
) -> None:
    with pytest.raises(BadValue) as refused:
        settings.check()
    assert refused.value.field == field


@pytest.mark.parametrize(
    "settings",
    [
        RulesSettings(),
        RulesSettings(tls_cert="c", tls_key="k", tls_client_ca="ca"),
        RulesSettings(rules=("r",)),
        RulesSettings(rulebook="files:b", rulebook_keys=("k",)),
        RulesSettings(listen=("127.0.0.1:0",)),
        RulesSettings(workers=2, listen=("127.0.0.1:80", "[::1]:90")),
    ],
)
def test_what_goes_together_is_taken(settings: RulesSettings) -> None:
    settings.check()


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("https://App.Example.com", "https://app.example.com"),
        ("https://app.example.com:443", "https://app.example.com"),
        ("http://localhost:5173", "http://localhost:5173"),
        ("http://[::1]:80", "http://[::1]"),
        ("*", "*"),
    ],
)
def test_origin_is_as_browsers_write_it(text: str, origin: str) -> None:
    assert ORIGIN.parse(text, "--origins") == origin


@pytest.mark.parametrize(
    "text",
    ["null", "app.example.com", "https://app.example.com/", "https://*.example.com", "ftp://a"],
)
def test_text_that_is_no_origin_is_invalid(text: str) -> None:
    with pytest.raises(BadValue, match="scheme://host"):
        ORIGIN.parse(text, "--origins")
