from __future__ import annotations

import pytest

from sluicegate.contracts.access import Grant, Identity
from sluicegate.contracts.errors import BadValue, Forbidden
from sluicegate.policies.access import Credential, KnownCallers, OpenAccess, token_digest

CHECK = frozenset({Grant.CHECK})
ANN = Credential("ann", CHECK, token_sha256=token_digest("ann's secret"))
BOB = Credential("bob", frozenset({Grant.AUDIT}), certificate="bob.local")


def test_a_caller_is_known_by_its_token_or_its_certificate() -> None:
    access = KnownCallers([ANN, BOB])
    ann = access.by_token("ann's secret")
    bob = access.by_certificate(["other", "bob.local"])
    assert ann is not None
    assert ann.name == "ann"
    assert bob is not None
    assert bob.name == "bob"
    assert access.by_token("wrong") is None
    assert access.by_token("x" * 2_000) is None
    assert access.by_certificate(["ann"]) is None
    assert access.anonymous is None


def test_who_logs_in_elsewhere_is_known_by_name_and_nobody_else_is() -> None:
    access = KnownCallers([ANN, Credential("eve", CHECK, login=True)])
    eve = access.by_login("eve")
    assert eve is not None
    assert eve.name == "eve"
    assert eve in access.identities
    assert access.by_login("ann") is None
    assert OpenAccess().by_login("eve") is None


def test_a_table_holds_no_token() -> None:
    assert "secret" not in repr(ANN)


def test_what_nobody_in_particular_may_do_is_said_apart() -> None:
    access = KnownCallers([ANN], anonymous=CHECK)
    assert access.anonymous is not None
    assert access.anonymous.may(Grant.CHECK)
    assert not access.anonymous.may(Grant.RESET)


def test_a_grant_that_is_missing_is_named() -> None:
    ann = Identity("ann", CHECK)
    ann.require(Grant.CHECK)
    with pytest.raises(Forbidden, match="ann may not do this; it takes the grant 'reset'"):
        ann.require(Grant.RESET)


@pytest.mark.parametrize(
    ("credentials", "field"),
    [
        ([ANN, ANN], r"callers\[1\]\.name"),
        ([ANN, ANN._replace(name="two")], r"callers\[1\]\.token_sha256"),
        ([BOB, BOB._replace(name="two")], r"callers\[1\]\.certificate"),
        ([Credential("ann", CHECK)], r"callers\[0\]"),
        ([ANN._replace(token_sha256="abc")], r"callers\[0\]\.token_sha256"),
        ([ANN._replace(name="")], r"callers\[0\]\.name"),
    ],
)
def test_a_wrong_table_is_told_by_its_row(credentials: list[Credential], field: str) -> None:
    with pytest.raises(BadValue, match=field):
        KnownCallers(credentials)


def test_where_there_is_no_table_everybody_may_do_everything() -> None:
    everybody = OpenAccess().anonymous
    assert everybody is not None
    assert all(everybody.may(grant) for grant in Grant)
