"""Channels whose home has changed: nothing that is missing here is missing silently."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluicegate.apps.pubsub.channel import STRIDE, Channel, ChannelKey, Gap, Message, tag_of
from sluicegate.apps.pubsub.moves import CHANGES_MAX, Moves
from sluicegate.contracts.errors import BadValue
from sluicegate.kernels.hash_ring import Rendezvous

KEYS = [ChannelKey("ann", f"c{number}") for number in range(300)]


def homes(*members: str) -> dict[ChannelKey, str]:
    ring = Rendezvous(dict.fromkeys(members, 1.0))
    return {key: ring.owner(f"{key.account}/{key.name}") for key in KEYS}


def test_a_channel_that_came_here_is_here_from_that_position_on_and_no_other(
    tmp_path: Path,
) -> None:
    first = Moves("a", str(tmp_path))
    first.read()
    first.record(["a", "b", "c"], 0)
    assert {first.moved(key) for key in KEYS} == {0}
    again = Moves("a", str(tmp_path))
    again.read()
    assert not again.record(["c", "b", "a"], 500)
    assert again.record(["a", "b"], 700)
    last = Moves("a", str(tmp_path))
    last.read()
    before, after = homes("a", "b", "c"), homes("a", "b")
    moved = {key for key in KEYS if before[key] != "a" and after[key] == "a"}
    assert 20 < len(moved) < 100
    assert {key for key in KEYS if last.moved(key)} == moved
    assert {last.moved(key) for key in moved} == {700}


def test_a_channel_that_went_and_came_back_is_here_from_its_return_on(tmp_path: Path) -> None:
    moves = Moves("a", str(tmp_path))
    moves.record(["a", "b"], 0)
    moves.record(["a", "b", "c"], 300)
    moves.record(["a", "b"], 900)
    there, between = homes("a", "b"), homes("a", "b", "c")
    for key in KEYS:
        left = there[key] == "a" and between[key] == "c"
        assert moves.moved(key) == (900 if left else 0)


def test_so_many_changes_are_kept_and_before_them_all_have_moved(tmp_path: Path) -> None:
    moves = Moves("a", str(tmp_path))
    for number in range(CHANGES_MAX + 5):
        moves.record(["a", f"b{number}"], number * 10)
    read = Moves("a", str(tmp_path))
    read.read()
    for one in (moves, read):
        assert min(one.moved(key) for key in KEYS) == 50


@pytest.mark.parametrize("text", ["", "[]", '{"version": 2}', '{"version": 1}', "{"])
def test_a_damaged_record_is_no_reason_to_guess(tmp_path: Path, text: str) -> None:
    (tmp_path / "members.json").write_text(text)
    with pytest.raises(BadValue, match=r"members\.json"):
        Moves("a", str(tmp_path)).read()


def test_what_is_missing_before_a_return_is_told_between_what_is_there() -> None:
    channel = Channel(KEYS[0], 0, None)
    for position in (5, 6):
        channel.append(Message(position, 1, KEYS[0], b"{}", 1))
    channel.cut = 10  # elsewhere until then
    channel.append(Message(12, 1, KEYS[0], b"{}", 1))
    pieces = channel.subscribe(6, 12).take(10, 1 << 20)
    assert pieces[0] == Gap(6, 12, None)
    assert [one.position for one in pieces[1:] if isinstance(one, Message)] == [12]
    assert channel.gap_behind(10, 12) is None


def test_a_node_has_a_tag_of_its_own() -> None:
    tags = [tag_of(f"node-{number}") for number in range(50)]
    assert all(0 < tag < STRIDE and tag % 2 for tag in tags)
    assert tag_of("n1") == tag_of("n1") != tag_of("n2")
