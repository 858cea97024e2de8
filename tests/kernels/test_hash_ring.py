from __future__ import annotations

from collections import Counter
from fractions import Fraction
from hashlib import blake2b, md5
from itertools import permutations
from math import ceil, inf, log, nan
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.hash_ring import NODES_MAX, Ketama, Rendezvous, digest, mix, pick_bounded

Ring = type[Rendezvous] | type[Ketama]
RINGS: list[Ring] = [Rendezvous, Ketama]
KEYS = [f"user:{number}" for number in range(2_000)]


def even(nodes: int) -> dict[str, float]:
    return {f"node-{number}": 1.0 for number in range(nodes)}


def owners(ring: Rendezvous | Ketama, keys: list[str] = KEYS) -> dict[str, str]:
    return {key: ring.owner(key) for key in keys}


def slow_rendezvous(weights: dict[str, float], key: str) -> list[str]:
    """The oracle: every node draws, by the formula as written; the lesser name goes first."""

    def score(name: str) -> float:
        u = (mix(digest(key), digest(name)) + 0.5) / 2**52
        return -weights[name] / log(u)

    return sorted(sorted(weights), key=score, reverse=True)


def slow_ketama(weights: dict[str, float], key: str) -> list[str]:
    """The oracle: every point of every node, sorted by its distance from the key."""

    def numbers(text: str) -> list[int]:
        sum16 = md5(text.encode()).digest()
        return [
            sum16[at + 3] << 24 | sum16[at + 2] << 16 | sum16[at + 1] << 8 | sum16[at]
            for at in (0, 4, 8, 12)
        ]

    start = numbers(key)[0]
    distances = [
        ((point - start) % 2**32, name)
        for name, weight in weights.items()
        for part in range(round(40 * weight))
        for point in numbers(f"{name}-{part}")
    ]
    return list(dict.fromkeys(name for _, name in sorted(distances)))


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


@given(node_weights, key_texts)
def test_ketama_takes_the_next_point_on_the_circle(weights: dict[str, float], key: str) -> None:
    ring, oracle = Ketama(weights), slow_ketama(weights, key)
    assert ring.owner(key) == oracle[0]
    assert ring.rank(key, len(weights)) == oracle


def test_a_digest_is_sixty_bits_of_blake2b() -> None:
    assert digest("key") == digest(b"key") < 1 << 60
    assert digest("key") == int(blake2b(b"key", digest_size=8).hexdigest(), 16) // 16
    assert digest("\ud800") == digest(b"\xed\xa0\x80")


@pytest.mark.parametrize(
    ("ring", "expected"), [(Rendezvous, "81850731526764084646"), (Ketama, "20278974389505795226")]
)
def test_owners_are_the_same_in_every_process_and_version(ring: Ring, expected: str) -> None:
    """A change here moves the keys of every cluster: it needs a new name, not a new expectation."""
    assert mix(1, 2) == 1941860639479880
    assert mix((1 << 60) - 1, 0) == 2026971912475257
    assert mix(0x123456789ABCDEF, 0xFEDCBA987654321) == 2026289428820384
    owner_digits = [ring(even(10)).owner(f"user:{number}")[-1] for number in range(20)]
    assert "".join(owner_digits) == expected


@pytest.mark.parametrize("ring", RINGS)
def test_the_order_in_which_nodes_are_named_means_nothing(ring: Ring) -> None:
    weights = {"a": 1.0, "b": 2.0, "c": 1.0}
    expected = owners(ring(weights))
    for order in permutations(weights):
        assert owners(ring({name: weights[name] for name in order})) == expected


@pytest.mark.parametrize("ring", RINGS)
def test_a_node_that_leaves_gives_its_keys_to_the_second_in_rank_and_moves_no_other(
    ring: Ring,
) -> None:
    weights = even(8) | {"node-3": 2.0}
    whole = ring(weights)
    for leaver in ("node-3", "node-5"):
        rest = ring({name: weight for name, weight in weights.items() if name != leaver})
        for key in KEYS:
            first, second = whole.rank(key, 2)
            assert rest.owner(key) == (second if first == leaver else first)


@pytest.mark.parametrize("ring", RINGS)
def test_a_node_that_comes_or_grows_only_takes(ring: Ring) -> None:
    before = owners(ring(even(8)))
    for weights in (even(9), even(8) | {"node-2": 1.5}):
        after = owners(ring(weights))
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


def test_ketama_is_within_a_third_of_even() -> None:
    counts = Counter(owners(Ketama(even(10))).values())
    assert all(134 < count < 266 for count in counts.values())
    assert len(counts) == 10


def test_a_ketama_node_of_weight_one_has_160_points_whatever_the_others_weigh() -> None:
    ring = Ketama({"a": 1.0, "b": 3.0, "tiny": 0.01})
    assert Counter(ring._names) == {"a": 160, "b": 480, "tiny": 4}


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


@pytest.mark.parametrize("ring", RINGS)
def test_a_ranking_is_as_long_as_asked_for_or_as_there_are_nodes(ring: Ring) -> None:
    nodes = ring({"a": 1.0, "b": 2.0, "c": 1.0})
    whole = nodes.rank("k", 3)
    assert sorted(whole) == ["a", "b", "c"]
    assert [nodes.rank("k", count) for count in (-1, 0, 1, 2, 9)] == [
        [],
        [],
        whole[:1],
        whole[:2],
        whole,
    ]


@pytest.mark.parametrize("ring", RINGS)
def test_one_node_owns_everything(ring: Ring) -> None:
    only = ring({"a": 0.01})
    assert {only.owner(key) for key in KEYS[:50]} == {"a"}
    assert only.owner(b"") == only.owner("\ud800") == "a"


def test_a_point_owns_what_stands_on_it_and_past_the_last_comes_the_first() -> None:
    ring = Ketama({"a": 1.0, "b": 1.0, "c": 1.0})
    at = int.from_bytes(md5(b"k").digest()[:4], "little")
    ring._names = ["a", "b", "c"]
    ring._points = [at - 1, at, at + 1]
    assert ring.rank("k", 3) == ["b", "c", "a"]
    ring._points = [at - 3, at - 2, at - 1]
    assert ring.rank("k", 3) == ["a", "b", "c"]


# Bounded loads.


@given(st.integers(0, 2**32), st.sampled_from([1.0, 1.1, 1.25, 2.0]), node_weights)
def test_bounded_loads_keep_every_node_within_the_factor_of_its_share(
    seed: int, factor: float, weights: dict[str, float]
) -> None:
    random = Random(seed)
    ring, loads = Rendezvous(weights), Counter[str]()
    placed = 60
    for _ in range(placed):
        key = f"k{random.randrange(10)}"  # ten keys: the hot ones overload their owners
        loads[pick_bounded(ring.rank(key, len(weights)), weights, loads, factor)] += 1
    whole = sum(Fraction(weight) for weight in weights.values())
    for name, weight in weights.items():
        assert loads[name] <= ceil(Fraction(factor) * placed * Fraction(weight) / whole)


def test_a_node_with_room_keeps_its_keys() -> None:
    weights = even(4)
    names = list(weights)
    assert pick_bounded(names, weights, {}) == "node-0"
    # Ten in all, the new one in: 1.25 * 10 / 4 = 3.125, so a fourth fits and a fifth does not.
    assert pick_bounded(names, weights, {"node-0": 3, "node-1": 6}) == "node-0"
    assert pick_bounded(names, weights, {"node-0": 4, "node-1": 4, "node-2": 1}) == "node-2"
    assert pick_bounded(names[:2], weights, {"node-0": 4, "node-1": 5}) == "node-0"


# Bad input.


@pytest.mark.parametrize("ring", RINGS)
@pytest.mark.parametrize("weight", [0.0, -1.0, 0.0099, 100.1, nan, inf])
def test_a_weight_out_of_range_is_refused_by_name(ring: Ring, weight: float) -> None:
    with pytest.raises(ValueError, match=r"weights\['b'\] must be from 0.01 to 100.0, not"):
        ring({"a": 1.0, "b": weight})


@pytest.mark.parametrize("ring", RINGS)
def test_no_nodes_and_too_many_are_refused(ring: Ring) -> None:
    with pytest.raises(ValueError, match="from 1 to 1024 nodes, not 0"):
        ring({})
    with pytest.raises(ValueError, match="from 1 to 1024 nodes, not 1025"):
        ring(even(NODES_MAX + 1))


@pytest.mark.parametrize("factor", [0.99, nan, inf])
def test_a_factor_below_one_is_refused(factor: float) -> None:
    with pytest.raises(ValueError, match="factor must be finite and at least 1, not"):
        pick_bounded(["a"], {"a": 1.0}, {}, factor)
