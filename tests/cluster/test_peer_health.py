"""Which peers of a node answer, by a clock that the test moves."""

from __future__ import annotations

from sluicegate.cluster.peer_health import ASKED_MAX, PROBE_S, PeerChoice, PeerHealth

GONE_S = 0.5
NAMES = ("a", "b", "c")


def health_of(*names: str) -> PeerHealth:
    health = PeerHealth(GONE_S)
    health.change(names, ())
    return health


def choice(live: str, dead: str = "") -> PeerChoice:
    return PeerChoice(frozenset(live), frozenset(dead))


def test_a_peer_is_master_until_it_has_not_answered_for_so_long_and_again_when_it_answers() -> None:
    health = health_of(*NAMES)
    assert health.choose(10.0) == choice("abc")
    assert health.fail("b", "silence", 10.0)
    assert not health.fail("b", "silence", 10.2), "that is known"
    assert health.choose(10.4) is None, "nothing has changed so far"
    assert health.choose(10.5) == choice("ac")
    assert health.failing == {"b": "silence"}
    assert health.answer("b")
    assert health.choose(10.6) == choice("abc")


def test_one_where_nothing_listens_is_dead_and_one_that_is_silent_may_be_serving() -> None:
    health = health_of(*NAMES)
    for name in "bc":
        health.fail(name, "silence", 10.0)
    health.find_dead("b", dead=True)
    health.find_dead("c", dead=False)
    assert health.choose(10.6) == choice("a", dead="b")
    health.find_dead("b", dead=False)  # something listens there again
    assert health.choose(10.7) == choice("a")


def test_while_one_may_be_cut_off_the_others_are_asked_in_turn() -> None:
    names = [f"n{number:02}" for number in range(ASKED_MAX + 2)]
    health = health_of(*names)
    assert health.next_asked() == []
    health.suspect(["n03", "nobody"])
    assert health.next_asked() == ["n03"]
    health.fail("n00", "silence", 10.0)
    assert set(health.next_asked()) | set(health.next_asked()) == set(names)
    health.find_dead("n00", dead=True)
    assert health.next_asked() == ["n00"], "the network is whole, and it may come back"


def test_probes_have_their_time() -> None:
    health = health_of(*NAMES)
    assert health.is_probe_due(10.0)
    assert not health.is_probe_due(10.0 + PROBE_S / 2)
    assert health.is_probe_due(10.0 + PROBE_S)


def test_of_one_that_moved_or_left_nothing_is_held_against_it() -> None:
    health = health_of(*NAMES)
    health.fail("b", "silence", 10.0)
    health.fail("c", "silence", 10.0)
    health.find_dead("b", dead=True)
    health.change(("a", "b"), ["b", "c"])
    assert health.choose(11.0) == choice("ab")
    assert health.failing == {}
    assert not health.fail("c", "silence", 11.0), "it is no peer any more"
