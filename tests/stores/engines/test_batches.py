"""A load, cut into the calls that an engine makes of it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as some

from sluicegate.contracts.engine import Change
from sluicegate.contracts.errors import BadValue
from sluicegate.stores.engines.batches import RUN_ROWS_MAX, batches_of, runs_of
from sluicegate.stores.engines.bounds import CHANGE_BYTES, check_changes

ENTRIES = some.lists(
    some.tuples(
        some.sampled_from([b"p", b"q", b"r"]), some.binary(max_size=2), some.binary(max_size=300)
    ),
    max_size=40,
)


@given(ENTRIES, some.integers(1, 1_500), some.sampled_from([0, CHANGE_BYTES]))
def test_every_place_is_in_one_batch_of_its_partition_with_its_last_value(
    entries: list[tuple[bytes, bytes, bytes]], bytes_max: int, change_bytes: int
) -> None:
    batches = batches_of("s", entries, bytes_max=bytes_max, change_bytes=change_bytes)
    rows = [(one.partition, one.sort, one.value) for _, batch in batches for one in batch]
    last = {(partition, sort): value for partition, sort, value in entries}
    assert sorted(rows) == sorted((*place, value) for place, value in last.items())
    for partition, batch in batches:
        assert {one.partition for one in batch} == {partition}
        weight = check_changes(batch) + change_bytes * (len(batch) - 1)
        assert len(batch) == 1 or weight <= bytes_max


@given(ENTRIES, some.integers(1, 1_500))
def test_a_batch_is_not_left_before_it_is_full(
    entries: list[tuple[bytes, bytes, bytes]], bytes_max: int
) -> None:
    batches = batches_of("s", entries, bytes_max=bytes_max)
    for name in (b"p", b"q", b"r"):
        own = [batch for partition, batch in batches if partition == name]
        for batch, following in pairwise(own):
            assert check_changes([*batch, following[0]]) > bytes_max


def test_a_batch_may_be_just_as_large_as_it_may_be() -> None:
    entries = [(b"p", b"%d" % at, b"value") for at in range(4)]
    two = check_changes([Change("s", *entry) for entry in entries[:2]])
    assert [len(batch) for _, batch in batches_of("s", entries, bytes_max=two)] == [2, 2]


def test_a_load_is_cut_into_runs_each_in_the_order_of_its_keys() -> None:
    count = 2 * RUN_ROWS_MAX + 1
    entries = [(b"p", b"%05d" % (count - at), b"v") for at in range(count)]
    runs = list(runs_of("s", entries))
    assert [len(run) for run in runs] == [RUN_ROWS_MAX, RUN_ROWS_MAX, 1]
    for begin, run in enumerate(runs):
        part = entries[begin * RUN_ROWS_MAX : (begin + 1) * RUN_ROWS_MAX]
        assert run == [Change("s", *entry) for entry in sorted(part)]


def test_of_a_place_that_is_named_twice_the_later_is_the_later_in_its_run() -> None:
    entries = [(b"p", b"b", b"z"), (b"p", b"a", b""), (b"p", b"b", b"a")]
    ((_, *both),) = runs_of("s", entries)
    assert [one.value for one in both] == [b"z", b"a"]


def test_what_no_engine_keeps_is_refused_before_anything_is_written() -> None:
    with pytest.raises(BadValue):
        batches_of("s", [(b"p", b"", b""), (b"", b"", b"")], bytes_max=1_000)
