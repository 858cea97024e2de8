from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from itertools import permutations
from math import inf, log, nan
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.hash_ring import NODES_MAX, Rendezvous, digest, mix

KEYS = [f"user:{number}" for number in range(2_000)]


def even(nodes: int) -> dict[str, float]:
    return {f"node-{number}": 1.0 for number in range(nodes)}


def owners(ring: Rendezvous, keys: list[str] = KEYS) -> dict[str, str]:
    return {key: ring.owner(key) for key in keys}


def slow_rendezvous(weights: dict[str, float], key: str) -> list[str]:
    """The oracle: every node draws, by the formula as written; the lesser name goes first."""

    def score(name: str) -> float:
        u = (mix(digest(key), digest(name)) + 0.5) / 2**52
        return -weights[name] / log(u)

    return sorted(sorted(weights), key=score, reverse=True)


node_weights = st.dictionaries(
    st.text("abcde-", min_size=1, max_size=4),
    st.sampled_from([0.5, 1.0, 1.0, 2.0, 3.5]),
    min_size=1,
    max_size=7,
)
key_texts = st.text(max_size=12)


@given(node_weights, key_texts)
def test_rendezvous_ranks_as_its_formula_says(weights: dict[str, float], key: str) -> None:
    ring, oracle = Rendezvous(weights), slow_rendezvous(weights, key)
    assert ring.owner(key) == oracle[0]
    assert ring.rank(key, len(weights)) == oracle


def test_a_digest_is_sixty_bits_of_blake2b() -> None:
    assert digest("key") == digest(b"key") < 1 << 60
    assert digest("key") == int(blake2b(b"key", digest_size=8).hexdigest(), 16) // 16
    assert digest("\ud800") == digest(b"\xed\xa0\x80")


def test_owners_are_the_same_in_every_process_and_version() -> None:
    """A change here moves the keys of every cluster: it needs a new name, not a new expectation."""
    assert mix(1, 2) == 1941860639479880
    assert mix((1 << 60) - 1, 0) == 2026971912475257
    assert mix(0x123456789ABCDEF, 0xFEDCBA987654321) == 2026289428820384
    owner_digits = [Rendezvous(even(10)).owner(f"user:{number}")[-1] for number in range(20)]
    assert "".join(owner_digits) == "81850731526764084646"


def test_the_order_in_which_nodes_are_named_means_nothing() -> None:
    weights = {"a": 1.0, "b": 2.0, "c": 1.0}
    expected = owners(Rendezvous(weights))
    for order in permutations(weights):
        assert owners(Rendezvous({name: weights[name] for name in order})) == expected


def test_a_node_that_leaves_gives_its_keys_to_the_second_in_rank_and_moves_no_other() -> None:
    weights = even(8) | {"node-3": 2.0}
    whole = Rendezvous(weights)
    for leaver in ("node-3", "node-5"):
        rest = Rendezvous({name: weight for name, weight in weights.items() if name != leaver})
        for key in KEYS:
            first, second = whole.rank(key, 2)
            assert rest.owner(key) == (second if first == leaver else first)


def test_a_node_that_comes_or_grows_only_takes() -> None:
    before = owners(Rendezvous(even(8)))
    for weights in (even(9), even(8) | {"node-2": 1.5}):
        after = owners(Rendezvous(weights))
        moved = {key for key in KEYS if before[key] != after[key]}
        assert {after[key] for key in moved} == {"node-8" if len(weights) == 9 else "node-2"}
        assert len(moved) < 0.2 * len(KEYS)


def test_rendezvous_shares_are_those_of_the_weights() -> None:
    weights = {"a": 1.0, "b": 2.0, "c": 0.5, "d": 6.5}
    counts = Counter(owners(Rendezvous(weights)).values())
    for name, weight in weights.items():
        share = weight / 10
        noise = (len(KEYS) * share * (1 - share)) ** 0.5
        assert abs(counts[name] - len(KEYS) * share) < 3 * noise


def test_rendezvous_is_even_and_so_are_its_seconds() -> None:
    ring = Rendezvous(even(5))
    firsts: Counter[str] = Counter()
    pairs: Counter[tuple[str, str]] = Counter()
    for number in range(10_000):
        first, second = ring.rank(f"k{number}", 2)
        firsts[first] += 1
        pairs[first, second] += 1
    assert sum((count - 2_000) ** 2 / 2_000 for count in firsts.values()) < 13.3  # 1 in 100, 4 df
    assert len(pairs) == 20
    assert sum((count - 500) ** 2 / 500 for count in pairs.values()) < 36.2  # 1 in 100, 19 df


def test_half_of_all_draws_change_with_any_one_bit_of_a_key() -> None:
    random = Random(9)
    changed = [0] * 52
    for _ in range(400):
        key, node = random.getrandbits(60), random.getrandbits(60)
        for bit in range(60):
            difference = mix(key, node) ^ mix(key ^ (1 << bit), node)
            for place in range(52):
                changed[place] += difference >> place & 1
    assert all(0.46 < count / (400 * 60) < 0.54 for count in changed)


def test_a_draw_of_nothing_loses_and_breaks_nothing() -> None:
    assert mix(digest("k"), digest("k")) == 0
    for weights in ({"k": 1.0, "a": 1.0}, {"k": 1.0, "a": 2.0}):
        assert Rendezvous(weights).rank("k", 2) == ["a", "k"]
        assert Rendezvous(weights).owner("k") == "a"


def test_equal_draws_go_to_the_lesser_name() -> None:
    ring = Rendezvous({"b": 1.0, "a": 1.0, "c": 1.0})
    ring._seeds = [5, 5, 5]
    assert (ring.owner("k"), ring.rank("k", 3)) == ("a", ["a", "b", "c"])
    ring = Rendezvous({"b": 2.0, "a": 1.0, "c": 2.0})
    ring._seeds = [5, 5, 5]
    assert (ring.owner("k"), ring.rank("k", 3)) == ("b", ["b", "c", "a"])


def test_a_ranking_is_as_long_as_asked_for_or_as_there_are_nodes() -> None:
    nodes = Rendezvous({"a": 1.0, "b": 2.0, "c": 1.0})
    whole = nodes.rank("k", 3)
    assert sorted(whole) == ["a", "b", "c"]
    assert [nodes.rank("k", count) for count in (-1, 0, 1, 2, 9)] == [
        [],
        [],
        whole[:1],
        whole[:2],
        whole,
    ]


def test_one_node_owns_everything() -> None:
    only = Rendezvous({"a": 0.01})
    assert {only.owner(key) for key in KEYS[:50]} == {"a"}
    assert only.owner(b"") == only.owner("\ud800") == "a"


# Bad input.


@pytest.mark.parametrize("weight", [0.0, -1.0, 0.0099, 100.1, nan, inf])
def test_a_weight_out_of_range_is_refused_by_name(weight: float) -> None:
    with pytest.raises(ValueError, match=r"weights\['b'\] must be from 0.01 to 100.0, not"):
        Rendezvous({"a": 1.0, "b": weight})


def test_no_nodes_and_too_many_are_refused() -> None:
    with pytest.raises(ValueError, match="from 1 to 1024 nodes, not 0"):
        Rendezvous({})
    with pytest.raises(ValueError, match="from 1 to 1024 nodes, not 1025"):
        Rendezvous(even(NODES_MAX + 1))
