from __future__ import annotations

from pathlib import Path

import pytest

from sluicegate.contracts.access import Grant, TableGrant
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue, Forbidden
from sluicegate.policies.access import OpenAccess, token_digest
from sluicegate.service.access_file import make_access

TOKEN = "a token of enough characters"


def written(tmp_path: Path, text: str) -> str:
    file = tmp_path / "access.toml"
    file.write_text(text)
    return str(file)


def test_a_file_says_who_may_do_what(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        f"""
        [anonymous]
        grants = ["check"]
        [[callers]]
        name = "gateway"
        token_sha256 = "{token_digest(TOKEN)}"
        grants = ["check", "lease"]
        [[callers]]
        name = "desk"
        certificate = "desk.local"
        grants = ["audit"]
        [[callers]]
        name = "eve@example.com"
        login = true
        """,
    )
    access = make_access(path, "")
    assert access.by_login("eve@example.com") is not None
    assert access.by_login("desk") is None
    gateway = access.by_token(TOKEN)
    desk = access.by_certificate(["desk.local"])
    assert gateway is not None
    assert gateway.grants == {Grant.CHECK, Grant.LEASE}
    assert desk is not None
    assert desk.grants == {Grant.AUDIT}
    assert access.anonymous is not None
    assert access.anonymous.grants == {Grant.CHECK}


def test_one_token_is_enough_for_everything() -> None:
    access = make_access("", TOKEN)
    found = access.by_token(TOKEN)
    assert found is not None
    assert found.grants == set(Grant)
    assert access.anonymous is None


def test_without_file_and_token_everybody_is_welcome() -> None:
    assert isinstance(make_access("", ""), OpenAccess)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("callers = 1", "callers: 1 cannot be used; write each as"),
        ("caller = []", "caller: "),
        ('[[callers]]\nname = "a"\ngrants = ["fly"]', r"callers\[0\]\.grants: 'fly'"),
        ('[[callers]]\nname = "a"\nsecret = "x"', r"callers\[0\]: secret"),
        ("[[callers]]\nname = 1", r"callers\[0\]\.name: 1"),
        ('[[callers]]\nname = "a"', "give it a token_sha256 or a certificate"),
        ('[[callers]]\nname = "a"\nlogin = "yes"', r"callers\[0\]\.login: 'yes'"),
        ("[anonymous]\ngrants = 1", r"anonymous\.grants: 1"),
        ("[[callers", "not TOML"),
    ],
)
def test_a_wrong_file_is_told_by_its_field(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadValue, match=message):
        make_access(written(tmp_path, text), "")


def test_a_short_token_is_refused_and_not_shown() -> None:
    with pytest.raises(BadValue, match="at least 16") as caught:
        make_access("", "sesame")
    assert "sesame" not in str(caught.value)


def test_tables_and_classes_of_a_caller_are_read(tmp_path: Path) -> None:
    file = tmp_path / "callers.toml"
    file.write_text(
        f"""
[anonymous]
tables = {{ public = ["read"] }}

[[callers]]
name = "shop"
token_sha256 = "{token_digest("s" * 20)}"
tables = {{ homes = ["read", "write", "bulk"], "*" = ["read"] }}
criticality = "degraded"
highest = "CRITICAL"
"""
    )
    access = make_access(str(file), "")
    shop = access.by_token("s" * 20)
    assert shop is not None
    shop.require_on("homes", TableGrant.BULK)
    shop.require_on("others", TableGrant.READ)
    with pytest.raises(Forbidden, match="write on others"):
        shop.require_on("others", TableGrant.WRITE)
    assert (shop.criticality, shop.highest) == (Criticality.DEGRADED, Criticality.CRITICAL)
    nobody = access.anonymous
    assert nobody is not None
    nobody.require_on("public", TableGrant.READ)
    with pytest.raises(Forbidden):
        nobody.require_on("homes", TableGrant.READ)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('tables = ["homes"]', "tables"),
        ('tables = { Homes = ["read"] }', "Homes"),
        ('tables = { homes = ["delete"] }', "homes"),
        ('criticality = "URGENT"', "criticality"),
        ("highest = 1", "highest"),
    ],
)
def test_a_wrong_table_or_class_names_its_field(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "callers.toml"
    file.write_text(f'[[callers]]\nname = "a"\ntoken_sha256 = "{"0" * 64}"\n{line}\n')
    with pytest.raises(BadValue, match=message):
        make_access(str(file), "")
