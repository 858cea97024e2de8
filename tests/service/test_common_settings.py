from __future__ import annotations

from typing import NamedTuple

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.service.common_settings import (
    check_certificates,
    check_rulebook,
    check_shared_ports,
)


class Told(NamedTuple):
    tls_cert: str = ""
    tls_key: str = ""
    tls_client_ca: str = ""
    rules: tuple[str, ...] = ()
    rulebook: str = ""
    rulebook_keys: tuple[str, ...] = ()


@pytest.mark.parametrize(
    ("told", "field"),
    [
        (Told(tls_cert="c"), "--tls-key"),
        (Told(tls_key="k"), "--tls-key"),
        (Told(tls_client_ca="ca"), "--tls-client-ca"),
    ],
)
def test_a_certificate_needs_what_belongs_to_it(told: Told, field: str) -> None:
    with pytest.raises(BadValue) as refused:
        check_certificates(told)
    assert refused.value.field == field
    check_certificates(Told())
    check_certificates(Told(tls_cert="c", tls_key="k", tls_client_ca="ca"))


@pytest.mark.parametrize(
    ("told", "field"),
    [
        (Told(rules=("r",), rulebook="files:b", rulebook_keys=("k",)), "--rules"),
        (Told(rulebook="files:b"), "--rulebook-keys"),
    ],
)
def test_rules_come_from_one_place_and_a_rulebook_is_signed(told: Told, field: str) -> None:
    with pytest.raises(BadValue) as refused:
        check_rulebook(told)
    assert refused.value.field == field
    check_rulebook(Told(rules=("r",)))
    check_rulebook(Told(rulebook="files:b", rulebook_keys=("k",)))


def test_several_workers_share_a_port_that_has_a_number() -> None:
    with pytest.raises(BadValue, match=r"^--listen: "):
        check_shared_ports(["127.0.0.1:80", "127.0.0.1:0"], 2)
    check_shared_ports(["127.0.0.1:0"], 1)
    check_shared_ports(["127.0.0.1:80", "[::1]:90"], 2)
