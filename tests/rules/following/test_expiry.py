"""Rollouts expire: a node that is kept from newer ones says so, and takes no older one."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluicegate.testing import START_US
from tests.rules.following.node import Node
from tests.rules.releases.press import Press

HOUR_US = 3_600_000_000
VALID_UNTIL_US = START_US + HOUR_US


def pressed() -> Press:
    press = Press()
    press.release(1, play=1)
    press.release(2, play=2)
    return press


def look(node: Node, *, s: float) -> None:
    """Let time pass, and have the node look."""
    node.clock.advance(s=s)
    node.follower.look()


def test_a_node_that_hears_nothing_newer_says_so_and_runs_on() -> None:
    press = pressed()
    press.order(1, 1, expires_us=VALID_UNTIL_US)
    node = Node(press).begin()
    look(node, s=3_599)
    assert node.failure == {}
    look(node, s=10)
    assert "rollout 1 is the newest" in node.failure["expiry"]
    assert "it expired at 2001-09-09T02:46:40" in node.failure["expiry"]
    assert node.failed("expiry", "expired") == 1
    assert node.runs == (1, 0)
    assert "expiry: " in node.follower.report().failure
    assert node.follower.status()["fleet"]["expires"] == "2001-09-09T02:46:40.000000Z"  # type: ignore[index]


def test_a_store_that_is_held_at_an_old_rollout_is_noticed_and_that_is_not_taken() -> None:
    press = pressed()
    old = press.order(1, 1, expires_us=VALID_UNTIL_US)
    node = Node(press).begin()
    press.order(2, 2, expires_us=VALID_UNTIL_US)
    look(node, s=2)
    assert node.runs == (2, 0)
    press.blobs.put("orders/current.json", old.signed)  # by somebody without a key
    look(node, s=3_600)
    assert node.failure.keys() == {"orders", "expiry"}
    assert "number 2 has been seen" in node.failure["orders"]
    assert node.runs == (2, 0)


def test_a_rollout_that_is_renewed_is_valid_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "sluicegate.rules")
    press = pressed()
    press.order(1, 1, expires_us=VALID_UNTIL_US)
    node = Node(press).begin()
    look(node, s=3_601)
    assert "expiry" in node.failure
    press.order(2, 1, expires_us=VALID_UNTIL_US + 2 * HOUR_US)
    look(node, s=2)
    assert node.failure == {}
    assert len(node.handed) == 1  # the same rules: nothing is swapped
    assert caplog.messages[-1] == "rollout 2 has not expired: all is heard again"


def test_a_node_that_cannot_reach_its_store_says_both(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "sluicegate.rules")
    press = pressed()
    press.order(1, 1, expires_us=VALID_UNTIL_US)
    node = Node(press).begin()
    node.line.cut = ""
    look(node, s=3_601)
    assert node.failure.keys() == {"orders", "expiry"}
    node.line.cut = None
    look(node, s=60)
    assert node.failure.keys() == {"expiry"}
    assert caplog.messages[-1] == "the rollout is followed again"


def test_an_expiry_is_remembered_over_a_restart(tmp_path: Path) -> None:
    press = pressed()
    press.order(1, 1, expires_us=VALID_UNTIL_US)
    first = Node(press, tmp_path / "kept").begin()
    first.close()
    again = Node(press, tmp_path / "kept", clock=first.clock).begin()
    again.line.cut = ""
    look(again, s=3_601)
    assert "expiry" in again.failure


def test_a_new_node_starts_on_an_expired_rollout_and_says_so() -> None:
    press = pressed()
    press.order(1, 1, expires_us=VALID_UNTIL_US)
    node = Node(press)
    node.clock.advance(s=7_200)
    node.begin()
    node.follower.look()
    assert node.runs == (1, 0)
    assert "expiry" in node.failure


def test_what_never_expires_is_never_told() -> None:
    press = pressed()
    press.order(1, 1)
    node = Node(press).begin()
    look(node, s=10**8)
    assert node.failure == {}
    assert node.follower.metrics().expires_us == 0
