from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.checks import CheckRequest, MeshRequest
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.shadow import traffic
from sluicegate.shadow.traffic import ADMITTED, ALL, REFUSED, UNKNOWN, TrafficBuilder
from tests.shadow.capture.world import key_of, rows_of
from tests.shadow.synthetic import BEGIN_US, synthetic_traffic


def test_the_same_seed_makes_the_same_capture_and_another_seed_another() -> None:
    one, same, other = (synthetic_traffic(2_000, seed=seed) for seed in (1, 1, 2))
    assert rows_of(one) == rows_of(same)
    assert rows_of(one) != rows_of(other)
    assert rows_of(synthetic_traffic(1_000, seed=1)) == rows_of(one)[:1_000]


def test_what_is_made_never_changes() -> None:
    made = synthetic_traffic(3, seed=7)
    queries = [made.queries[number] for number in made.which]
    users = [query.user_id for query in queries if isinstance(query, CheckRequest)]
    assert users == ["user-191", "user-230", "user-7199"]
    assert [at_us - BEGIN_US for at_us in made.at_us] == [1_771, 2_845, 3_762]


def test_requests_come_at_about_the_rate_in_all_four_classes() -> None:
    made = synthetic_traffic(20_000, per_s=2_000, entities=50)
    seconds = (made.at_us[-1] - BEGIN_US) / 1e6
    assert 9.5 < seconds < 10.5
    classes = Counter(
        query.priority
        for query in map(made.queries.__getitem__, made.which)
        if isinstance(query, CheckRequest)
    )
    assert set(classes) == set(Criticality)
    assert 3_700 < classes[Criticality.CRITICAL] < 4_300


def test_a_few_ask_for_most_and_alpha_says_how_much() -> None:
    def busiest(alpha: float) -> int:
        made = synthetic_traffic(5_000, entities=1_000, alpha=alpha)
        counts = Counter(made.entities[number] for number in made.which)
        return counts.most_common(1)[0][1]

    assert busiest(0) < 30 < busiest(1) < 2_000 < busiest(2)


def test_a_part_may_ask_as_a_mesh_and_a_part_be_turned_away() -> None:
    made = synthetic_traffic(5_000, entities=500, alpha=0, mesh=2_500, refused=1_000, claims=False)
    queries = [made.queries[number] for number in made.which]
    assert 1_000 < sum(isinstance(query, MeshRequest) for query in queries) < 1_500
    assert all(query.priority is None for query in queries if isinstance(query, CheckRequest))
    assert 400 < list(made.outcomes).count(REFUSED) < 600
    assert set(made.outcomes) == {ADMITTED, REFUSED}
    assert made.share == ALL


@pytest.mark.parametrize("field", ["requests", "entities", "alpha", "per_s", "mesh", "refused"])
def test_what_cannot_be_made_is_told(field: str) -> None:
    with pytest.raises(BadValue, match=field):
        synthetic_traffic(**{"requests": 1, field: -1})  # type: ignore[arg-type]


ASKS = [CheckRequest(f"user-{n}", "/a") for n in range(5)]


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 4)), max_size=300))
def test_requests_are_put_into_order_whatever_the_pieces(rows: list[tuple[int, int]]) -> None:
    before = traffic._PIECE, traffic._STEP
    traffic._PIECE, traffic._STEP = 16, 3  # type: ignore[misc]
    try:
        made = TrafficBuilder()
        for at_us, number in rows:
            assert made.add(ASKS[number], at_us)
        captured = made.build()
    finally:
        traffic._PIECE, traffic._STEP = before  # type: ignore[misc]
    pairs = [(at_us, captured.queries[number]) for at_us, number in zip(
        captured.at_us, captured.which, strict=True
    )]  # fmt: skip
    right = sorted(((at_us, ASKS[number]) for at_us, number in rows), key=lambda row: row[0])
    assert pairs == right
    assert set(captured.outcomes) <= {UNKNOWN}


def test_what_is_beyond_a_bound_is_counted() -> None:
    made = TrafficBuilder(requests_max=3, queries_max=2)
    answers = [made.add(ASKS[n % 3], n) for n in range(6)]
    assert answers == [True, True, False, True, False, False]
    assert made.build().lost == 3
    assert len(made) == 3
    with pytest.raises(BadValue, match="queries_max"):
        TrafficBuilder(queries_max=0)


def test_the_same_ask_is_kept_once_whatever_the_order_of_its_headers() -> None:
    made = TrafficBuilder()
    made.add(CheckRequest("ann", "/a", headers={"a": "1", "b": "2"}), 1)
    made.add(CheckRequest("ann", "/a", headers={"b": "2", "a": "1"}), 2)
    made.add(CheckRequest("ann", "/a", headers={"b": "2"}), 3)
    captured = made.build()
    assert list(captured.which) == [0, 0, 1]
    assert key_of(captured.queries[1]) == ("ann", "/a", 1, -1, ())
