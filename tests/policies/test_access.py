from __future__ import annotations

from typing import Any

import pytest

from sluicegate.contracts.access import (
    EVERY_GRANT,
    EXPIRED,
    REVOKED,
    Grant,
    Identity,
    Standing,
    TableGrant,
)
from sluicegate.contracts.criticality import Criticality
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


def test_unchanged_caller_of_new_table_keeps_its_identity() -> None:
    before, after = KnownCallers([ANN, BOB]), KnownCallers([BOB, ANN])
    ann = before.by_token("ann's secret")
    assert ann is not None
    after.succeed(before)
    assert after.by_token("ann's secret") is ann
    assert after.by_name("ann") is ann
    assert ann.ended(0) == ""


def test_caller_with_more_grants_keeps_its_identity_with_them() -> None:
    before = KnownCallers([ANN], anonymous=CHECK)
    after = KnownCallers([ANN._replace(grants=EVERY_GRANT)], anonymous=EVERY_GRANT)
    ann, nobody = before.by_token("ann's secret"), before.anonymous
    assert ann is not None
    assert nobody is not None
    after.succeed(before)
    for one in (ann, nobody):
        assert one.may(Grant.RESET)
        assert one.ended(0) == ""
    assert after.anonymous is nobody


READ, WRITE = frozenset({TableGrant.READ}), frozenset({TableGrant.READ, TableGrant.WRITE})


@pytest.mark.parametrize(
    "now",
    [
        {"name": "eve"},
        {"token_sha256": token_digest("another secret")},
        {"token_sha256": "", "certificate": "ann.local"},
        {"grants": frozenset()},
        {"tables": {"*": READ}},
        {"tables": {"*": WRITE, "t": READ}},
        {"highest": Criticality.BULK},
    ],
    ids="_".join,
)
def test_caller_with_fewer_rights_is_revoked(now: dict[str, Any]) -> None:
    ann = ANN._replace(tables={"*": WRITE}, highest=Criticality.DEGRADED)
    before = KnownCallers([ann])
    found = before.by_token("ann's secret")
    assert found is not None
    after = KnownCallers([ann._replace(**now)])
    after.succeed(before)
    assert found.ended(0) == REVOKED
    assert after.by_token("ann's secret") is not found


def test_anonymous_without_grants_is_revoked() -> None:
    before = KnownCallers([ANN], anonymous=CHECK)
    nobody = before.anonymous
    assert nobody is not None
    KnownCallers([ANN]).succeed(before)
    assert nobody.ended(0) == REVOKED


def test_identity_ends_at_its_instant_and_with_each_standing() -> None:
    session = Standing()
    ann = Identity("ann", CHECK).until(1_000, session)
    assert [ann.ended(now_us) for now_us in (0, 999, 1_000)] == ["", "", EXPIRED]
    session.ended = REVOKED
    assert ann.ended(0) == REVOKED
