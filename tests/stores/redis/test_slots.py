"""Slots: redis-py's own computation as the oracle."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from sluicegate.contracts.errors import BadValue
from sluicegate.stores.redis.settings import Endpoint
from sluicegate.stores.redis.slots import SlotRange, parse_ranges, slot_of, slot_of_all

ASKED_NODE = Endpoint("asked", 7000)


@given(st.binary() | st.text(alphabet="ab{}", max_size=12).map(str.encode))
def test_a_slot_is_what_the_oracle_says(key: bytes) -> None:
    assert slot_of(key) == key_slot(key)


def test_keys_of_one_tag_share_a_slot_and_others_are_refused() -> None:
    assert slot_of_all(["rate:{ann}:a", b"rate:{ann}:b"]) == slot_of("ann")
    with pytest.raises(BadValue, match="hash tag"):
        slot_of_all(["ann", "bob"])
    with pytest.raises(BadValue, match="at least one"):
        slot_of_all([])


def test_the_map_is_read_with_replicas_and_with_hosts_that_have_no_name() -> None:
    reply = [
        [0, 100, [b"a", 1, b"id", []], [b"replica", 9, b"id"]],
        [101, 200, [None, 2, b"id"]],
        [300, 300, [b"", 3, b"id"]],
    ]
    assert parse_ranges(reply, ASKED_NODE) == [
        SlotRange(0, 100, Endpoint("a", 1)),
        SlotRange(101, 200, Endpoint("asked", 2)),
        SlotRange(300, 300, Endpoint("asked", 3)),
    ]


@pytest.mark.parametrize("reply", [None, 7, [[1]], [[5, 1, [b"a", 1]]], [[0, 16_384, [b"a", 1]]]])
def test_a_map_that_makes_no_sense_is_refused(reply: object) -> None:
    with pytest.raises(BadValue, match="CLUSTER SLOTS"):
        parse_ranges(reply, ASKED_NODE)
