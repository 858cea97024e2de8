from __future__ import annotations

from hashlib import blake2b

from hypothesis import given
from hypothesis import strategies as st

from sluicegate.rules.following.fleet_books import PLACES, FleetBooks, in_share
from sluicegate.rules.service_rule_set import ServiceRuleSet
from sluicegate.rules.snapshot.book import book_of
from sluicegate.rules.snapshot.snapshot import compile_snapshot
from tests.rules.releases.press import files

OLD: ServiceRuleSet = book_of(compile_snapshot(files(a=1)), version="1")
NEW: ServiceRuleSet = book_of(compile_snapshot(files(a=2)), version="2")

callers = st.text(max_size=30)
shares = st.integers(0, PLACES)
salts = st.text(max_size=8)


def trying(share: int, salt: str = "s") -> FleetBooks:
    return FleetBooks(OLD, 1, NEW, 2, share, salt)


def test_without_a_canary_everybody_goes_by_the_live_rules() -> None:
    books = FleetBooks(OLD, 1, share=PLACES)
    assert not books.runs_canary("ann")
    assert books.book_for("ann") is OLD
    assert (books.canary_version, books.share) == (0, 0)


@given(caller=callers, salt=salts, small=shares, large=shares)
def test_whoever_is_in_a_share_is_in_every_larger_one(
    caller: str, salt: str, small: int, large: int
) -> None:
    small, large = sorted((small, large))
    if trying(small, salt).runs_canary(caller):
        assert trying(large, salt).runs_canary(caller)
        assert trying(large, salt).book_for(caller) is NEW


@given(caller=callers, salt=salts, share=shares)
def test_nodes_and_callers_are_chosen_alike_and_nobody_at_0_and_all_at_10_000(
    caller: str, salt: str, share: int
) -> None:
    assert trying(share, salt).runs_canary(caller) == in_share(caller, share=share, salt=salt)
    assert not trying(0, salt).runs_canary(caller)
    assert trying(PLACES, salt).runs_canary(caller)


def test_a_share_is_of_that_size_and_another_salt_picks_others() -> None:
    names = [f"user-{number}" for number in range(20_000)]
    chosen = {
        salt: {name for name in names if trying(500, salt).runs_canary(name)} for salt in "ab"
    }
    for found in chosen.values():
        assert 850 <= len(found) <= 1_150  # 1,000, and five times what chance alone does
    assert len(chosen["a"] & chosen["b"]) <= 100  # 50 by chance


def test_the_places_never_change() -> None:
    # Other versions of this program, and other programs, must agree who is in.
    names = ("ann", "bob", "cem", "dan", "eve", "fay", "gus")
    chosen = [name for name in names if in_share(name, share=5_000, salt="s")]
    assert chosen == ["ann", "bob", "eve", "fay", "gus"]


@given(caller=callers.filter(lambda text: text.isprintable()), salt=st.sampled_from("abc"))
def test_a_place_is_in_from_the_first_share_above_it(caller: str, salt: str) -> None:
    digest = blake2b(f"{salt}\0{caller}".encode(), digest_size=8).digest()
    place = int.from_bytes(digest, "big") % PLACES
    assert not trying(place, salt).runs_canary(caller)
    assert trying(place + 1, salt).runs_canary(caller)


def test_limits_of_all_that_is_under_way_are_known() -> None:
    old, new = set(OLD.rules), set(NEW.rules)
    assert old != new
    assert set(FleetBooks(OLD, 1).rules_beside(None)) == old
    assert set(trying(1).rules_beside(None)) == old | new
    assert set(FleetBooks(NEW, 2).rules_beside(FleetBooks(OLD, 1))) == old | new
    assert set(FleetBooks(OLD, 3).rules_beside(trying(1))) == old | new


def test_books_are_the_same_if_nobody_would_notice() -> None:
    live = FleetBooks(OLD, 1)
    assert live.same_as(FleetBooks(OLD, 1, salt="x"))
    assert trying(1).same_as(trying(1))
    for one, other in (
        (trying(1), trying(2)),
        (trying(1), trying(1, "t")),
        (live, FleetBooks(OLD, 2)),
        (live, FleetBooks(NEW, 1)),
        (live, trying(1)),
        (trying(1), FleetBooks(OLD, 1, NEW, 3, 1, "s")),
    ):
        assert not one.same_as(other)
        assert not other.same_as(one)
    assert not live.same_as(None)
