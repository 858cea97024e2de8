from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate import BadValue
from sluicegate.limits.glass.break_glass import (
    ALL,
    Glass,
    GlassView,
    Opening,
    check_opening,
    override_decision,
)

S = 1_000_000
DAY_US = 86_400 * S
THERE_US = 5_000 * S  # the source's clock
HERE_US = 777 * S  # this process's, more than an hour behind


def opening(
    rule: str = ALL, key: str = ALL, *, name: str = "a1", until_us: int = THERE_US + 60 * S
) -> Opening:
    return Opening(name, rule, key, until_us, THERE_US, "ann", "the rule is wrong")


def glass_of(*openings: Opening, now_us: int = THERE_US, sent_us: int = HERE_US) -> Glass:
    glass = Glass()
    glass.show(GlassView(now_us, openings), sent_us)
    return glass


def test_a_glass_that_was_told_nothing_is_whole() -> None:
    glass = Glass()
    assert not glass.broken
    assert glass.opening_for("login", "ann", HERE_US) is None
    assert glass.standing(HERE_US) == []


@pytest.mark.parametrize(
    ("rule", "key", "through"),
    [
        (ALL, ALL, ["login/ann", "login/bob", "api/ann", "api/bob"]),
        ("login", ALL, ["login/ann", "login/bob"]),
        (ALL, "ann", ["login/ann", "api/ann"]),
        ("login", "ann", ["login/ann"]),
    ],
)
def test_an_opening_lets_through_what_it_names_and_nothing_else(
    rule: str, key: str, through: list[str]
) -> None:
    one = opening(rule, key)
    glass = glass_of(one)
    assert glass.broken
    answers = {
        f"{rule}/{key}": glass.opening_for(rule, key, HERE_US)
        for rule in ("login", "api")
        for key in ("ann", "bob")
    }
    assert [name for name, found in answers.items() if found is not None] == through
    assert {found for found in answers.values() if found is not None} == {one}


def test_it_ends_here_by_this_clock_whatever_the_sources_clock_says() -> None:
    glass = glass_of(opening(until_us=THERE_US + 60 * S), now_us=THERE_US + 20 * S)
    assert glass.opening_for("login", "ann", HERE_US + 40 * S - 1) is not None
    assert glass.opening_for("login", "ann", HERE_US + 40 * S) is None
    assert glass.standing(HERE_US + 40 * S) == []
    glass.expire(HERE_US + 40 * S)
    assert not glass.broken


def test_an_end_that_was_believed_is_never_put_off() -> None:
    one = opening()
    glass = glass_of(one)
    # Half a minute later the source's clock stands where it stood.
    glass.show(GlassView(THERE_US, [one]), HERE_US + 30 * S)
    assert glass.opening_for("login", "ann", HERE_US + 60 * S) is None
    # And when it is over here it stays over, however long the source goes on to name it.
    glass.expire(HERE_US + 61 * S)
    glass.show(GlassView(THERE_US, [one]), HERE_US + 61 * S)
    assert not glass.broken
    # The same words under another end are another opening.
    glass.show(GlassView(THERE_US, [one._replace(until_us=one.until_us + S)]), HERE_US + 61 * S)
    assert glass.broken


def test_a_source_whose_clock_went_back_gives_no_more_than_the_openings_length() -> None:
    glass = glass_of(opening(), now_us=THERE_US - 3_600 * S)
    assert glass.opening_for("login", "ann", HERE_US + 60 * S - 1) is not None
    assert glass.opening_for("login", "ann", HERE_US + 60 * S) is None


def test_an_end_may_come_nearer() -> None:
    one = opening()
    glass = glass_of(one)
    glass.show(GlassView(THERE_US + 50 * S, [one]), HERE_US + 10 * S)
    assert glass.opening_for("login", "ann", HERE_US + 20 * S) is None


def test_what_the_source_no_longer_names_is_mended_at_once() -> None:
    one, other = opening("login", name="a1"), opening("api", name="b2")
    glass = glass_of(one, other)
    glass.show(GlassView(THERE_US + S, [other]), HERE_US + S)
    assert glass.opening_for("login", "ann", HERE_US + S) is None
    assert glass.opening_for("api", "ann", HERE_US + S) == other
    glass.show(GlassView(THERE_US + 2 * S, []), HERE_US + 2 * S)
    assert not glass.broken


def test_damage_opens_nothing_and_closes_what_was_open() -> None:
    glass = glass_of(opening())
    glass.show(GlassView(THERE_US, [opening(name="b2")], "it is not ours"), HERE_US)
    assert not glass.broken


def test_of_two_for_the_same_the_one_that_lasts_is_found() -> None:
    long = opening("login", name="a1", until_us=THERE_US + 60 * S)
    short = opening("login", name="b2", until_us=THERE_US + 10 * S)
    for order in ((long, short), (short, long)):
        assert glass_of(*order).opening_for("login", "ann", HERE_US) == long


def test_one_that_has_ended_does_not_hide_another() -> None:
    everything = opening(name="a1", until_us=THERE_US + 10 * S)
    rule = opening("login", name="b2", until_us=THERE_US + 20 * S)
    key = opening(key="ann", name="c3", until_us=THERE_US + 30 * S)
    pair = opening("login", "ann", name="d4")
    glass = glass_of(everything, rule, key, pair)
    openings = [glass.opening_for("login", "ann", HERE_US + s * S) for s in (5, 15, 25, 35, 65)]
    assert openings == [everything, rule, key, pair, None]


def test_mending_forgets_all() -> None:
    glass = glass_of(opening())
    glass.mend()
    assert not glass.broken
    assert glass.opening_for("login", "ann", HERE_US) is None


def test_a_sleeping_glass_wakes_its_follower_with_the_first_question_only() -> None:
    glass, woken = Glass(), []
    glass.sleep(lambda: woken.append("up"))
    glass.expire(HERE_US)
    assert glass.broken
    assert glass.opening_for("login", "ann", HERE_US) is None
    glass.opening_for("login", "ann", HERE_US)
    assert woken == ["up"]
    glass.expire(HERE_US)
    assert not glass.broken


def test_what_stands_open_holds_while_the_glass_sleeps() -> None:
    one = opening()
    glass = glass_of(one)
    glass.sleep(lambda: None)
    glass.expire(HERE_US)
    assert glass.broken
    assert glass.opening_for("login", "ann", HERE_US) == one


def test_the_decision_is_allowed_and_marked() -> None:
    decision = override_decision("login", remaining=5)
    assert decision.allowed
    assert decision.overridden
    assert (decision.rule_id, decision.remaining, decision.reason) == ("login", 5, None)
    assert "break-glass" in decision.explain()
    assert (decision.degraded, decision.shadow) == (False, False)


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("id", {"id": ""}),
        ("id", {"id": "x" * 33}),
        ("id", {"id": "\x1b[2J"}),
        ("rule", {"rule": ""}),
        ("rule", {"rule": "x" * 1_001}),
        ("key", {"key": "x" * 4_097}),
        ("by", {"by": " "}),
        ("by", {"by": "x" * 101}),
        ("by", {"by": "ann\nroot"}),
        ("why", {"why": ""}),
        ("why", {"why": "x" * 501}),
        ("why", {"why": "\x1b[2J"}),
        ("for_s", {"until_us": THERE_US + S - 1}),
        ("for_s", {"until_us": THERE_US + DAY_US + 1}),
    ],
)
def test_an_opening_that_is_not_as_it_must_be_is_told_by_its_part(
    field: str, change: dict[str, object]
) -> None:
    with pytest.raises(BadValue, match=rf"glass\.{field}: "):
        check_opening(opening()._replace(**change), DAY_US)  # type: ignore[arg-type]


def test_the_shortest_and_the_longest_opening_are_all_right() -> None:
    for for_us in (S, DAY_US):
        one = opening(until_us=THERE_US + for_us)
        assert check_opening(one, DAY_US) is one


# The view against an obvious oracle.

NAMES = st.sampled_from([ALL, "x", "y"])
OPENINGS = st.builds(
    lambda name, rule, key, since_s, for_s: Opening(
        name, rule, key, THERE_US + (since_s + for_s) * S, THERE_US + since_s * S, "ann", "why"
    ),
    st.sampled_from("ab"),
    NAMES,
    NAMES,
    st.integers(0, 2),
    st.integers(1, 6),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("show"),
            st.lists(OPENINGS, max_size=4, unique_by=lambda one: one[:3]),
            st.integers(-3, 8),
        ),
        st.tuples(st.just("expire"), st.just([]), st.just(0)),
        st.tuples(st.just("wait"), st.just([]), st.integers(0, 3)),
    ),
    max_size=12,
)


@given(STEPS)
def test_the_view_says_what_a_list_of_openings_and_ends_says(
    steps: list[tuple[str, list[Opening], int]],
) -> None:
    glass, now_us = Glass(), HERE_US
    standing: dict[Opening, int] = {}
    for what, openings, seconds in steps:
        if what == "show":
            source_us = THERE_US + seconds * S
            glass.show(GlassView(source_us, openings), now_us)
            ends = {}
            for one in openings:
                end = now_us + min(one.until_us - source_us, one.until_us - one.opened_at_us)
                ends[one] = min(end, standing.get(one, end))
            standing = ends
        elif what == "expire":
            glass.expire(now_us)
        else:
            now_us += seconds * S
        open_now = [one for one, end in standing.items() if now_us < end]
        assert set(glass.standing(now_us)) == set(open_now)
        assert glass.broken or not open_now
        for rule in ("x", "y", "z"):
            for key in ("x", "y", "z"):
                found = glass.opening_for(rule, key, now_us)
                fit = [one for one in open_now if one.rule in (ALL, rule) and one.key in (ALL, key)]
                assert (found in fit) if fit else found is None
